"""A broken program may be corrected as long as the snippet stays and nothing less is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, ScriptedLLM, ScriptedSandbox
from agent.graph import load_variant
from agent.sandbox.base import CommandResult
from agent.store import load_run
from agent.types import Status
from tests.scripts import PAIR, PROGRAM, UNNAMED, commands, environment, label, pass_all, program, screen

NODES = {
    ("repair_program" if name == "repair" else name): {
        outcome: "repair_program" if to == "repair" else to for outcome, to in edges.items()
    }
    for name, edges in load_variant("full").nodes.items()
}
VARIANT = {"start": "screen", "nodes": NODES}
BROKEN = PROGRAM.replace("add(1, 2)", "add(one, 2)")
CORRECTED = "one = 1\n" + BROKEN


def once_broken() -> ScriptedSandbox:
    runs = iter([UNNAMED])
    return ScriptedSandbox(
        lambda job: next(runs, None) or pass_all(job), commands=lambda _: CommandResult(0, ""), environments=environment
    )


def repairing(*repairs: str) -> ScriptedLLM:
    broken = program(BROKEN, ["Board"])
    scripts = {"screen": [screen()], "generate_test": [broken], "repair": list(repairs), "arbitrate": [label(1)]}
    return ScriptedLLM(scripts)


async def annotate(model: ScriptedLLM, sandbox: ScriptedSandbox, **options: Any) -> Annotation:
    async with Annotator(model=model, sandbox=sandbox, **{"variant": VARIANT, **options}) as annotator:
        return await anext(annotator.annotate([PAIR]))


async def test_a_corrected_program_runs_in_place_of_the_broken_one(tmp_path: Path) -> None:
    sandbox = once_broken()
    found = await annotate(repairing(program(CORRECTED, ["Clock"])), sandbox, run_dir=tmp_path / "run")
    assert found.test is not None
    assert (found.test.status, found.repairs, found.error) == (Status.PASSED, 1, None)
    assert [PAIR.code in job.program for job in sandbox.jobs] == [True, True]
    assert found.stand_ins == ("Board", "Clock")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence("1", 0)
    assert evidence is not None
    assert [evidence.programs[each.program].source for each in evidence.tests] == [job.program for job in sandbox.jobs]
    assert evidence.programs[-1].template == CORRECTED.rstrip("\n")


async def test_commands_and_a_corrected_program_may_come_together() -> None:
    sandbox = once_broken()
    found = await annotate(repairing(commands("mkdir data") + program(CORRECTED)), sandbox)
    assert (found.repairs, set(sandbox.commands)) == (1, {("mkdir", "data")})
    assert "one = 1" in sandbox.jobs[1].program


@pytest.mark.parametrize(
    ("corrected", "why"),
    [
        (CORRECTED.replace("# <candidate>", PAIR.code), "stands nowhere"),
        (CORRECTED[: CORRECTED.index("def test_negative")], "put these back: `test_negative`"),
        (CORRECTED.replace("assert add(one, 2) == 3", "add(one, 2)"), "`test_small` changed"),
        (PROGRAM, "`test_small` changed"),
        (BROKEN, "run before, word for word"),
    ],
)
async def test_a_correction_that_is_not_one_is_asked_for_again_with_the_reason(corrected: str, why: str) -> None:
    model = repairing(program(corrected), program(CORRECTED))
    found = await annotate(model, once_broken())
    asked = [call for call in model.calls if call.role == "repair"]
    assert (found.repairs, found.error, len(asked)) == (1, None, 2)
    assert why in asked[1].messages[-1].content


async def test_a_program_without_its_stand_ins_named_is_asked_for_again() -> None:
    model = repairing(f"```python\n{CORRECTED}```\n", program(CORRECTED))
    assert (await annotate(model, once_broken())).error is None
    assert "exactly one ```json block" in model.calls[3].messages[-1].content


async def test_a_round_of_corrections_counts_as_one_of_commands() -> None:
    repairs = [program(f"one = {number}\n{BROKEN}") for number in range(5)]
    sandbox = ScriptedSandbox(lambda _: UNNAMED)
    found = await annotate(repairing(*repairs), sandbox)
    assert (found.repairs, len(sandbox.jobs)) == (3, 4)


async def test_the_question_says_where_the_code_stands_and_that_it_stays() -> None:
    model = repairing(program(CORRECTED))
    await annotate(model, once_broken())
    told = model.calls[2].messages
    assert "the tested code stands in its lines 1 to 3:" in told[1].content
    assert "Do not write the tested code again" in told[0].content
    assert "\n# <candidate>\n" in told[0].content


async def test_left_out_the_model_may_give_commands_alone() -> None:
    model = repairing(program(CORRECTED), commands())
    found = await annotate(model, ScriptedSandbox([UNNAMED]), without=["repair_program"])
    assert found.repairs == 0
    assert "the program stays as it is" in model.calls[2].messages[0].content
