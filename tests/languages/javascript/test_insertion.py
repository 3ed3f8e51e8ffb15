"""Snippets are inserted unchanged, and do not change the program around them."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import SnippetTooLarge
from agent.languages.base import MalformedProgram
from agent.languages.javascript.insertion import MAX_CHARACTERS, iterate_fragments, locate_snippet
from agent.languages.javascript.inspection import find_introspection
from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.languages.javascript.syntax import describe_shape, find_error, parse

JAVASCRIPT, TYPESCRIPT = JavaScriptLanguage(), TypeScriptLanguage()
MARKER = JAVASCRIPT.marker
AFTER = "\nfunction test_a() {}\n"
WRAPPERS = (
    f"{MARKER}{AFTER}",
    f"class A {{\n{MARKER}\n}}{AFTER}",
    f"x = {{\n{MARKER}\n}};{AFTER}",
    f"x = (\n{MARKER}\n);{AFTER}",
)
STATEMENT, CLASS, OBJECT, EXPRESSION = WRAPPERS
TOKENS = [
    "const", "let", "x", "y", "f", "(", ")", "{", "}", "[", "]", ";", ",", ".", "=>", "=", "+", "++", "-", "/", "*",
    "`", "${", "'a'", "1", "/a/", "//", "/*", "*/", "<!--", ":", "?", "#", "@", "function", "class", "async", "await",
    "return", "get", "static", "new", "if", "else", "for", "yield", "import", "export", "...", "\\", "#!",
]  # fmt: skip


def insert(template: str, code: str, language: JavaScriptLanguage = JAVASCRIPT) -> str | None:
    """Return the program, or None if it is refused."""
    snippet = language.inspect(code)
    if snippet.problem is not None:
        return None
    try:
        return language.insert(template, snippet).source
    except MalformedProgram:
        return None


@pytest.mark.parametrize(
    ("template", "code", "is_inserted"),
    [
        (STATEMENT, "function f() {}", True),
        (STATEMENT, "function f() {}\r\n\r\n// end", True),
        (f"const a = 1\n{STATEMENT}", "const b = 2", True),
        (f"const a = 1\n{STATEMENT}", "(function () {})()", False),  # a call of 1
        (f"const a = 1\n{STATEMENT}", "[1].map(f)", False),
        (f"const a = 1\n{STATEMENT}", "`text`", False),
        (f"const a = 1\n{STATEMENT}", "/x/.test(a)", False),
        (f"const a = 1;\n{STATEMENT}", "(function () {})()", True),
        (f"{MARKER}\n(0);{AFTER}", "const f = x", False),
        (f"{MARKER}\n++x;{AFTER}", "const f = x", True),
        (f"{MARKER}\nelse g();{AFTER}", "if (a) f();", False),
        (f"if (a)\n{STATEMENT}", "f(); g();", False),
        (f"if (a) {{\n{MARKER}\n}}{AFTER}", "f(); g();", True),
        (f"return_\n{STATEMENT}", "++x", True),
        (f"const x = 1;\n{STATEMENT}", "const f = x => x;", True),
        (f"async () => {{\n{MARKER}\n}};{AFTER}", "await f();", True),
        (f"`\n{MARKER}\n`;{AFTER}", "f();", False),
        (f"/*\n{MARKER}\n*/{AFTER}", "f();", False),
        (f"'use strict';\n{STATEMENT}", "f();", True),
        (f"{STATEMENT}// done", "f(); // why", True),
        (f"{MARKER}\n{STATEMENT}", "f();", False),
        (f"x; {STATEMENT}", "f();", False),
        (AFTER, "f();", False),
        (CLASS, "#a = 1;\nf() { return this.#a; }", True),
        (CLASS, "constructor() { super(); }", True),
        (CLASS, "f() {}\n}\nclass B {", False),
        (f"class A {{\n{MARKER}\n*g() {{}}\n}}{AFTER}", "a = 1", False),  # a product
        (CLASS, "get x() { return 1; }\nstatic async *g() {}", True),
        (f"class A {{\nget\n{MARKER}\n}}{AFTER}", "x() {}", False),  # a getter
        (f"class A {{\nstatic\n{MARKER}\n}}{AFTER}", "x() {}", False),
        (f"class A {{\nasync\n{MARKER}\n}}{AFTER}", "x() {}", False),
        (OBJECT, "a: 1,\nb() {},", True),
        (OBJECT, "a: 1\n}, y = {", False),
        (EXPRESSION, "function (x) { return x; }", True),
        (EXPRESSION, "x => x, y", True),
        (EXPRESSION, "1); (2", False),
        (STATEMENT, "function (x) {}", False),
        (STATEMENT, "import a from 'a';\nexport { a };", True),
        (STATEMENT, "for (;;) {", False),
        (STATEMENT, "const s = 'a\n", False),
        (STATEMENT, "const 変数 = '\u2028', \U0001d4b3 = 1;", True),
        (STATEMENT, "const s = '\ud800';", True),
    ],
)
def test_only_programs_that_leave_the_snippet_unchanged_are_accepted(
    template: str, code: str, is_inserted: bool
) -> None:
    source = insert(template, code)
    assert (source is not None) == is_inserted
    assert source is None or code.replace("\r\n", "\n") in source


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*TOKENS, "\n", " ", ";\n"]), max_size=12).map(" ".join), st.sampled_from(WRAPPERS))
def test_a_snippet_and_the_program_around_it_keep_their_trees(code: str, template: str) -> None:
    for language in (JAVASCRIPT, TYPESCRIPT):
        source, grammar = insert(template, code, language), language.grammars[0]
        if source is None:
            continue
        start = template.index(MARKER)
        assert source == template[:start] + code + template[start + len(MARKER) :]
        rest = parse(source, grammar).named_children[-1]
        assert describe_shape([rest]) == describe_shape([parse(AFTER, grammar).named_children[-1]])
        program = language.insert(template, language.inspect(code))
        sentinel = language.sentinel_job(program, environment=None, timeout=1)
        assert sentinel is None or find_error(parse(sentinel.program, grammar)) is None
        for mutant in language.mutants(language.inspect(code), 20):
            assert next(iterate_fragments(mutant.snippet.code, grammar), None) is not None


@pytest.mark.parametrize("code", ["(" * 50_000, "`${" * 16_000, "<a" * 25_000, "{" * 50_000, "a?b:" * 12_500])
def test_deeply_nested_code_is_judged_without_recursion(code: str) -> None:
    assert JAVASCRIPT.inspect(code).problem


@pytest.mark.parametrize("code", [f"{'(' * 9_000}1{')' * 9_000}", "a;\n" * 16_000, f"x = {'1+' * 24_000}1;"])
def test_large_snippets_are_inserted_and_inspected_in_linear_time(code: str) -> None:
    start = time.process_time()
    source = insert(STATEMENT, code) or ""
    assert find_introspection(locate_snippet(source, range(1, code.count("\n") + 2), JAVASCRIPT.grammars[0])) == ()
    assert time.process_time() - start < 10


def test_snippets_have_a_maximum_length() -> None:
    with pytest.raises(SnippetTooLarge):
        JAVASCRIPT.inspect("x" * (MAX_CHARACTERS + 1))


def test_languages_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(TYPESCRIPT)).inspect("let x: number;").problem is None
