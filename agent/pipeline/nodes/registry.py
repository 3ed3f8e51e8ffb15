"""The steps of the pipeline. To add a node, write a class here, list it in `BUILT_IN`, and use it in a graph."""

from __future__ import annotations

from agent.pipeline.nodes.asking import (
    Arbitrate,
    ArbitrateByRule,
    ArbitrateOrAbstain,
    Judge,
    JudgeIntent,
    Prefer,
    Screen,
    Simulate,
    SpecifyQuery,
    WriteCode,
)
from agent.pipeline.nodes.check_flakiness import CheckFlakiness
from agent.pipeline.nodes.check_validity import CheckValidity
from agent.pipeline.nodes.execute import Execute
from agent.pipeline.nodes.generate_test import GenerateBlind, GenerateTest
from agent.pipeline.nodes.rate_confidence import RateConfidence
from agent.pipeline.nodes.repair import Repair, RepairProgram
from agent.pipeline.state import Node

BUILT_IN: dict[str, Node] = {
    node.name: node
    for node in (
        SpecifyQuery(),
        JudgeIntent(),
        Screen(),
        GenerateTest(),
        GenerateBlind(),
        Execute(),
        Repair(),
        RepairProgram(),
        CheckFlakiness(),
        CheckValidity(),
        Simulate(),
        Arbitrate(),
        ArbitrateOrAbstain(),
        ArbitrateByRule(),
        Judge(),
        Prefer(),
        RateConfidence(),
        WriteCode(),
    )
}
