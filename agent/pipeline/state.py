"""The state that flows through the graph, and the interface that nodes implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

from agent.config import PipelineConfig
from agent.languages.base import Language, Module, Snippet
from agent.pipeline.asker import Asker
from agent.pipeline.history import Program, Recorder
from agent.pipeline.prompts import Role as Role
from agent.sandbox.base import Environment, RunResult
from agent.sandbox.session import SandboxSession
from agent.tracing import UNTRACED, Tracer
from agent.types import ModuleContext, Pair, Preference, Simulated, TestReport, Verdict, WrittenCode


class State(TypedDict, total=False):
    """The state of one pair. A key is present once a node has provided it. `outcome` is the outcome of the latest node.

    `report` describes the latest execution, or why there was none; `result` is the raw result from the sandbox.
    `audited` is true if the screener labelled the pair, and the rest of the pipeline checks the verdict. `installs` and
    `rounds` count the program's repairs in stages 1 and 2 of Algorithm 1 in the CoSQA+ paper. `repairs` counts all
    repairs for the pair that led to another execution. `module` is present if tests run in the snippet's module, and
    `module_context` says where they run. `weakness` explains to the model that writes the next program
    why an earlier program proved nothing. `reading` is the reading of the query that the program tests.
    """

    pair: Pair
    snippet: Snippet
    outcome: str
    screen_verdict: Verdict
    audited: bool
    module: Module
    module_context: ModuleContext
    program: Program
    weakness: str
    reading: str
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
    document: WrittenCode | Preference


@dataclass(frozen=True)
class Step:
    """The result of a node: the edge to follow and the changes to the state."""

    outcome: str
    update: State


@dataclass(frozen=True)
class Tools:
    """What nodes use to process one pair. `session` is None in variants that run no programs.

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
        """The pair's sandbox session. Variants with a node that runs programs always have one."""
        if self.session is None:
            raise RuntimeError("a node needs a sandbox, but no node of this variant declares `uses_sandbox`")
        return self.session


class Node(ABC):
    """One step of the pipeline.

    Attributes:
        requires: state keys that the node reads without a default.
        outcomes: for each outcome, the state keys that the node provides. The graph has an edge for every outcome.
        bypass: outcome to follow if the node is toggled off. A node without `bypass` cannot be toggled off.
        roles: roles in which the node calls models. Their templates and models are checked before the run starts.
        settings: fields of `PipelineConfig` that this node reads, except those that affect every node.
        uses_sandbox: whether the node runs programs.
    """

    name: str
    requires: frozenset[str] = frozenset({"pair"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]]
    bypass: str | None = None
    roles: tuple[Role, ...] = ()
    settings: frozenset[str] = frozenset()
    uses_sandbox: bool = False

    @abstractmethod
    async def __call__(self, state: State, tools: Tools) -> Step:
        """Run the node on a state.

        Raises:
            PairError: the pair cannot be annotated.
            RunStopped: the run cannot continue.
            Exception: any other error. The pair ends with a `NodeError` if the node, or the language in `tools`, is
                defined outside the `agent` package. Otherwise, the error is a bug in the package and ends the run.
        """
