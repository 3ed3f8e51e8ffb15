"""What is kept of how a label came about: questions and answers, programs and their runs, commands, time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agent.types import Count, Frozen, Mutant, Pair, QuerySpec, Seconds, TestReport, Usage

_ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]


class Exchange(Frozen):
    """One question and its answer, as kept in evidence. `key` is the reply cache's key.

    `usage` is what was paid for it in this run; `saved` is what a reply from the cache cost when it was paid for, and
    `seconds` how long the model took then (None: not known). `shared`: it was asked for other pairs, too.
    """

    role: str
    key: str
    messages: tuple[dict[str, str], ...]
    reply: str
    model: str = ""
    cached: bool = False
    usage: Usage = Usage()
    saved: Usage = Usage()
    seconds: Seconds | None = None
    problem: str | None = None
    shared: bool = False
    raw: dict[str, Any] = Field(default_factory=dict)

    def goes_on(self, earlier: Exchange) -> bool:
        """Return whether this asks an earlier question once more, by its messages and more."""
        if self.role != earlier.role or not earlier.messages or self.messages == earlier.messages:
            return False
        *before, last = earlier.messages
        same, rest = list(self.messages[: len(before)]), self.messages[len(before) :]
        # behind a blank reply the last message itself goes on
        return same == before and bool(rest) and rest[0].get("content", "").startswith(last.get("content", ""))


class Layout(Frozen):
    """What a program is besides its source: the lines its snippet stands in (1-based, inclusive), cases, options."""

    first_line: Count
    last_line: Count
    cases: tuple[str, ...]
    imports: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)


class Execution(Frozen):
    """One execution of a program, as kept in evidence; `installed` is the environment's lock.

    `shared`: the same program had been run before, in the same environment, and this is its result (`agent ablate`).
    `exchanges_before` and `commands_before` count what of the evidence had happened by then. They, and `layout`, are
    None in runs of versions that did not keep them.
    """

    source: str
    layout: Layout | None = None
    exchanges_before: Count | None = None
    commands_before: Count | None = None
    report: TestReport
    environment: str | None = None
    installed: tuple[str, ...] = ()
    exit_code: _ExitCode | None = None
    signal: _ExitCode | None = None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    seconds: Seconds = 0.0
    shared: bool = False


class CommandRun(Frozen):
    """One stage-2 command and what became of it."""

    command: str
    outcome: Literal["installed", "ran", "refused", "failed"]
    output: str = ""


class ProgramRun(Frozen):
    """One run of a program in a sandbox, whatever for; `shared` as in `Execution`: its seconds are those of then."""

    seconds: Seconds
    shared: bool = False


class NodeVisit(Frozen):
    """One node that a pair came through: what it concluded, and the seconds since the one before.

    `exchanges` and `runs` count what of the evidence had happened by its end; None in runs of versions that did not
    keep them.
    """

    node: str
    outcome: str
    seconds: Seconds
    exchanges: Count | None = None
    runs: Count | None = None


class Evidence(Frozen):
    """Everything that led to a pair's label: enough to show it and to run its test again.

    `visits` is the way through the graph; empty in runs that did not note it. `runs` are all runs of programs, those on
    mutants and repeats among them; None in runs of versions that did not keep them. `segment` is the number (from 1)
    of the manifest's segment in which it was made, None in runs of versions that did not keep it.
    """

    pair: Pair
    template: str | None = None
    reading: str = ""
    spec: QuerySpec | None = None
    mutants: tuple[Mutant, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    executions: tuple[Execution, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    visits: tuple[NodeVisit, ...] = ()
    runs: tuple[ProgramRun, ...] | None = None
    segment: Count | None = None

    def asked_again(self) -> tuple[bool, ...]:
        """Return of each exchange whether it gave nothing that could be used and its question was asked again."""
        nexts = (*self.exchanges[1:], None)
        return tuple(
            each.problem is not None and later is not None and later.goes_on(each)
            for each, later in zip(self.exchanges, nexts, strict=False)
        )
