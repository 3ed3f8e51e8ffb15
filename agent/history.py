"""The history of a pair: everything that led to its label, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from agent.types import Count, Frozen, Pair, QuerySpec, Seconds, Status, TestReport, Usage

_ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]
Purpose = Literal["test", "repeat", "mutant", "mock", "sentinel"]


class Exchange(Frozen):
    """One model call and its reply. `key` is the reply's key in the reply cache.

    `usage` is the usage that this run paid for. `saved` is the original usage of a reply from the cache. `seconds` is
    the duration of the original call (None: unknown). `problem` explains why the reply was unusable. `attempt` is the
    number of earlier unusable replies to the same prompt. If `shared` is true, identical calls from other pairs reuse
    the reply.
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
    """A test program. Lines `first_line` to `last_line` (1-based, inclusive) contain the snippet verbatim.

    `template` is the program as the model wrote it, including the marker for the snippet. `imports` are the modules
    outside the standard library that the program or the snippet imports. `stand_ins` are the names that the
    model lists as stand-ins, or that the program defines for the snippet.
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
        """Return the program with these stand-ins (`Name` or `Name: description`) listed before its existing ones."""
        distinct = tuple(dict.fromkeys(stand_ins))
        names = {stand_in.partition(":")[0].strip() for stand_in in distinct}
        others = (name for name in self.stand_ins if name not in names)
        return self.model_copy(update={"stand_ins": (*distinct, *others)})


class Mutant(Frozen):
    """A mutant of the snippet.

    `kind` is a name such as `swapped_comparison`; `change` describes the difference from the snippet.
    """

    kind: str
    change: str


class Execution(Frozen):
    """One execution of a program.

    `program` is the program's number, counted from 0. `installed` lists the packages in its environment as
    `name==version`.

    `purpose` is `test` for the execution that produced the report, and `repeat` for a repetition of that execution. In
    a `sentinel` execution, the snippet's functions raise an exception. In a `mutant` execution, the snippet is changed.
    In a `mock` execution, a mock that accepts any operation replaces the snippet. Records of mutant and mock executions
    contain only the outcome, without cases or output. `shared` is true if `agent ablate` reused the result of an
    earlier execution of the same program in the same environment.
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
    """One command of a repair and its outcome."""

    kind: Literal["command"] = "command"
    command: str
    outcome: Literal["installed", "ran", "refused", "failed"]
    output: str = ""


class Visit(Frozen):
    """One node that the pair visited, with its outcome and the seconds since the previous node finished.

    The outcome `raised` means that the node ended the pair with an exception (`NodeError`). If the node decided the
    label, `label`, `decided_by` and `reason` describe its decision. `spec` contains the readings of the query that the
    node produced, if any.
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
    """A pair and its events: enough to display the pair and to repeat its test.

    `segment` is the number of the manifest segment in which the events occurred, counted from 1.
    """

    pair: Pair
    events: tuple[Event, ...] = ()
    segment: Count | None = None

    def of_kind(self, kind: type[AnyEvent]) -> tuple[AnyEvent, ...]:
        """Return the events of one type, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All model calls with their replies."""
        return self.of_kind(Exchange)

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs. An execution refers to its program by the index in this tuple."""
        return self.of_kind(Program)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """All executions of programs, for any purpose."""
        return self.of_kind(Execution)

    @property
    def tests(self) -> tuple[Execution, ...]:
        """The executions that tested the snippet."""
        return tuple(execution for execution in self.executions if execution.purpose == "test")

    @property
    def mutants(self) -> tuple[Execution, ...]:
        """The mutant executions of the last program that was run on mutants."""
        mutants = [execution for execution in self.executions if execution.purpose == "mutant"]
        return tuple(mutant for mutant in mutants if mutant.program == mutants[-1].program)

    @property
    def commands(self) -> tuple[Command, ...]:
        """All repair commands."""
        return self.of_kind(Command)

    @property
    def visits(self) -> tuple[Visit, ...]:
        """All node visits, in order."""
        return self.of_kind(Visit)

    @property
    def spec(self) -> QuerySpec | None:
        """The readings of the query, if a node produced them."""
        return next((visit.spec for visit in self.visits if visit.spec is not None), None)

    def asked_again(self) -> tuple[bool, ...]:
        """Return, for each exchange, whether its reply was unusable and the call was retried."""
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
        """Record a program unless it is already recorded. Return its number, counted from 0."""
        if program not in self._events:
            self.add(program)
        return self.history.programs.index(program)

    @property
    def history(self) -> History:
        """The pair and its events so far."""
        # skips validation, because the events are already validated
        return History.model_construct(pair=self._pair, events=tuple(self._events))
