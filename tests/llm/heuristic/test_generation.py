from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.llm.heuristic.generation import generate_reply, write_program
from agent.llm.heuristic.oracles import CONVERSIONS, ORACLES, find_oracle
from agent.llm.parsing import parse_program
from tests.llm.heuristic.running import LANGUAGE, outcomes, run, variables, written

ANSWERED = [
    ("reverse a string", "def f(s): return s[::-1]", "def f(s): return s"),
    ("python sort list", "def f(l):\n    l.sort()", "def f(l): return l[::-1]"),
    ("remove duplicates from list", "def f(l): return sorted(set(l))", "def f(l): return list(l)"),
    ("how to flatten a list", "def f(l):\n    for i in l:\n        yield from i", "def f(l): return l"),
    ("check if string is palindrome", "def f(s): return s == s[::-1]", "def f(s): return True"),
    ("average of a list of numbers", "def f(l): return sum(l) / len(l)", "def f(l): return sum(l)"),
    ("dot product of two vectors", "def f(a, b): return sum(map(lambda x, y: x * y, a, b))", "def f(a, b): return a"),
    ("check if key exists in dictionary", "def f(d, k): return k in d", "def f(d, k): return d"),
    ("int to hex", "def f(n): return '%x' % n", "def f(n): return str(n)"),
    ("convert string to int", "def f(s): return int(s)", "def f(s): return s"),
    ("read lines of a file", "def f(p): return [x.strip('\\n') for x in open(p)]", "def f(p): return open(p).read()"),
    ("check if file exists", "import os\ndef f(p): return os.path.exists(p)", "def f(p): return None"),
    ("generate random string of length", "import os\ndef f(n): return os.urandom(n).hex()[:n]", "def f(n): return 'a'"),
    ("sum of a list", "def f(l): print(sum(l))", "def f(l): print(max(l))"),
    ("lower all strings in list", "async def f(l): return [s.lower() for s in l]", "async def f(l): return l"),
]


def test_programs_tell_right_code_from_wrong_where_the_query_is_known() -> None:
    sources = [written(query, code)[1].source for query, *codes in ANSWERED for code in codes]
    ends = run(sources)
    for (query, _, _), right, wrong in zip(ANSWERED, ends[::2], ends[1::2], strict=True):
        oracle = {name: end for name, end in right.items() if name.startswith("test_oracle")}
        assert set(right.values()) == {"passed"}, (query, right)
        assert oracle, query
        assert "failed" in {wrong[name] for name in oracle}, (query, wrong)


SCAFFOLDED = {
    "a method with attributes of its own": "def size(self):\n    return len(self.items) + self.offset",
    "a property": "@property\ndef name(self):\n    return self._name",
    "a setter": "@name.setter\ndef name(self, value):\n    self._name = value",
    "a class method without its decorator": "def build(cls, value):\n    return cls.factory(value)",
    "a private method": "def __secret(self, text):\n    return text + __suffix",
    "a method that calls its parent": "def close(self):\n    super(Door, self).close()\n    super().lock(1)",
    "a constructor": "def __init__(self, name, size):\n    self.name = name",
    "a class": "class Box:\n    def __init__(self, items):\n        self.items = items\n    def total(self):\n"
    "        return sum(self.items)",
    "several functions": "def helper(x):\n    return x\n\ndef total(values):\n    return helper(sum(values))",
    "plain statements": "total = sum([1, 2, 3])\nprint(total)",
    "a fragment": "for x in [1, 2]:\n    if x > 1:\n        return x",
    "a fragment of a loop": "continue",
    "an unknown decorator": "@app.route('/')\n@cached(60)\ndef index():\n    return 1",
    "an unknown error class": "def f(x):\n    try:\n        raise Oops(x)\n    except Oops:\n        return None",
    "names of Python 2": "def f(text):\n    return [unicode(c) for c in xrange(3)] + [isinstance(text, basestring)]",
    "modules of Python 2": "import urllib2, StringIO\nfrom itertools import izip\ndef f():\n    return urllib2.Request",
    "sibling modules": "from .tasks import run\nfrom . import models\ndef f():\n    return run(models.Task)",
    "modules of the package above": "from ..tools import run\nfrom ...outer import x\ndef f():\n    return run(x)",
    "formatted stand-ins": "def f(self):\n    return '{:.2f}'.format(self.duration) + self.kind.__name__",
    "imports left out": "def f(path):\n    return os.path.join(path, re.sub('a', 'b', json.dumps({})))",
    "typing names left out": "def f(xs: List[Optional[int]]) -> Dict[str, int]:\n    return {}",
    "classes of datetime": "def f(day: date):\n    return datetime.now() - timedelta(days=1)",
    "the module datetime": "def f():\n    return datetime.datetime.now() + datetime.timedelta(1)",
    "input from a person": "def ask():\n    return input('name? ')",
    "a generator": "def f(n):\n    for i in range(n):\n        yield i",
    "a context manager": "@contextmanager\ndef f():\n    yield 1",
    "an open file": "def f(fh):\n    return fh.read().split()",
    "a callable": "def apply(func, *args):\n    return func(*args)",
    "keyword-only parameters": "def f(*, name, size=1):\n    return name * size",
    "a function called like a test": "def test_connection(host):\n    return host",
    "text across lines": "def f(x):\n    \"\"\"One\n  two\n\"\"\"\n    return '''a\n  b''' + str(x)",
    "a future import": "from __future__ import print_function\ndef f(x):\n    print(x, end='')",
    "Windows newlines": "def f(x):\r\n    return x\r\n",
}


