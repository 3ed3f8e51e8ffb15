"""One pair passes through all nodes of `full_plus`."""

from __future__ import annotations

import json

from agent import Annotator, ScriptedLLM, ScriptedSandbox
from agent.llm.base import Call
from agent.sandbox.base import RunResult, SandboxJob
from tests.scripts import PAIR, PROGRAM, UNDEFINED_NAME, fail_all, program, screen

SPEC = {"readings": [{"reading": "Return the sum of two numbers.", "requirements": ["It adds them."]}]}
CASES = PROGRAM.removeprefix("# <candidate>\n")
BROKEN = CASES.replace("add(1, 2)", "add(one, 2)")


def answer(call: Call) -> str:
    return {
        "specify_query": json.dumps(SPEC),
        "screen": screen(),
        "scaffold": program("# <candidate>\n"),
        "generate_blind": program(BROKEN).replace('"a sum"', "1"),
        "repair": program("one = 1\n# <candidate>\n" + BROKEN, ["Clock"]),
        "arbitrate": '{"reason": "open", "reading": null, "label": null}',
    }[call.role]


def run(job: SandboxJob) -> RunResult:
    return UNDEFINED_NAME if "one = 1" not in job.program else fail_all(job)


async def test_every_node_contributes() -> None:
    model, sandbox = ScriptedLLM(answer), ScriptedSandbox(run)
    async with Annotator(model=model, sandbox=sandbox, variant="full_plus") as annotator:
        annotation = await anext(annotator.annotate([PAIR]))
    assert annotation.error is None
    assert (annotation.label, annotation.abstained, annotation.decided_by) == (None, True, "arbitrate")
    assert (annotation.votes, annotation.confidence) == ((None, None, None), None)
    assert (annotation.repairs, annotation.stand_ins) == (1, ("Clock",))
    assert annotation.reading == SPEC["readings"][0]["reading"]
    assert list(dict.fromkeys(call.role for call in model.calls)) == [
        "specify_query", "screen", "scaffold", "generate_blind", "repair", "arbitrate"
    ]  # fmt: skip
