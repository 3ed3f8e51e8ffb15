"""What happened to a pair, in the order in which it happened: everything that led to its label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from agent.types import Count, Frozen, Pair, QuerySpec, Seconds, Status, TestReport, Usage

_ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]
Purpose = Literal["test", "repeat", "mutant", "mock", "sentinel"]


class Exchange(Frozen):
    """One question and its reply. `key` is the reply cache's key.

    `usage` is what was paid for it in this run; `saved` is what a reply from the cache cost when it was paid for, and
    `seconds` how long the model took then (None: not known). `problem` is why the reply could not be used; `attempt` is
    how often the question had been asked before for that reason. `shared`: it was asked for other pairs, too.
    """

    kind: Literal["exchange"] = "exchange"
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
    attempt: Count = 0
    shared: bool = False
    raw: dict[str, Any] = Field(default_factory=dict)


class Program(Frozen):
    """A test program as run: the snippet stands verbatim in lines `first_line` to `last_line` (1-based, inclusive).

    `template` is what the model wrote, marker included; `cases` are its test cases; `imports` are the
    top-level modules that it and the snippet import from outside the standard library; `stand_ins` are what was
    invented around the snippet: what the model lists, and what the snippet uses and the program defines.
    """

    kind: Literal["program"] = "program"
    template: str
    source: str
    first_line: Count
    last_line: Count
    cases: tuple[str, ...]
    imports: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()

    def with_stand_ins(self, stand_ins: Iterable[str]) -> Program:
        """Return the program with these stand-ins (`Name` or `Name: what it is`) before its own."""
        listed = tuple(dict.fromkeys(stand_ins))
        names = {each.partition(":")[0].strip() for each in listed}
        others = (name for name in self.stand_ins if name not in names)
        return self.model_copy(update={"stand_ins": (*listed, *others)})


class Mutant(Frozen):
    """What stood in the snippet's place: how it was made (`swapped_comparison`, ...), and what differs."""

    kind: str
    change: str


class Execution(Frozen):
    """One run of the program with this number, from 0; `installed` is the environment's lock.

    `purpose` is `test` for the run that the report speaks of, `repeat` for a further run of the same, `sentinel` for
    one in which the snippet's functions raise, `mutant` for one on a changed snippet and `mock` for one on a universal
    mock. Only the outcome of the latter two is kept, neither cases nor output. `shared`: the same program had been run
    before, in the same environment, and this is its result (`agent ablate`).
    """

    kind: Literal["execution"] = "execution"
    program: Count
    purpose: Purpose = "test"
    mutant: Mutant | None = None
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

    @property
    def killed(self) -> bool:
        """Whether the program failed on the mutant."""
        return self.report.status is not Status.PASSED


class Command(Frozen):
    """One command of a repair and what became of it."""

    kind: Literal["command"] = "command"
    command: str
    outcome: Literal["installed", "ran", "refused", "failed"]
    output: str = ""


class Visit(Frozen):
    """One node that the pair came through: what it concluded, and the seconds since the one before.

    The outcome `raised` is that of a node which ended the pair by an exception (`NodeError`).
    `label`, `decided_by` and `reason` are its verdict, where it gave one; `spec` are the readings that it worked out.
    """

    kind: Literal["visit"] = "visit"
    node: str
    outcome: str
    seconds: Seconds
    label: Literal[0, 1] | None = None
    decided_by: str | None = None
    reason: str = ""
    spec: QuerySpec | None = None


Event = Annotated[Exchange | Program | Execution | Command | Visit, Field(discriminator="kind")]
AnyEvent = TypeVar("AnyEvent", Exchange, Program, Execution, Command, Visit)


class History(Frozen):
    """A pair and everything that happened to it: enough to show it and to run its test again.

    `segment` is the number (from 1) of the manifest's segment in which it happened.
    """

    pair: Pair
    events: tuple[Event, ...] = ()
    segment: Count | None = None

    def of_kind(self, kind: type[AnyEvent]) -> tuple[AnyEvent, ...]:
        """Return the events of a kind, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every question and its reply."""
        return self.of_kind(Exchange)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Every program that was written; an execution names its own by its place here."""
        return self.of_kind(Program)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """Every run of a program, for any purpose."""
        return self.of_kind(Execution)

    @property
    def tests(self) -> tuple[Execution, ...]:
        """The executions that tested the snippet."""
        return tuple(each for each in self.executions if each.purpose == "test")

    @property
    def mutants(self) -> tuple[Execution, ...]:
        """The executions of the last program that was tried on mutants."""
        tried = [each for each in self.executions if each.purpose == "mutant"]
        return tuple(each for each in tried if each.program == tried[-1].program)

    @property
    def commands(self) -> tuple[Command, ...]:
        """Every command of a repair."""
        return self.of_kind(Command)

    @property
    def visits(self) -> tuple[Visit, ...]:
        """Every node that ran, in order."""
        return self.of_kind(Visit)

    @property
    def spec(self) -> QuerySpec | None:
        """The readings of the query, where they were worked out."""
        return next((visit.spec for visit in self.visits if visit.spec is not None), None)

    def asked_again(self) -> tuple[bool, ...]:
        """Return for each exchange whether its reply was unusable and the question was asked again."""
        exchanges = self.exchanges
        return tuple(later.attempt > 0 for later in exchanges[1:]) + (False,) * bool(exchanges)


class Recorder:
    """Records what happens to a pair while it is annotated."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        """Record an event."""
        self._events.append(event)

    def number_program(self, program: Program) -> int:
        """Return a program's number, from 0. Record the program first if it is new."""
        if program not in self._events:
            self.add(program)
        return self.history.programs.index(program)

    @property
    def history(self) -> History:
        """The events so far."""
        # every event was validated when it was made
        return History.model_construct(pair=self._pair, events=tuple(self._events))
