"""A signature is what a caller may know; surroundings are what scaffolding defines; neither holds the body."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram, Snippet
from agent.languages.python import PythonLanguage
from agent.languages.python.hiding import is_plain

LANGUAGE = PythonLanguage()


def signature(code: str) -> str | None:
    return LANGUAGE.signature(LANGUAGE.inspect(code))


def surroundings(scaffold: str, code: str = "def f(a):\n    return SECRET + sorted(a)\n") -> str:
    return LANGUAGE.surroundings(scaffold, LANGUAGE.inspect(code))


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("def f(a, b: int = 3, *c, d=None, **e) -> str:\n    'doc'\n    return a",
         "def f(a, b: int=3, *c, d=None, **e) -> str:\n    ..."),
        ("import re\nX = 5\n@wraps(g)\nasync def f(): # note\n    yield X", "@wraps(g)\nasync def f():\n    ..."),
        ("def f():\n    def inner(): pass\n    class Inner: pass", "def f():\n    ..."),
        ("class A(B, metaclass=M):\n  'doc'\n  x: int = 1\n  def __init__(self, z): pass\n  def _own(self): pass",
         "class A(B, metaclass=M):\n\n    def __init__(self, z):\n        ..."),
        ("@dataclass\nclass P:\n    x: int = 1\n    y = 2", "@dataclass\nclass P:\n    x: int = 1"),
        ("class E(Exception):\n    'doc'", "class E(Exception):\n    ..."),
        ("def f(): pass\ndef g(): pass", "def f():\n    ...\n\ndef g():\n    ..."),
        ("if V3:\n    def f(x):\n        return x * 2\nelse:\n    def f(x, y):\n        return 2 * x",
         "def f(x):\n    ...\n\ndef f(x, y):\n    ..."),
        ("try:\n    import a\n    class A:\n        def g(self): return 1\nexcept ImportError:\n"
         "    class A:\n        def g(self): return 2", "class A:\n\n    def g(self):\n        ..."),
        ("class A:\n    if V3:\n        def g(self): return 1", "class A:\n\n    def g(self):\n        ..."),
        ("def f(a=lambda b=2: b * 4711, c=[d + 1 for d in E]): pass",
         "def f(a=lambda b=2: ..., c=...):\n    ..."),
        ("@cache(lambda k: k.secret)\ndef f(x): pass", "@cache(lambda k: ...)\ndef f(x):\n    ..."),
        ("class T(type('X', (), {'run': lambda self: 99})): pass",
         "class T(type('X', (), {'run': lambda self: ...})):\n    ..."),
        ("if __name__ == '__main__':\n    def f(): pass", None),
        ("print(1)", None),
        ("x = lambda a: a", None),
        ("return 3", None),
        ("def f(:", None),
    ],
)  # fmt: skip
def test_a_signature_leaves_the_body_out(code: str, left: str | None) -> None:
    assert signature(code) == left


@pytest.mark.parametrize("code", ["def f(a=" + "-" * 5000 + "1): pass", "def f(a=" + "(" * 150 + ")" * 150 + "): pass"])
def test_a_hostile_signature_is_none_or_parses(code: str) -> None:
    found = LANGUAGE.signature(Snippet(code))
    assert found is None or ast.parse(found)


def test_a_signature_can_stand_in_the_snippets_place() -> None:
    found = signature("class A:\n    @property\n    def x(self): return 1\n    async def y(self): return await z()\n")
    assert found is not None
    program = "# <candidate>\n\ndef test_x():\n    assert A().x == 1\n"
    assert LANGUAGE.insert(program, Snippet(found)).cases == ("test_x",)


def test_surroundings_are_what_is_defined_around_the_marker() -> None:
    scaffold = '''"""Sorts by SECRET."""
from __future__ import annotations
import numpy as np  # for sorted(a)

class Board:
    """Sorts."""
    def __init__(self, scores=(1, 2)):
        import os
        self.scores = scores  # SECRET

    # <candidate>

SIZE = 3
'''
    assert surroundings(scaffold) == (
        "class Board:\n\n    def __init__(self, scores=(1, 2)):\n        self.scores = scores\n"
        "    # <candidate>\nSIZE = 3"
    )


def test_surroundings_of_imports_alone_are_empty() -> None:
    assert surroundings("import re\n# sorted(a)\n# <candidate>\n") == ""


def test_a_class_around_the_marker_alone_is_shown() -> None:
    assert surroundings("class Board:\n    # <candidate>\n") == "class Board:\n    # <candidate>"


@pytest.mark.parametrize(
    ("scaffold", "why"),
    [
        ("# <candidate>\ndef test_a():\n    assert f([])\n", "holds the test case `test_a`"),
        ("class T:\n    def test_a(self):\n        pass\n# <candidate>\n", "holds the test case `test_a`"),
        ("def g(a):\n    return SECRET + sorted(a)\n# <candidate>\n", r"repeats `SECRET \+ sorted\(a\)`"),
        ("def f(a):\n    return a\n# <candidate>\n", "defines or replaces `f`"),
        ("SECRET = []\n", "stands nowhere"),
        ("if True:\n# <candidate>\n", "does not parse"),
    ],
)
def test_scaffolding_that_is_more_or_less_is_refused(scaffold: str, why: str) -> None:
    with pytest.raises(MalformedProgram, match=why):
        surroundings(scaffold)


RANKING = '''def ranking(self, limit=10):
    """Docstring with the word zebra."""
    best = {row["price"]: row.get("name") for row in self.rows if row.cost > 4711}  # about giraffes
    tail = b"nothing at all"
    global TOTAL
    return sorted(self.points, key=helper, reverse=True)[:limit] or self.client.load(best, mode="fast") or tail
'''
HELD = "class Board:\n    def __init__(self, points):\n        self.points = points\n{}\n    # <candidate>\n"


@pytest.mark.parametrize(
    "line",
    [
        "'ranking returns sorted(self.points, key=helper, reverse=True)[:limit]'",
        "size = 1\n    'what a reader is told of the attribute: sorted, reversed'",
        "f'sorted by {helper}, 4711'",
        "b'nothing at all'",
        "'zebra', 4711",
        "# giraffes",
        "import giraffes as zebra",
    ],
)
def test_what_is_only_said_is_left_out(line: str) -> None:
    kept = "    size = 1\n" if line.startswith("size") else ""
    bare = "class Board:\n\n    def __init__(self, points):\n        self.points = points\n"
    assert surroundings(HELD.format(f"    {line}"), RANKING) == f"{bare}{kept}    # <candidate>"


@pytest.mark.parametrize(
    "line",
    [
        "want = sorted(self.points, key=helper, reverse=True)[:10] or 'nothing'",
        "def want(self, given=sorted(self.points, key=helper, reverse=False)): pass",
        "def want(self, given: sorted(self.points, key=helper, reverse=True)): pass",
        "@wraps(sorted(given_all, key=given_by, reverse=True))\n    def want(self): pass",
        "want = lambda self: sorted(self.given, key=self.by, reverse=1)",
        "want = {given['a']: given.get('b') for given in self.given_rows if given.cost > 0}",
        "want = [self.client.load(best, mode='slow')]",
        "want = f'it is {sorted(self.points, key=helper, reverse=True)}'",
        "def want(self):\n        def inner():\n            yield sorted(self.points, key=helper, reverse=True)",
    ],
)
def test_work_of_the_code_is_refused_with_other_names_and_constants_too(line: str) -> None:
    with pytest.raises(MalformedProgram, match=r"repeats `.+` of the candidate: a stand-in may not do its work"):
        surroundings(HELD.format(f"    {line}"), RANKING)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return a + b", "given = lambda a, b: a + b"),
        ("return a[::-1]", "given = lambda x: x[::-1]"),
        ("return a[1:]", "given = lambda a: a[2:]"),
        ("return list(set(a))", "given = lambda x: list(set(x))"),
        ("return x(a, 3)", "given = lambda a: x(a, 5)"),
        ("return a if b else 1", "given = lambda a, b: a if b else 2"),
        ("return [c for c in a]", "given = lambda a: [c for c in a]"),
        ("a += b\n    return a", "def given(a, b):\n    a += b"),
        ("return a < b", "given = lambda a, b: a < b"),
    ],
)
def test_short_code_can_be_copied_as_well(body: str, line: str) -> None:
    with pytest.raises(MalformedProgram, match="repeats"):
        surroundings(f"{line}\n# <candidate>\n", f"def f(a, b):\n    {body}\n")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return len(a.rows)", "class Given:\n    def __len__(a):\n        return len(a.rows)"),
        ("if a is None: raise ValueError(b)", "def given(a, b):\n    if a is None:\n        raise ValueError(b)"),
        ("return isinstance(a, str)", "given = lambda a: isinstance(a, str)"),
        ("return Client()", "class Client: pass\ngiven = Client()"),
        ("return a[0]", "given = lambda a: a[1]"),
        ("return a + b", "given = lambda x, y: x + y"),
        ("return self.rows[:b]", "given = lambda x: x[:1]"),
        ("return a or []", "given = lambda a: a or []"),
    ],
)
def test_what_anybody_may_write_is_no_copy(body: str, line: str) -> None:
    assert "given" in surroundings(f"{line}\n# <candidate>\n", f"def f(a, b):\n    {body}\n").lower()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("size = 4711", "size = ..."),
        ("size = 4_711 + 0x10", "size = ... + 16"),
        ("note = 'sorted(self.points)'", "note = ..."),
        ("note = 'about giraffes'", "note = ..."),
        ("note = 'a zebra\\nbest'", "note = ..."),
        ("note = f'{0} zebra'", "note = f'{0}...'"),
        ("note = b'nothing at all'", "note = ..."),
        ("note = {'price': 1, 'name': 2, 'tail': 3}", "note = {'price': 1, 'name': 2, ...: 3}"),
        ("def given(self, best=4711): return best", "def given(self, hidden_1=...):\n        return hidden_1"),
        ("def given(self, x: 'the best'): pass", "def given(self, x: ...):\n        pass"),
        ("def given(self):\n        tail = 2\n        return tail",
         "def given(self):\n        hidden_1 = 2\n        return hidden_1"),
        ("def given(self):\n        return lambda best: best",
         "def given(self):\n        return lambda hidden_1: hidden_1"),
        ("def given(self):\n        class best: pass", "def given(self):\n        class hidden_1:\n            pass"),
        ("@given(best=1)\n    def given(self): pass", "@given(hidden_1=1)\n    def given(self):\n        pass"),
        ("given = sorted", "given = hidden_1"),
        ("def given(self, row): return row.cost", "def given(self, hidden_1):\n        return hidden_1.hidden_2"),
    ],
)  # fmt: skip
def test_what_is_the_bodys_own_is_hidden(line: str, shown: str) -> None:
    found = surroundings(HELD.format(f"    {line}"), RANKING)
    assert re.sub(r"\n+", "\n", found).endswith(f"self.points = points\n    {shown}\n    # <candidate>")


@pytest.mark.parametrize(
    "line",
    [
        "best = 1",
        "def tail(self): pass",
        "def given(self):\n        self.best = 1",
        "def given(self, *, best): pass",
    ],
)
def test_what_must_be_named_may_not_have_a_name_of_the_bodys_own(line: str) -> None:
    with pytest.raises(MalformedProgram, match=r"defines `\w+`, which the candidate has.*begin with given_"):
        surroundings(HELD.format(f"    {line}"), RANKING)


@pytest.mark.parametrize(
    ("code", "scaffold"),
    [
        ("return helper(a)", "def helper(value):\n    return value"),
        ("return a.left", "class Node:\n\n    def __init__(self, left):\n        self.left = left"),
        ("return input(a)", "def input(value):\n    return value"),
        ("return helper(a, deep=True)", "def helper(value, deep=False):\n    return value"),
        ("return a['price'], a.get('name')", "ROW = {'price': 3, 'name': 'Ann'}"),
        ("price = a['price']\n    return price", "ROW = dict(price=3)"),
        ("global TOTAL\n    TOTAL = 1", "TOTAL = 0"),
        ("import own.part\n    return own.part.load(a)", "class own:\n\n    class part:\n        load = str"),
        ("return np.array(a)", "GIVEN = np.zeros(3)"),
        ("raise Broken(str(a))", "class Broken(Exception):\n    pass"),
    ],
)  # fmt: skip
def test_what_the_code_cannot_do_without_is_shown(code: str, scaffold: str) -> None:
    found = surroundings(f"import numpy as np\n{scaffold}\n# <candidate>\n", f"def f(a):\n    {code}\n")
    assert found == f"{scaffold}\n# <candidate>"


@pytest.mark.parametrize(
    ("names", "plain"),
    [
        ("self cls return None True len isinstance str list dict ValueError __init__ append items", True),
        ("sorted sum min max any all zip map filter reversed enumerate open print round abs chr", False),
        ("sort split join strip index count replace format key value name x _", False),
    ],
)
def test_pythons_plainest_words_do_no_work(names: str, plain: bool) -> None:
    assert {is_plain(name) for name in names.split()} == {plain}


def test_names_that_only_prose_shares_stay_where_they_must_be_named() -> None:
    scaffold = "class zebra:\n    pass\n# <candidate>\n"
    assert surroundings(scaffold, RANKING).startswith("class zebra:")


def test_what_every_class_says_is_no_copy() -> None:
    body = "    def __init__(self, x):\n        super().__init__()\n        self.x = x\n"
    code = f"class A(B):\n{body}    def g(self): return x(1)\n"
    assert "class B" in surroundings(f"class B:\n{body}# <candidate>\n", code)


@given(st.text())
def test_no_text_makes_a_signature_raise(code: str) -> None:
    found = signature(code)
    assert found is None or ast.parse(found)
