"""The steps of the pipeline. To add a node, write a class here, list it in `BUILT_IN`, and use it in a graph."""

from __future__ import annotations

from agent.pipeline.nodes.asking import (
    Arbitrate,
    ArbitrateByRule,
    Judge,
    JudgeIntent,
    Prefer,
    Screen,
    Simulate,
    WriteCode,
)
from agent.pipeline.nodes.execute import Execute
from agent.pipeline.nodes.generate_test import GenerateTest
from agent.pipeline.nodes.open_context import OpenContext
from agent.pipeline.nodes.repair import Repair
from agent.pipeline.state import Node

BUILT_IN: dict[str, Node] = {
    node.name: node
    for node in (
        JudgeIntent(),
        Screen(),
        OpenContext(),
        GenerateTest(),
        Execute(),
        Repair(),
        Simulate(),
        Arbitrate(),
        ArbitrateByRule(),
        Judge(),
        Prefer(),
        WriteCode(),
    )
}
