"""Support for Python, with `test_*` functions and unittest classes as tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.errors import SnippetTooLarge
from agent.languages.base import FoundFunction, Language, MalformedProgram, Mutation, Program, Snippet
from agent.languages.python import cases, dependencies, in_module
from agent.languages.python.functions import find_functions
from agent.languages.python.insertion import MARKER, place_snippet
from agent.languages.python.inspection import examine
from agent.languages.python.mutants import create_mutants, reformat
from agent.languages.python.reporting import PythonBlame
from agent.languages.python.source import PYTHON_VERSION, NewerSyntax, TooLarge, Unparsable, normalise
from agent.languages.python.spans import extract_view
from agent.languages.reporting import build_report
from agent.sandbox.base import SENTINEL, RunResult, SandboxJob
from agent.sandbox.dependencies.imports import find_requirement
from agent.sandbox.inside import read_source
from agent.types import Cause, TestReport


class PythonLanguage(Language):
    """Python 3 as a language for snippets and test programs."""

    name = "python"
    fence = "python"
    suffixes = (".py",)
    marker = MARKER
    packages = "pypi"

    def inspect(self, code: str) -> Snippet:
        """Parse a snippet, and collect advice for the test generator."""
        code = normalise(code)
        try:
            problem, advice = examine(code)
        except TooLarge as error:
            raise SnippetTooLarge(f"the snippet is too large: {error}") from error
        except Unparsable as error:
            problem = str(Unparsable(f"{error.reason} (parsed by Python {PYTHON_VERSION})", error.line))
            return Snippet(code, problem, cause=Cause.DEPENDENCY if isinstance(error, NewerSyntax) else Cause.SNIPPET)
        return Snippet(code, problem, advice)

    def insert(self, template: str, snippet: Snippet) -> Program:
        """Replace the marker in a program with the snippet, without changing the snippet."""
        if snippet.problem is not None:
            raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
        placement = place_snippet(template, snippet.code)
        return cases.build_program(template, placement, {}, cases.find_stand_ins(placement))

    build_probe = staticmethod(in_module.build_probe)
    read_module = staticmethod(in_module.read_module)
    insert_in_module = staticmethod(in_module.insert_in_module)

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        """Return the sandbox job for a program."""
        return SandboxJob(
            harness=read_source("python_harness"),
            program=program.source,
            cases=program.cases,
            options=program.options,
            environment=environment,
            timeout=timeout,
        )

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob | None:
        """Return a job in which the snippet's functions raise an exception, or None if the snippet has no functions."""
        if not cases.has_functions(program):
            return None
        job = self.job(program, environment=environment, timeout=timeout)
        return replace(job, options={**job.options, SENTINEL: "1"})

    def report(self, program: Program, result: RunResult) -> TestReport:
        """Return the test report of a run: the outcomes of the cases, the status and the cause."""
        try:
            return build_report(program, result, PythonBlame(program))
        except Unparsable as error:
            raise MalformedProgram(str(error)) from error

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:
        """Return the import names to install, or an empty tuple if none was missing in the run."""
        return dependencies.find_missing_modules(program, result)

    def requirement(self, import_name: str) -> str | None:
        """Return the requirement that provides an import name, or None if the requirement is unknown."""
        return find_requirement(import_name)

    def outline(self, source: str, limit: int = 1_000_000) -> Iterable[FoundFunction]:
        """Find the functions and methods of a source file, in order."""
        return find_functions(source, limit)

    extract_view = staticmethod(extract_view)

    reformat = staticmethod(reformat)

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:
        """Return mutants: first replacements that cannot be right, then copies of the snippet with small changes."""
        return create_mutants(snippet.code, limit)
