"""JavaScript and TypeScript: what is refused, advised and imported, and how Node runs programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.languages.base import MalformedProgram
from agent.languages.javascript.language import JavaScriptLanguage, TypeScriptLanguage
from agent.types import Cause, Status
from tests.languages.javascript.direct import run_program
from tests.languages.javascript.programs import ASSERT, ESM, GOOD, MARKER, T

JAVASCRIPT, TYPESCRIPT = JavaScriptLanguage(), TypeScriptLanguage()
TYPED = (
    f"import assert from 'node:assert';\n{MARKER}test('f', () => {{ const x: number = f(2); assert.equal(x, 3); }});\n"
)
LAZY = f"{ASSERT}{MARKER}async function test_a() {{ await import('@a/b'); assert.equal(f(2), 3); }}\n"
FUNCTION = "function f(x: number): number { return x + 1; }"
needs_types = pytest.mark.skipif("AGENT_TEST_NODE" in os.environ, reason="the chosen Node may not remove types")


@needs_types
@pytest.mark.bwrap
@pytest.mark.node
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("export function f<T extends number>(x: T): number { return (x as number) + 1; }", "passed"),
        ("interface A { a: number }\nfunction f(x: number, y?: A): number { return x! + 1; }", "passed"),
        ("abstract class A { abstract g(): void; f(x: number) { return x + 1; } }\nclass B extends A { g(): void {} }\n"
         "const f = (x: number) => new B().f(x);", "passed"),
        ("declare enum E { A }\ndeclare namespace N { let x: any }\nconst f = <T,>(x: T) => (x as any) + 1;", "passed"),
        ("import type { A } from 'a';\nfunction f(x: string): any;\nfunction f(x: any): number { return x + 1; }",
         "passed"),
        ("const f = (x: number): number => x;", "failed"),
    ],
)  # fmt: skip
def test_node_removes_types(code: str, status: str) -> None:
    assert run_program(TYPESCRIPT, TYPESCRIPT.insert(TYPED, TYPESCRIPT.inspect(code)))[1].status == status


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


@pytest.mark.bwrap
@pytest.mark.node
@pytest.mark.parametrize(
    ("template", "load"), [(T, "require('@a/b')"), (ESM, "require('@a/b')"), (ESM, "await import('@a/b')"), (LAZY, "0")]
)
def test_programs_import_packages_of_their_environment(template: str, load: str, tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@a" / "b"
    package.mkdir(parents=True)
    (package / "index.js").write_text("exports.one = 1;")
    code = f"const {{ one = 1 }} = {load};\nfunction f(x) {{ return x + one; }}"
    program = JAVASCRIPT.insert(template, JAVASCRIPT.inspect(code))
    assert program.imports == ("@a/b",)
    result, report = run_program(JAVASCRIPT, program)
    assert (report.cause, JAVASCRIPT.missing(program, result)) == (Cause.DEPENDENCY, ("@a/b",))
    assert run_program(JAVASCRIPT, program, str(tmp_path))[1].status is Status.PASSED


@pytest.mark.bwrap
@pytest.mark.node
def test_a_signal_does_not_open_the_inspector() -> None:
    code = f"process.kill(process.pid, 'SIGUSR1');\n{GOOD}"
    result, report = run_program(JAVASCRIPT, JAVASCRIPT.insert(T, JAVASCRIPT.inspect(code)))
    assert (report.status, result.stderr) == (Status.PASSED, "")


@pytest.mark.bwrap
@pytest.mark.node
def test_programs_see_the_names_of_a_file() -> None:
    code = f"""if (typeof fs !== 'undefined' || process.argv.length !== 2 || process.execArgv.length) throw 1;
if (!process.execPath.endsWith('node') || require.main === module || crypto.createHash) throw 2;
{GOOD}"""
    assert run_program(JAVASCRIPT, JAVASCRIPT.insert(T, JAVASCRIPT.inspect(code)))[1].status is Status.PASSED


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
    code = "import a from '@x/y/z';\nexport * from 'b/c';\nconst d = require('d'), e = import('./e'), f = g(h, fs, d);"
    template = f"{ASSERT}import fs from 'node:fs';\nimport os from 'os/promises';\nconst h = 1;\nfunction g() {{}}\n"
    program = JAVASCRIPT.insert(f"{template}{MARKER}function test_a() {{ assert.ok(f); }}", JAVASCRIPT.inspect(code))
    assert program.imports == ("@x/y", "b", "d")
    assert program.stand_ins == ("g", "h")
