"""JavaScript and TypeScript: what is refused, advised and imported."""

from __future__ import annotations

import pytest

from agent.languages.base import MalformedProgram
from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.types import Cause
from tests.languages.javascript.programs import ASSERT, GOOD, MARKER, TYPED

JAVASCRIPT, TYPESCRIPT = JavaScriptLanguage(), TypeScriptLanguage()
FUNCTION = "function f(x: number): number { return x + 1; }"


@pytest.mark.parametrize(
    "code",
    [
        "enum E { A }",
        "const enum E { A }",
        "namespace N { export const x = 1; }",
        "class A { constructor(private x: number) {} }",
        "@d class A {}",
        "const f = (x: number) => <div>{x}</div>;",
        "import fs = require('fs');",
        f"{FUNCTION}\nexport = f;",
        "const f = (x: any) => <number>x;",
    ],
)
def test_typescript_that_node_cannot_run_is_never_the_fault_of_the_snippet(code: str) -> None:
    snippet = TYPESCRIPT.inspect(code)
    assert snippet.problem
    assert snippet.cause is Cause.DEPENDENCY
    if "div" not in code:
        with pytest.raises(MalformedProgram):
            TYPESCRIPT.insert(f"{TYPED}{code.replace('f', 'other')}", TYPESCRIPT.inspect(FUNCTION))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("#b() { return this.#a + super.f(); }", ("names #a.", "super", "class")),
        ("get: function () {}", ("object",)),
        ("a() {}, b: 1", ("object",)),
        ("function (x) {}", ("expression",)),
        ("return document.title;", ("function", "document")),
        ("#!/bin/node\nf();", ("first line",)),
        ("export const x = await f();", ("import",)),
        ("const f = ({ a, b: [c] }, ...d) => parseInt(a + c + d + e.f);", ("not define: e.",)),
        ("class A {}\nclass B extends A {}", ()),
        (GOOD, ()),
    ],
)
def test_advice_says_where_the_marker_stands(code: str, words: tuple[str, ...]) -> None:
    for language in (JAVASCRIPT, TYPESCRIPT):
        advice = " ".join(language.inspect(code).advice)
        assert bool(advice) == bool(words)
        assert all(word in advice for word in words)


def test_imports_and_stand_ins_are_listed() -> None:
    code = "import a from '@x/y/z';\nexport * from 'b/c';\nconst d = require('d'), e = import('./e'), f = g(h, fs, i);"
    template = f"{ASSERT}import fs from 'node:fs';\nimport 'os/path';\nconst h = i => 1;\nfunction g() {{}}\n"
    program = JAVASCRIPT.insert(f"{template}{MARKER}function test_a() {{ assert.ok(f); }}", JAVASCRIPT.inspect(code))
    assert program.imports == ("@x/y", "b", "d")
    assert program.stand_ins == ("g", "h")
