"""Everything that your own nodes, languages, models, sandboxes and caches are built from."""

from __future__ import annotations

from agent.languages.base import Language, MalformedProgram, MutantKind, Mutation, Program, Snippet
from agent.languages.reporting import Blame, build_report
from agent.llm.base import LLM, Call, Message, Reply, Wait
from agent.llm.budget import Budget
from agent.llm.gateway import ReplyCache
from agent.llm.models import Models
from agent.llm.parsing import LabelReply, UnreadableReply, parse_label
from agent.pipeline.state import Node, Role, State, Step, Tools
from agent.runs.spec import AnnotatorOptions, ModelOptions
from agent.sandbox.base import (
    CommandResult,
    Environment,
    EnvironmentBuilder,
    Frame,
    ReportLine,
    RunResult,
    Sandbox,
    SandboxBackend,
    SandboxJob,
    SandboxLimits,
    Toolchain,
)
from agent.sandbox.session import SharedExecutions
from agent.types import CaseOutcome, CaseResult, Cause, Pair, Status, TestReport, Usage, Verdict

__all__ = [
    "LLM", "AnnotatorOptions", "Blame", "Budget", "Call", "CaseOutcome", "CaseResult", "Cause", "CommandResult",
    "Environment", "EnvironmentBuilder", "Frame", "LabelReply", "Language", "MalformedProgram", "Message",
    "ModelOptions", "Models", "MutantKind", "Mutation", "Node", "Pair", "Program", "Reply", "ReplyCache", "ReportLine",
    "Role", "RunResult", "Sandbox", "SandboxBackend", "SandboxJob", "SandboxLimits", "SharedExecutions", "Snippet",
    "State", "Status", "Step", "TestReport", "Toolchain", "Tools", "UnreadableReply", "Usage", "Verdict", "Wait",
    "build_report", "parse_label",
]  # fmt: skip
