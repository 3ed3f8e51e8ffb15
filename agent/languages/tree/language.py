"""The base class of languages with a tree-sitter grammar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

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
from agent.languages.tree import outline
from agent.languages.tree.insertion import (
    MAX_CHARACTERS,
    Fragment,
    Placement,
    find_surrounding_names,
    iterate_fragments,
    locate_snippet,
    normalise,
    place_snippet,
)
from agent.languages.tree.mutants import create_mutants
from agent.languages.tree.syntax import (
    Syntax,
    add_entries,
    apply_edits,
    find_bindings,
    find_error,
    find_used_names,
    is_callback,
    iterate_functions,
    iterate_names,
    parse,
)
from agent.sandbox.base import SENTINEL, SandboxJob
from agent.types import Cause

if TYPE_CHECKING:
    from tree_sitter import Node

Problem = tuple[str, Cause]


class TreeLanguage(Language, ABC):
    """A language that is described by the tables of a grammar.

    A subclass defines `syntax`, `get_command` and `report`, and the hooks that it needs. Test cases are the program's
    functions named `test_…`.
    """

    syntax: Syntax
    cases_wanted: str
    """How to write test cases, for a program that has none."""

    def check_support(self) -> None:
        """Check that the grammar is installed."""
        super().check_support()
        parse("", self.syntax.grammar)

    @abstractmethod
    def get_command(self) -> tuple[str, ...]:
        """Return the command of the runner."""

    def find_problem(self, code: str, fragment: Fragment | None) -> Problem | None:
        """Return why a snippet cannot be tested, and the cause. `fragment` is None if the snippet does not parse."""
        if fragment is not None:
            return None
        line = find_error(parse(code, self.syntax.grammar))
        reason = "it contains no statement" if line is None else f"it does not parse as {self.name}, line {line}"
        return reason, Cause.SNIPPET

    def advise(self, fragment: Fragment) -> Iterator[str]:  # noqa: ARG002
        """Iterate over sentences for the test generator."""
        return iter(())

    def check(self, placement: Placement) -> None:
        """Raise `MalformedProgram` for a program that cannot run or whose cases cannot fail."""

    def iterate_cases(self, placement: Placement) -> Iterator[str]:
        """Iterate over the names of the test cases outside the snippet."""
        for node in placement.root.named_children:
            for name, binding in find_bindings([node], self.syntax).items():
                if name.startswith("test_") and self._is_function(binding) and not placement.is_of_snippet(binding):
                    yield name

    def build_options(self, placement: Placement) -> dict[str, str]:  # noqa: ARG002
        """Return options for the runner."""
        return {}

    def find_imports(self, placement: Placement) -> Iterable[str]:  # noqa: ARG002
        """Return the packages that a program imports."""
        return ()

    def inspect(self, code: str) -> Snippet:
        code = normalise(code)
        if len(code) > MAX_CHARACTERS:
            raise SnippetTooLarge(f"the snippet has {len(code):,} characters; the limit is {MAX_CHARACTERS:,}")
        fragment = next(iterate_fragments(code, self.syntax), None)
        if (problem := self.find_problem(code, fragment)) is not None:
            return Snippet(code, problem[0], cause=problem[1])
        return Snippet(code, advice=tuple(self.advise(fragment)) if fragment is not None else ())

    def insert(self, template: str, snippet: Snippet) -> Program:
        if snippet.problem is not None:
            raise MalformedProgram(f"the candidate cannot be tested: {snippet.problem}")
        placement = place_snippet(template, snippet.code, self.syntax, self.marker)
        self.check(placement)
        cases = tuple(self.iterate_cases(placement))
        self._check_cases(cases, placement)
        lines = placement.lines
        return Program(
            template=template,
            source=placement.source,
            first_line=lines[0],
            last_line=lines[-1],
            cases=cases,
            imports=tuple(self.find_imports(placement)),
            options={"first_line": str(lines[0]), "last_line": str(lines[-1]), **self.build_options(placement)},
            stand_ins=tuple(self._iterate_stand_ins(placement, cases)),
        )

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        return SandboxJob(
            harness="",
            program=program.source,
            cases=program.cases,
            options=program.options,
            environment=environment,
            timeout=timeout,
            argv=self.get_command(),
        )

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob | None:
        """Return a job in which the snippet's functions record their entry and raise, or None without functions.

        If all functions are callbacks, they do so while the snippet is loaded as well.
        """
        placement = self.find_placement(program)
        edits = add_entries(placement.nodes, self.syntax)
        if not edits:
            return None
        functions = [node for node, _ in iterate_functions(placement.nodes, self.syntax)]
        mode = "eager" if all(is_callback(node, self.syntax) for node in functions) else "1"
        job = self.job(program, environment=environment, timeout=timeout)
        return replace(job, program=apply_edits(program.source, edits), options={**job.options, SENTINEL: mode})

    def outline(self, source: str, limit: int = 1_000_000) -> Iterable[FoundFunction]:
        return outline.find_functions(normalise(source), limit, self.syntax)

    def signature(self, snippet: Snippet) -> str | None:
        return outline.write_signature(snippet.code, self.syntax)

    def extract_view(self, code: str, name: CodeView) -> str | None:
        """Return a part of a snippet, or None if the snippet does not parse."""
        return outline.extract_view(normalise(code), name, self.syntax)

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:
        return tuple(islice(create_mutants(snippet.code, self.syntax), limit))

    def find_placement(self, program: Program) -> Placement:
        """Parse a program and find its snippet.

        Raises:
            MalformedProgram: the program comes from imported evidence, and its lines do not contain a snippet.
        """
        placement = locate_snippet(program.source, range(program.first_line, program.last_line + 1), self.syntax)
        if not placement.nodes:
            raise MalformedProgram(f"lines {program.first_line} to {program.last_line} contain no snippet")
        return placement

    def _is_function(self, binding: Node) -> bool:
        value = binding.child_by_field_name("value")
        return (binding if value is None else value).type in self.syntax.functions

    def _check_cases(self, cases: tuple[str, ...], placement: Placement) -> None:
        check_cases(cases, self.cases_wanted)
        names = {name for node in placement.nodes for name in iterate_names(node, self.syntax)}
        for name in cases:
            if name in names and name.startswith("test_"):
                raise MalformedProgram(f"the candidate contains the name `{name}`: rename the test case")

    def _iterate_stand_ins(self, placement: Placement, cases: tuple[str, ...]) -> Iterator[str]:
        around = find_surrounding_names(placement, self.syntax)
        for name in find_used_names(placement.nodes, self.syntax):
            if name in around and name not in cases and not self.is_import(around[name]):
                yield name

    def is_import(self, binding: Node) -> bool:  # noqa: ARG002
        """Return whether a node that binds a name imports a module."""
        return False
