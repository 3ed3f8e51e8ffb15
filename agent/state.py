"""The state that flows through the graph, and the interface of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

from agent.config import PipelineConfig
from agent.history import Program, Recorder
from agent.languages.base import Language, Snippet
from agent.llm.asker import Asker
from agent.prompts import Role as Role
from agent.sandbox.base import Environment, RunResult
from agent.sandbox.session import SandboxSession
from agent.tracing import UNTRACED, Tracer
from agent.types import Pair, QuerySpec, Simulated, TestReport, Verdict


@dataclass(frozen=True)
class Scaffold:
    """The code around a snippet, written before any test case. `surroundings` is the part that the case writer sees."""

    template: str
    stand_ins: tuple[str, ...]
    surroundings: str


class State(TypedDict, total=False):
    """The state of one pair. Keys appear as nodes provide them; `outcome` is the outcome of the latest node.

    `report` describes the latest execution, or why there was none; `result` is the raw result from the sandbox.
    `audited`: the screener decided the pair, and the rest of the pipeline checks its verdict.
    `rounds` counts stage 2 repairs of the program, `installs` those of stage 1, and `repairs` all repairs of the pair
    that led to another execution.
    `weakness` tells the model that writes the next program why an earlier one proved nothing. It does not reveal the
    body of the snippet.
    `reading` is the reading of the query that was tested or that decided without a test. `matched` is the reading that
    the snippet matches according to the arbiter.
    """

    pair: Pair
    snippet: Snippet
    outcome: str
    screen_verdict: Verdict
    audited: bool
    spec: QuerySpec
    program: Program
    weakness: str
    scaffold: Scaffold
    strength: float | None
    reading: str
    matched: str
    report: TestReport
    result: RunResult
    environment: Environment
    sought: frozenset[str]
    rounds: int
    installs: int
    repairs: int
    simulated: Simulated
    label: Literal[0, 1] | None
    decided_by: str
    reason: str
    abstained: bool
    votes: tuple[Literal[0, 1] | None, ...]
    confidence: float | None


@dataclass(frozen=True)
class Step:
    """The result of a node: the edge to follow and the changes of the state."""

    outcome: str
    update: State


@dataclass(frozen=True)
class Tools:
    """What nodes use to process one pair. `session` is None in variants without executions.

    `asker` records model calls in `history`. Nodes record their other events, such as executions and commands.
    """

    asker: Asker
    history: Recorder
    language: Language
    config: PipelineConfig
    session: SandboxSession | None = None
    tracer: Tracer = UNTRACED

    @property
    def sandbox(self) -> SandboxSession:
        """The pair's sandbox session; a variant with an executing node always has one."""
        if self.session is None:
            raise RuntimeError("a node needs a sandbox, but no node of this variant declares `uses_sandbox`")
        return self.session


class Node(ABC):
    """One step of the pipeline.

    Attributes:
        requires: state keys that the node reads without a default.
        outcomes: state keys that the node provides, by outcome. The graph has an edge for every outcome.
        bypass: outcome to follow if the node is toggled off. None: it cannot be toggled off.
        plain: name of a simpler node with the same outcomes, which replaces this one if it is toggled off.
        roles: roles in which the node calls models. Their templates and models are checked before the run starts.
        settings: fields of `PipelineConfig` that this node reads, except those that affect every node.
        uses_sandbox: whether the node runs programs.
    """

    name: str
    requires: frozenset[str] = frozenset({"pair"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]]
    bypass: str | None = None
    plain: str | None = None
    roles: tuple[Role, ...] = ()
    settings: frozenset[str] = frozenset()
    uses_sandbox: bool = False

    @abstractmethod
    async def __call__(self, state: State, tools: Tools) -> Step:
        """Run the node on a state.

        Raises:
            PairError: the pair ends without a label.
            RunStopped: the run ends.
            Exception: the pair ends with a `NodeError` if the node, or the language in `tools`, is defined outside the
                package `agent`. Otherwise it is a bug in the package and ends the run.
        """