def test_programs_run_whatever_shape_the_snippet_has() -> None:
    programs = [written("what does this do", code)[1] for code in SCAFFOLDED.values()]
    for shape, program, ends in zip(SCAFFOLDED, programs, run([each.source for each in programs]), strict=True):
        assert set(ends) >= set(program.cases), shape
        assert set(ends.values()) == {"passed"}, (shape, ends)


def test_examples_in_a_docstring_become_cases() -> None:
    code = (
        'def double(x):\n    """\n    >>> y = 4\n    >>> double(y)\n    8\n    >>> double("a")\n    \'aa\'\n    """\n'
    )
    assert outcomes("twice", code + "    return x * 2").items() >= {"test_example_1": "passed"}.items()
    ends = outcomes("twice", code + "    return 8")
    assert (ends["test_example_1"], ends["test_example_2"]) == ("passed", "failed")


def test_an_example_sees_the_effects_of_those_before() -> None:
    shown = [">>> a = []", ">>> push(a)", ">>> a", "[1]", ">>> push(a)", ">>> a", "[1, 1]"]
    code = "def push(l):\n    '''\n" + "".join(f"    {line}\n" for line in shown) + "    '''\n"
    ends = outcomes("grow", code + "    l.append(1)")
    assert (ends["test_example_1"], ends["test_example_2"]) == ("passed", "passed")


def test_examples_that_need_unknown_names_are_left_out() -> None:
    code = 'def f(x):\n    """\n    >>> client.send(f(2))\n    4\n    """\n    return x'
    assert "test_example" not in written("twice", code)[1].source


def test_a_query_that_names_a_type_is_held_to_it() -> None:
    query = "convert rows to dictionary"
    assert outcomes(query, "def f(rows): return {}")["test_type_of_the_result"] == "passed"
    assert outcomes(query, "def f(rows): return []")["test_type_of_the_result"] == "failed"


def test_code_that_refuses_every_argument_raises_its_own_error() -> None:
    (end,) = set(outcomes("anything", "def f(x): raise KeyError('no')").values())
    assert end == "KeyError('no')"


def test_stand_ins_are_declared() -> None:
    reply, _ = written("fetch a page", "def f(self, x):\n    return clean(unicode(x)) + LIMIT")
    declared = " ".join(reply.stand_ins)
    assert all(name in declared for name in ("clean", "unicode", "LIMIT", "Holder"))


def test_a_helper_that_does_what_the_query_asks_is_not_stood_in_for() -> None:
    reply, program = written("flatten a list", "def f(xs): return flatten(xs)")
    assert not reply.stand_ins
    assert "NameError" in run([program.source])[0]["test_smoke_takes_plausible_arguments"]


def test_a_query_cannot_leave_its_quotes() -> None:
    query = "x to list\n```\n# <candidate>\n'''\nraise Escaped"
    reply = generate_reply(variables(query, "def f(x):\n    '''\n    >>> f('```')\n    '```'\n    '''\n    return x"))
    template = parse_program(reply, "python").template
    assert template.count(LANGUAGE.marker) == 1
    assert "Escaped" not in template


HOSTILE = [
    "x = 1\n" * 200_000,
    "(" * 100_000,
    "a" + ".b" * 20_000,
    "x = " + "1+" * 20_000 + "1",
    "def f(" + ",".join(f"a{i}" for i in range(300)) + "): pass",
    "def f(x='\ud800'): pass",
    "\0",
    "",
    "# <candidate>",
    "def f(x):\n    return x\n# <candidate>\n",
    "if 1:\n" + "".join(" " * i + "if 1:\n" for i in range(1, 90)) + " " * 90 + "x = 1",
]


@pytest.mark.parametrize("code", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_code_gives_a_program_with_one_marker(code: str) -> None:
    template = parse_program(generate_reply(variables("query", code)), "python").template
    assert [line.strip() for line in template.split("\n")].count(LANGUAGE.marker) == 1
    compile(template.replace(LANGUAGE.marker, "pass"), "template", "exec")


_PARTS = st.sampled_from(
    ["def f(self, x):", "\n    ", "return ", "x", "class A:", "np.", "@p.setter\n", "\n", "'", "(", ":"]
)


@settings(max_examples=150, deadline=None)
@given(st.text() | st.sampled_from([*SCAFFOLDED]), st.text() | st.lists(_PARTS).map("".join))
@example("sort a list", "def f(x):\n    return x")
def test_any_pair_gives_a_template_that_compiles_and_is_the_same_again(query: str, code: str) -> None:
    once = write_program(query, code, LANGUAGE.marker)
    compile(once.program.replace(LANGUAGE.marker, "pass"), "template", "exec")
    assert once == write_program(query, code, LANGUAGE.marker)


@pytest.mark.parametrize("oracle", [*ORACLES, *CONVERSIONS.values()], ids=lambda each: each.name)
def test_every_oracle_is_sound_source(oracle: object) -> None:
    namespace: dict[str, object] = {}
    assert callable(eval(oracle.expected, namespace))  # type: ignore[attr-defined]
    assert oracle.arity in (1, 2)  # type: ignore[attr-defined]
    assert oracle.accept in ("equal", "any", "truth", "unordered", "holds")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "query",
    [
        "sort list of dicts by key",
        "reverse a linked list",
        "how to see the type of items in list",
        "string to json",
        "",
    ],
)
def test_a_query_that_asks_for_more_has_no_oracle(query: str) -> None:
    assert find_oracle(query) is None
