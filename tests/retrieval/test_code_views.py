import ast
import json
import os
import re
from pathlib import Path

import pytest

from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.languages.python.spans import extract_view
from agent.retrieval.code_views import apply_code_view

VIEWS = ("no-docstring", "signature", "body")

CODE = '''\
@cached(key=":")  # why: it is slow
def größe(a,  # note: in µm
          b=lambda x: x, *, c: "d: e" = {1: 2}) -> dict[str, int]:  # here
    """Größe.

    Longer.
    """
    # what it does
    def inner():
        "inner documentation"
        return "ß: no documentation"
    "a text that documents nothing"

    return inner, a
'''


def view_lines(code, name):
    return extract_view(code, name).split("\n")


def test_no_docstring_keeps_everything_else_unchanged():
    lines = CODE.split("\n")

    assert view_lines(CODE, "no-docstring") == [*lines[:3], *lines[7:9], *lines[10:-1]]


def test_a_signature_extends_from_the_decorators_to_the_colon():
    assert view_lines(CODE, "signature") == [*CODE.split("\n")[:2], CODE.split("\n")[2].removesuffix("  # here")]


def test_a_body_includes_comments_and_inner_functions():
    lines = CODE.split("\n")

    assert view_lines(CODE, "body") == ["  # here", *lines[7:9], *lines[10:-1]]


def test_the_signature_of_a_class_includes_those_of_its_members():
    code = (
        'class A(B, m=C):\n    "doc"\n    x: int = 1\n\n    async def f(self): "doc"; return 1\n\n    class D: pass\n'
    )

    assert view_lines(code, "signature") == ["class A(B, m=C):", "    async def f(self):", "    class D:"]
    assert extract_view(code, "body").split() == ["x:", "int", "=", "1", ";", "return", "1", "pass"]
    assert "doc" not in extract_view(code, "no-docstring")


@pytest.mark.parametrize(
    ("code", "without", "signature", "body"),
    [
        ("def f(x): return x", "def f(x): return x", "def f(x):", " return x"),
        ("def f(): 'doc'", "def f(): ", "def f():", " "),
        ('def f():\n    """doc"""', "def f():", "def f():", ""),
        ("def f():\n\t('doc'  # a\n\t 'more') \n\treturn 1", "def f():\n\treturn 1", "def f():", "\treturn 1"),
        ("def f(x)\\\n  : return x", "def f(x)\\\n  : return x", "def f(x)\\\n  :", " return x"),
        ("def f(): f'{x}'", "def f(): f'{x}'", "def f():", " f'{x}'"),
        ("x = 1\r\ny = 2", "x = 1\ny = 2", "", "x = 1\ny = 2"),
        ("'doc'\r\nx = 'ü'; y = 1", "x = 'ü'; y = 1", "", "x = 'ü'; y = 1"),
        (
            "\ufeffdef f(): # :\n\x0c  'ü'; return 1",
            "def f(): # :\n\x0c  ; return 1",
            "def f():",
            " # :\n\x0c  ; return 1",
        ),
        ("", "", "", ""),
    ],
)
def test_unusual_layouts_are_split_correctly(code, without, signature, body):
    assert extract_view(code, "no-docstring") == without
    assert extract_view(code, "signature") == signature
    assert extract_view(code, "body") == body


@pytest.mark.parametrize("code", ["print 'x'", "  x = 1", "x = '\ud800'", "def f(:", "\0", "(" * 10_000])
@pytest.mark.parametrize("name", VIEWS)
def test_code_that_does_not_parse_has_no_view(code, name):
    assert extract_view(code, name) is None


def make_benchmark(*codes, language="python"):
    return Benchmark("small", {}, {str(number): code for number, code in enumerate(codes)}, {}, language=language)


def test_unparsable_snippets_stay_complete_and_are_counted_like_empty_ones():
    texts, notes = apply_code_view(
        make_benchmark("def f(): return 1", "print 'x'", "x = 1"), "signature", lambda *_: None
    )

    assert texts == ["def f():", "print 'x'", ""]
    assert [re.search(r"1 of 3.*(parse|empty)", note)[1] for note in notes] == ["parse", "empty"]


JAVASCRIPT = """\
/** Add.
 * @param a a number
 */
function add(a, /* too */ b) {
  // why
  return a + b;
}
class A { /** Text. */ text(c) { return "/** no documentation */"; } }"""


@pytest.mark.parametrize("language", ["javascript", "typescript"])
@pytest.mark.parametrize(
    ("view", "lines"),
    {
        "no-docstring": [*JAVASCRIPT.split("\n")[3:7], 'class A {  text(c) { return "/** no documentation */"; } }'],
        "signature": ["function add(a,  b) { ... }", "class A {  text(c) { ... } }"],
        "body": ["{", *JAVASCRIPT.split("\n")[4:7], 'class A {  { return "/** no documentation */"; } }'],
    }.items(),
)
def test_javascript_has_views(language, view, lines):
    texts, notes = apply_code_view(make_benchmark(JAVASCRIPT, language=language), view, lambda *_: None)

    assert (texts, notes) == (["\n".join(lines)], ())


@pytest.mark.parametrize("view", VIEWS)
def test_unparsable_javascript_stays_complete(view):
    texts, notes = apply_code_view(make_benchmark("f(", language="javascript"), view, lambda *_: None)

    assert (texts, len(notes)) == (["f("], 1)


def test_sql_has_one_view():
    benchmark = make_benchmark("-- All.\nSELECT 1", language="sql")

    assert apply_code_view(benchmark, "no-docstring", lambda *_: None) == (["SELECT 1"], ())
    with pytest.raises(UsageError, match="sql"):
        apply_code_view(benchmark, "signature", lambda *_: None)


def test_views_of_other_languages_raise_usage_error():
    with pytest.raises(UsageError, match=r"body.*small.*java"):
        apply_code_view(make_benchmark("int x;", language="java"), "body", lambda *_: None)


@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_real_functions_lose_only_their_docstrings():
    compared = 0
    for line in Path(os.environ["AGENT_REAL_DATA"], "cosqa_search_codes_6267.jsonl").read_text("utf-8").splitlines():
        code = json.loads(line)["code"]
        parts = [extract_view(code, name) for name in VIEWS]
        if parts[0] is None:
            continue
        without, signature, body = ("".join(part.split()) for part in parts)
        assert signature + body == without
        expected = ast.parse(code)
        if _remove_docstrings(expected):
            assert ast.dump(ast.parse(parts[0])) == ast.dump(expected)
            compared += 1
    assert compared > 6000


def _remove_docstrings(tree):
    """Remove docstrings, and return whether every body has a statement left."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
            if not node.body:
                return False
    return True
