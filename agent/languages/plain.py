"""A language that can be read but not run: for pairs that are judged without a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from agent.errors import UnsupportedLanguage
from agent.languages.base import Mutation, Program, Snippet
from agent.sandbox.base import Job, RunResult
from agent.types import TestReport


@dataclass(frozen=True)
class PlainLanguage:
    """Gives prompts a fence; refuses everything that would run code."""

    name: str
    marker: str = ""

    @property
    def fence(self) -> str:
        """Return the info string of a fenced block."""
        return self.name

    def inspect(self, code: str) -> Snippet:
        """Return the snippet unread."""
        return Snippet(code)

    def insert(self, template: str, snippet: Snippet) -> Program:  # noqa: ARG002 - the Language protocol
        """Refuse."""
        self._refuse()

    def signature(self, snippet: Snippet) -> str | None:  # noqa: ARG002
        """Return nothing: what is not read has no signature."""
        return None

    def surroundings(self, scaffold: str, snippet: Snippet) -> str:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def check_correction(self, program: Program, corrected: Program) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def job(self, program: Program, *, environment: str | None, timeout: float) -> Job:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def report(self, program: Program, result: RunResult) -> TestReport:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def requirement(self, import_name: str) -> str | None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:  # noqa: ARG002
        """Return nothing: what cannot be read cannot be changed."""
        return ()

    def universal_mocks(self, snippet: Snippet) -> tuple[Mutation, ...]:  # noqa: ARG002
        """Return nothing, as for `mutants`."""
        return ()

    def varying(self, program: Program) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: no program is ever run."""
        return ()

    def _refuse(self) -> NoReturn:
        raise UnsupportedLanguage(f"no support for running {self.name!r}: give a Language for it, or judge it untested")
