"""Inspection determines whether a snippet parses and what a program must define around it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SnippetTooLarge
from agent.languages.python.language import PythonLanguage
from agent.languages.python.source import PYTHON_VERSION, has_lost_newlines
from agent.types import Cause

python = PythonLanguage()


def problem(code: str) -> str:
    problem = python.inspect(code).problem
    assert problem is not None
    return problem


def advice(code: str) -> str:
    snippet = python.inspect(code)
    assert snippet.problem is None
    return "\n".join(snippet.advice)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def f(x):\n    print x", "print statement"),
        ("exec code in space", "exec statement"),
        ("try:\n    a()\nexcept E, e:\n    pass", "except X, e"),
        ("mode = 0777", "octal literal such as 0777"),
        ("x = 10L", "long literal such as 10L"),
        ("x = `y`", "backticks"),
        ("x = a <> b", "<> operator"),
        ("raise E, 'text'", "raise X, value"),
        ("def f(a, (b, c)):\n    pass", "tuple parameter"),
        ("x = ur'text'", "ur'' literal"),
        ("if a:\n\tx()\n        y()", "tabs mixed with spaces"),
    ],
)
def test_python_2_syntax_is_named(code: str, name: str) -> None:
    assert f"Python 2 syntax: {name} (" in problem(code)


@pytest.mark.parametrize(
    "code", ["raise E(a, b c)", "```python\nx = 1\n```", "x = = 1", "def f(:\n    pass", "x = 10Q"]
)
def test_other_errors_are_not_reported_as_python_2(code: str) -> None:
    assert "Python 2" not in problem(code)


OLDER_THAN_3_12 = pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python parses the code")
NEWER = [
    *(
        pytest.param(code, marks=OLDER_THAN_3_12)
        for code in (
            'def f(d):\n    return f"{d["a"]}"',
            "x = f'{', '.join(y)}'",
            'x = f"{"\\n".join(y)}"',
            "x = f'{y  # a comment\n}'",
            "def first[T](a: list[T]) -> T:\n    return a[0]",
            "class Stack[T](list):\n    pass",
            "type Name = str | None",
        )
    ),
    "try:\n    a()\nexcept KeyError, IndexError:\n    pass",
    "try:\n    a()\nexcept A, b.C:\n    pass",
    "x = t'Hello {name}'",
]


@pytest.mark.parametrize("code", NEWER)
def test_code_for_a_later_python_is_not_the_cause_of_its_failure(code: str) -> None:
    snippet = python.inspect(code)
    assert (snippet.cause, "Python 2 syntax" in problem(code)) == (Cause.DEPENDENCY, False)
    assert "(Python 3.1" in problem(code)


@pytest.mark.parametrize(
    "code",
    ["x = = 1", "def f(:\n    pass", "x = f'{a!}'", "x = f'{a}' b", "type = = 1", "except A, e:", "print 'x'"],
)
def test_broken_code_and_python_2_code_are_the_cause_and_the_problem_states_the_version(code: str) -> None:
    assert python.inspect(code).cause is Cause.SNIPPET
    assert f"Python {PYTHON_VERSION}" in problem(code)


def test_an_error_has_a_line_number() -> None:
    assert problem("x = 1\n\ny = = 2").endswith(", line 3")


def test_lost_newlines_are_distinguished_from_other_errors() -> None:
    flat = "def flatten(x): res = [] for k in x: res.extend(k) return res"
    assert has_lost_newlines(flat)
    assert "newlines" in problem(flat)
    assert not has_lost_newlines("def f(x): return [k for k in x if k is not None and k > 0]")
    assert not has_lost_newlines(flat.replace(" for", "\n for"))
    assert not has_lost_newlines("how do I flatten a list of lists in plain python code")


def test_an_indented_snippet_has_its_own_error() -> None:
    assert "indented" in problem("\n    def f():\n        return 1\n")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = '\x00'", "null bytes"),
        ("x = '\ud800'", "surrogates"),
        ("(" * 5_000 + ")" * 5_000, "too many nested parentheses"),
        ("", "no statement"),
        ("from __future__ import division", "no statement"),
        ("from __future__ import no_such_thing\nx = 1", "not defined"),
        ("import os\nfrom __future__ import division", "beginning of the file"),
        ("def f(a, a):\n    pass", "duplicate argument"),
    ],
)
def test_hostile_text_becomes_a_problem(code: str, words: str) -> None:
    assert words in problem(code)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f():\n    return 1\n" + "#" * 100_000, "100,022 .* 100,000"),
        ("x = 1" + " + 1" * 1_500, "nested too deeply"),
        ("a" + ".b" * 40_000, "nested too deeply"),
    ],
)
def test_code_beyond_the_limits_raises_too_large(code: str, words: str) -> None:
    with pytest.raises(SnippetTooLarge, match=words):
        python.inspect(code)


@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from(list("\0\ud800\n\t\f ()[]{}'\"\\#:=f@"))), max_size=80)
)
def test_inspecting_never_raises(code: str) -> None:
    snippet = python.inspect(code)
    assert snippet.problem is None or isinstance(snippet.problem, str)


@pytest.mark.parametrize("code", ["x=1\n" * 4_000, 'x = """' + "\n" * 99_000 + '"""', "x = 1" + " + 1" * 900])
def test_large_and_deep_code_within_the_limits_is_inspected(code: str) -> None:
    assert python.inspect(code).problem is None


class TestAdvice:
    def test_a_plain_function_needs_no_advice(self) -> None:
        assert python.inspect("import os\ndef f(a, *b, **c):\n    return os.path.join(a, *b)").advice == ()

    def test_advice_defines_python_2_names(self) -> None:
        text = advice("def f(x):\n    return unicode(x) + str(xrange(3)) + reduce(cmp, x)")
        assert "`unicode`, `xrange`, `reduce`, `cmp`" in text
        assert "`unicode = str`; `xrange = range`; `from functools import reduce`" in text

    def test_a_bound_name_is_not_a_python_2_name(self) -> None:
        assert python.inspect("def f(file, long=1):\n    return file, long").advice == ()

    @pytest.mark.parametrize(
        ("code", "name"),
        [
            ("def f(a):\n    return string.letters + a", "string.letters"),
            ("import itertools\ndef f(a):\n    return itertools.izip(a)", "itertools.izip"),
        ],
    )
    def test_advice_names_attributes_that_python_3_removed(self, code: str, name: str) -> None:
        assert f"`{name}`" in advice(code)

    def test_advice_mentions_print_to_a_file(self) -> None:
        assert "print >>file" in advice("import sys\ndef f(x):\n    print >>sys.stderr, x")

    def test_tabs_are_kept_at_a_marker_indented_with_spaces(self) -> None:
        code = "def f(self):\n\tif self:\n\t\treturn 1\n"
        assert "tabs" in advice(code)
        program = python.insert("class A:\n    # <candidate>\n\ndef test_a():\n    pass\n", python.inspect(code))
        assert "    def f(self):\n    \tif self:\n    \t\treturn 1" in program.source

    def test_advice_lists_free_names(self) -> None:
        text = advice(
            "def f(a):\n    with open(a) as b:\n        c = [d for d in b]\n    try:\n        import e\n"
            "    except OSError as g:\n        return helper(g, e)\n    return np.sum(c), len(a), __name__"
        )
        assert "`helper`, `np`." in text

    def test_advice_puts_a_method_into_a_class_with_its_attributes(self) -> None:
        text = advice(
            "def f(self, n):\n    self.seen = n\n    self.total += n\n    return self.items[n], self.seen, self.f"
        )
        assert "`f`" in text
        assert "`total`, `items`." in text

    def test_advice_mentions_properties(self) -> None:
        assert "`size` is a property" in advice("@property\ndef size(self):\n    return 1")
        assert "the property `size`" in advice("@size.setter\ndef size(self, v):\n    pass")
        assert "is a property" in advice("@property\ndef size():\n    return 1")

    def test_advice_mentions_coroutines_and_generators(self) -> None:
        assert "asynchronous `f`" in advice("async def f():\n    pass")
        assert "`f`: a generator" in advice("def f():\n    yield 1")
        assert python.inspect("def f():\n    def g():\n        yield 1\n    return list(g())").advice == ()

    def test_advice_puts_a_fragment_into_a_function_or_loop(self) -> None:
        assert "outside function" in advice("x = 1\nreturn x")
        assert "outside loop" in advice("if x:\n    break")
