"""The history of a pair: everything that led to its label, in order."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from agent.languages.base import Program as Program
from agent.llm.base import ModelCall as ModelCall
from agent.sandbox.base import Command as Command
from agent.types import Comparison, Count, Frozen, Pair, Seconds, TestReport

_ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]
Purpose = Literal["test", "sentinel", "probe"]


class Execution(Frozen):
    """One execution of a program.

    `program` is the program's number, counted from 0. `installed` lists the packages in its environment as
    `name==version`.

    `purpose` is `test` for the execution that produced the report. In a `sentinel` execution, the snippet's functions
    raise an exception. A `probe` imports the snippet's module and tests nothing. `shared` is true if `agent ablate`
    reused the result of an earlier execution of the same program in the same environment.
    """

    kind: Literal["execution"] = "execution"
    program: Count
    purpose: Purpose = "test"
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


class NodeRun(Frozen):
    """One node that the pair visited, with its outcome and the seconds since the previous node finished.

    The outcome `raised` means that the node ended the pair with an exception (`NodeError`). If the node decided the
    label, `label`, `decided_by` and `reason` describe its decision.
    """

    kind: Literal["node_run"] = "node_run"
    node: str
    outcome: str
    seconds: Seconds
    label: Literal[0, 1] | None = None
    decided_by: str | None = None
    reason: str = ""


HistoryItem = Annotated[ModelCall | Program | Execution | Command | NodeRun, Field(discriminator="kind")]
AnyItem = TypeVar("AnyItem", ModelCall, Program, Execution, Command, NodeRun)


class History(Frozen):
    """A pair and its events: enough to display the pair and to repeat its test.

    `segment` is the number of the manifest segment in which the events occurred, counted from 1.
    """

    pair: Pair | Comparison
    events: tuple[HistoryItem, ...] = ()
    segment: Count | None = None

    def of_kind(self, kind: type[AnyItem]) -> tuple[AnyItem, ...]:
        """Return the events of one type, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    @property
    def model_calls(self) -> tuple[ModelCall, ...]:
        """All model calls with their replies."""
        return self.of_kind(ModelCall)

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs. An execution refers to its program by the index in this tuple."""
        return self.of_kind(Program)

    @property
    def probes(self) -> frozenset[int]:
        """The numbers of the programs that import the snippet's module and test nothing."""
        return frozenset(execution.program for execution in self.executions if execution.purpose == "probe")

    @property
    def executions(self) -> tuple[Execution, ...]:
        """All executions of programs, for any purpose."""
        return self.of_kind(Execution)

    @property
    def tests(self) -> tuple[Execution, ...]:
        """The executions that tested the snippet."""
        return tuple(execution for execution in self.executions if execution.purpose == "test")

    @property
    def commands(self) -> tuple[Command, ...]:
        """All repair commands."""
        return self.of_kind(Command)

    @property
    def node_runs(self) -> tuple[NodeRun, ...]:
        """All executions of nodes, in order."""
        return self.of_kind(NodeRun)

    def asked_again(self) -> tuple[bool, ...]:
        """Return, for each model call, whether its reply was unusable and the call was retried."""
        model_calls = self.model_calls
        return tuple(later.attempt > 0 for later in model_calls[1:]) + (False,) * bool(model_calls)


class Recorder:
    """Records what happens to a pair while it is annotated."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._events: list[HistoryItem] = []

    def add(self, event: HistoryItem) -> None:
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
