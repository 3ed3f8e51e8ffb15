"""Mutants, signatures, outlines and versions that record entries."""

from __future__ import annotations

import pytest

from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.sandbox.base import SENTINEL

JAVASCRIPT, TYPESCRIPT = JavaScriptLanguage(), TypeScriptLanguage()
AFTER = "\nfunction test_a() {}\n"
SOURCE = """/** Not of f. */

/**
 * Add one.
 *   @param x a number
 */
export async function f(x) {
  return g(() => x + 1);
}
class A {
  /** Count. */
  get count() {
    return `
  ${this.n}`;
  }
  static #make = () => {
    return new A();
  };
}
  /** A sum. */
  exports.sum = function (a,
    b) {
    return a + b;
  };
A.prototype.clear = function* () {};
const h = (x) => x, i = 2, j = (x) => x;
[1].map((x) => x);
module.exports = { k() {}, l: (x) => x };
export default function () {}
"""


@pytest.mark.parametrize(
    ("code", "mutants"),
    [
        ("const f = (x) => x + 1;", ["const f = (x) => { return; };", "const f = (x) => { return x; };",
         "const f = (x) => { throw new Error('this stand-in always throws'); };", "const f = (x) => x - 1;",
         "const f = (x) => x + 2;"]),
        ("f({ a }, b) { if (a < b) return true; }", ["f({ a }, b) { return; }",
         "f({ a }, b) { throw new Error('this stand-in always throws'); }",
         "f({ a }, b) { if (!(a < b)) return true; }",
         "f({ a }, b) { if (a >= b) return true; }", "f({ a }, b) { if (a < b) return false; }"]),
        ("const { a, b: [c] } = d;", ["var a, c;", "throw new Error('this stand-in always throws');"]),
        ("(function () { g = (x) => x; })()", ["(function () { g = (x) => { return; }; })()",
         "(function () { g = (x) => { throw new Error('this stand-in always throws'); }; })()"]),
        ("class A { constructor(x) { this.x = x; } g(y = 1) {} }", [
         "class A { constructor(x) { this.x = x; } g(y = 1) { return; } }",
         "class A { constructor(x) { this.x = x; } g(y = 1) { return y; } }",
         "class A { constructor(x) { this.x = x; } g(y = 1) { throw new Error('this stand-in always throws'); } }",
         "class A { constructor(x) { this.x = x; } g(y = 2) {} }"]),
    ],
)  # fmt: skip
def test_mutants_are_replacements_and_then_small_changes(code: str, mutants: list[str]) -> None:
    created = JAVASCRIPT.mutants(JAVASCRIPT.inspect(code), 10)
    assert [mutant.snippet.code for mutant in created] == mutants
    assert JAVASCRIPT.mutants(JAVASCRIPT.inspect(code), 2) == created[:2]


@pytest.mark.parametrize(
    ("code", "mode", "sentinel"),
    [
        ("function f() { return 1; }", "1", "function f() { __enterSnippet();  return 1; }"),
        ("(x) => (y) => ({ x });", "1", "(x) => (__enterSnippet(),(y) => (__enterSnippet(),({ x })));"),
        ("[1].map((x) => x)", "eager", "[1].map((x) => (__enterSnippet(),x))"),
        ("(() => { f(); })()", "eager", "(() => { __enterSnippet();  f(); })()"),
        ("const x = 1;", None, None),
    ],
)
def test_each_function_of_the_snippet_records_its_entry(code: str, mode: str | None, sentinel: str | None) -> None:
    program = JAVASCRIPT.insert(JAVASCRIPT.marker + AFTER, JAVASCRIPT.inspect(code))
    job = JAVASCRIPT.sentinel_job(program, environment=None, timeout=1)
    assert (None if job is None else (job.options[SENTINEL], job.program)) == (sentinel and (mode, sentinel + AFTER))


@pytest.mark.parametrize(
    ("code", "signature"),
    [
        ("/** Add. */\nfunction f(x /* int */, y = 1) {\n  // why\n  return x;\n}", "function f(x , y = 1) { ... }"),
        ("const f = (x) => x + 1, g = 2;", "const f = (x) => ..., g = 2;"),
        ("get x() { return () => 1; }", "get x() { ... }"),
        ("f(1);", None),
    ],
)
def test_signatures_contain_neither_bodies_nor_comments(code: str, signature: str | None) -> None:
    assert JAVASCRIPT.signature(JAVASCRIPT.inspect(code)) == signature


def test_an_outline_finds_functions_with_documentation_at_column_0() -> None:
    functions = {function.name: function for function in JAVASCRIPT.outline(SOURCE)}
    lines = SOURCE.split("\n")
    assert [*functions] == ["f", "count", "#make", "sum", "clear", "h", "j", "k", "l"]
    assert functions["f"].docstring == "Add one.\n  @param x a number"
    assert functions["f"].code == "\n".join(lines[6:9]).removeprefix("export ")
    classes = {"f": None, "count": "A", "#make": "A", "sum": None, "clear": "A"}
    assert {name: functions[name].class_name for name in classes} == classes
    assert [functions[name].docstring for name in ("count", "#make", "sum")] == ["Count.", None, "A sum."]
    assert functions["count"].code is None  # the text in the template is indented
    assert functions["#make"].code == "static #make = () => {\n  return new A();\n}"
    assert functions["sum"].code == "exports.sum = function (a,\n  b) {\n  return a + b;\n};"
    assert (functions["sum"].start_line, functions["sum"].end_line) == (21, 24)
    assert functions["h"].code == functions["j"].code == "(x) => x"


@pytest.mark.parametrize("source", ["function (", "x" * 101])
def test_malformed_and_long_sources_have_no_outline(source: str) -> None:
    with pytest.raises(ValueError, match="it"):
        [*JAVASCRIPT.outline(source, 100)]
