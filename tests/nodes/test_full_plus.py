"""One pair's way through all parts of `full_plus`."""

from __future__ import annotations

import json

from agent import Annotator, ScriptedLLM, ScriptedSandbox
from agent.llm.base import Call
from agent.sandbox.base import RunResult, SandboxJob
from tests.scripts import PAIR, PROGRAM, UNNAMED, fail_all, program, screen

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
    return UNNAMED if "one = 1" not in job.program else fail_all(job)


async def test_every_part_does_its_own() -> None:
    model, sandbox = ScriptedLLM(answer), ScriptedSandbox(run)
    async with Annotator(model=model, sandbox=sandbox, variant="full_plus") as annotator:
        found = await anext(annotator.annotate([PAIR]))
    assert found.error is None
    assert (found.label, found.abstained, found.decided_by) == (None, True, "arbitrate")
    assert (found.votes, found.confidence) == ((None, None, None), None)
    assert (found.repairs, found.stand_ins, found.reading) == (1, ("Clock",), "Return the sum of two numbers.")
    assert list(dict.fromkeys(call.role for call in model.calls)) == [
        "specify_query", "screen", "scaffold", "generate_blind", "repair", "arbitrate"
    ]  # fmt: skip
