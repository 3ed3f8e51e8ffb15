"""What the pipeline needs to know of a programming language."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from agent.errors import UnsupportedLanguage
from agent.history import Program as Program
from agent.sandbox.base import RunResult, SandboxJob
from agent.types import TestReport


class MalformedProgram(ValueError):
    """A generated program breaks the rules (marker, syntax, cases); the message is for the model."""


@dataclass(frozen=True)
class Snippet:
    """What is known of a snippet before anything runs.

    `problem` is why it does not parse (None when it does). `advice` are sentences for the generator, such as Python 2
    names that need stand-ins.
    """

    code: str
    problem: str | None = None
    advice: tuple[str, ...] = ()


class MutantKind(StrEnum):
    """Kinds of mutants that cannot be right, whatever is asked for."""

    RETURNS_NOTHING = "returns_nothing"
    RETURNS_FIRST_ARGUMENT = "returns_first_argument"
    RAISES = "raises"
    SAYS_NO = "says_no"
    SAYS_YES = "says_yes"


@dataclass(frozen=True)
class Mutation:
    """Wrong code in a snippet's place, which a sound test program notices.

    `kind` is a `MutantKind` or how the snippet was changed (`swapped_comparison`, …); of the latter some may be
    right by chance. `change` says what is different.
    """

    kind: str
    change: str
    snippet: Snippet


class Language:
    """One programming language. Pure: no input or output happens here.

    This base class is a language whose code is read and never run: its pairs are judged without a test. A language
    that is tested defines `marker`, `insert`, `job` and `report`, and as much of the rest as it can. An exception of a
    language of your own, other than those named here, ends the pair with `NodeError`.
    """

    name: str
    """Its name in pairs."""
    fence: str
    """The info string of a fenced block."""
    marker: str = ""
    """The line of a program that the snippet takes the place of."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            self.name = self.fence = name

    def inspect(self, code: str) -> Snippet:
        """Say whether a snippet parses and what a test program must know of it.

        Raises:
            SnippetTooLarge: it is beyond what is read, which is no finding about it.
        """
        return Snippet(code)

    def insert(self, template: str, snippet: Snippet) -> Program:  # noqa: ARG002
        """Put the snippet in place of the marker, verbatim.

        Raises:
            MalformedProgram: no or several markers, no test case, or the program does not parse.
        """
        self._refuse()

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:  # noqa: ARG002
        """Return what a sandbox runs for this program."""
        self._refuse()

    def report(self, program: Program, result: RunResult) -> TestReport:  # noqa: ARG002
        """Read a run: per-case outcomes, status, and who failed.

        Raises:
            MalformedProgram: the program, from somebody's evidence, is none that `insert` made, and cannot be read.
        """
        self._refuse()

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob | None:  # noqa: ARG002
        """Return the job with every function of the snippet raising at its start.

        A case that still passes never ran the snippet. None if the snippet has no function.
        """
        return None

    def signature(self, snippet: Snippet) -> str | None:  # noqa: ARG002
        """Return the snippet without its body, for the author of the test cases.

        The result is code that `insert` accepts in the snippet's place. None if nothing can be called. Never raises.
        """
        return None

    def surroundings(self, scaffold: str, snippet: Snippet) -> str:  # noqa: ARG002
        """Return what scaffolding (a marker, no test cases) provides around the snippet, bodies and values left out.

        Raises:
            MalformedProgram: the snippet cannot stand in it, or it holds test cases.
        """
        self._refuse()

    def check_correction(self, program: Program, corrected: Program) -> None:  # noqa: ARG002
        """Refuse a corrected program that proves less than the one it replaces.

        Raises:
            MalformedProgram: a case is gone, or is not what it was.
        """
        self._refuse()

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:  # noqa: ARG002
        """Return the import names that the run lacked (empty when no dependency was missing)."""
        return ()

    def requirement(self, import_name: str) -> str | None:  # noqa: ARG002
        """Return the requirement that provides an import name, or None when unknown."""
        return None

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:  # noqa: ARG002
        """Return at most `limit` mutants of a snippet, those that cannot be right first; none where it cannot say.

        Never raises. Equal snippets have equal mutants.
        """
        return ()

    def universal_mocks(self, snippet: Snippet) -> tuple[Mutation, ...]:  # noqa: ARG002
        """Return mutants of a snippet that break by no use, so that only a check notices them, or none. Never raises.

        Their kinds are `SAYS_NO` and `SAYS_YES` of `MutantKind`, by what they answer to whatever is asked of them.
        """
        return ()

    def _refuse(self) -> NoReturn:
        raise UnsupportedLanguage(f"no support for running {self.name!r}: give a Language for it, or judge it untested")
