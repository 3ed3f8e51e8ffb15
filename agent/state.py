"""What flows through the graph, and what a node is."""

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
    """What was written around a snippet before any test case; `surroundings` is what the cases' author sees of it."""

    template: str
    stand_ins: tuple[str, ...]
    surroundings: str


class State(TypedDict, total=False):
    """One pair on its way to a label. Keys appear as nodes provide them; `outcome` is that of the latest node.

    `report` is the outcome of the latest execution (or says why there was none), `result` what the sandbox saw of it.
    `audited`: the screener settled the pair, and it goes on to see whether it was right.
    `rounds` counts stage-2 repairs of the program, `installs` those of stage 1, `repairs` every repair of the pair that
    led to another execution. `weakness` says why an earlier program proved nothing, so that another is written; it
    says nothing of the snippet's body. `reading` is the reading of the query that is tested, or that decided without a
    test; `matched` is the one that the arbiter finds matched.
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
    """A node's result: the edge to follow and the changes of the state."""

    outcome: str
    update: State


@dataclass(frozen=True)
class Tools:
    """What nodes work with, created for each pair. `session` is None in variants that execute nothing.

    A node adds to `history` what it did besides asking models and running programs.
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
            raise RuntimeError("this variant was built without a sandbox, yet a node asks for one")
        return self.session


class Node(ABC):
    """One step of the pipeline.

    `requires` names the state keys that it reads without a default. `outcomes` maps each outcome to the state keys that
    it then provides; the graph must lead every outcome somewhere. `bypass` is the outcome that is followed when the
    node is left out (None: it cannot be). A node that does more than a `plain` one in the same place names that one:
    left out, it gives way to it; both then have the same outcomes. `roles` are those in which it asks models: before
    anything is spent, their templates are tried, and a run without a model for one is refused. `settings` are those of
    `PipelineConfig` that matter to it and not to every node.
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
        """Do the step.

        Raises:
            PairError: the pair ends without a label.
            RunStopped: the run ends.
            Exception: the pair ends with a `NodeError` if the node, or the language in `tools`, is of a module outside
                of `agent`; otherwise it is a defect of ours and ends the run.
        """
