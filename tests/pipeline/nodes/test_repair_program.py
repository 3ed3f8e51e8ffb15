"""A broken program may be corrected if the snippet and the test cases stay unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, ScriptedLLM, ScriptedSandbox
from agent.pipeline.graph import load_variant
from agent.runs.store.run_view import load_run
from agent.sandbox.base import CommandResult
from agent.types import Status
from tests.scripts import PAIR, PROGRAM, UNDEFINED_NAME, commands, environment, label, pass_all, program, screen

NODES = {
    ("repair_program" if name == "repair" else name): {
        outcome: "repair_program" if to == "repair" else to for outcome, to in edges.items()
    }
    for name, edges in load_variant("full").nodes.items()
}
VARIANT = {"start": "screen", "nodes": NODES}
BROKEN = PROGRAM.replace("add(1, 2)", "add(one, 2)")
CORRECTED = "one = 1\n" + BROKEN


def make_sandbox() -> ScriptedSandbox:
    runs = iter([UNDEFINED_NAME])
    return ScriptedSandbox(
        lambda job: next(runs, None) or pass_all(job), commands=lambda _: CommandResult(0, ""), environments=environment
    )


def make_model(*repairs: str) -> ScriptedLLM:
    broken = program(BROKEN, ["Board"])
    scripts = {"screen": [screen()], "generate_test": [broken], "repair": list(repairs), "arbitrate": [label(1)]}
    return ScriptedLLM(scripts)


async def annotate(model: ScriptedLLM, sandbox: ScriptedSandbox, **options: Any) -> Annotation:
    async with Annotator(model=model, sandbox=sandbox, **{"variant": VARIANT, **options}) as annotator:
        return await anext(annotator.annotate([PAIR]))


async def test_a_corrected_program_replaces_the_broken_one(tmp_path: Path) -> None:
    sandbox = make_sandbox()
    annotation = await annotate(make_model(program(CORRECTED, ["Clock"])), sandbox, run_dir=tmp_path / "run")
    assert annotation.test is not None
    assert (annotation.test.status, annotation.repairs, annotation.error) == (Status.PASSED, 1, None)
    assert [PAIR.code in job.program for job in sandbox.jobs] == [True, True]
    assert annotation.stand_ins == ("Board", "Clock")
    with load_run(tmp_path / "run") as view:
        evidence = view.evidence("1", 0)
    assert evidence is not None
    assert [evidence.programs[run.program].source for run in evidence.tests] == [job.program for job in sandbox.jobs]
    assert evidence.programs[-1].template == CORRECTED.rstrip("\n")


async def test_a_reply_may_have_commands_and_a_corrected_program() -> None:
    sandbox = make_sandbox()
    annotation = await annotate(make_model(commands("mkdir data") + program(CORRECTED)), sandbox)
    assert (annotation.repairs, set(sandbox.commands)) == (1, {("mkdir", "data")})
    assert "one = 1" in sandbox.jobs[1].program


@pytest.mark.parametrize(
    ("corrected", "cause"),
    [
        (CORRECTED.replace("# <candidate>", PAIR.code), "is missing"),
        (CORRECTED[: CORRECTED.index("def test_negative")], "restore `test_negative`"),
        (CORRECTED.replace("assert add(one, 2) == 3", "add(one, 2)"), "`test_small` changed"),
        (PROGRAM, "`test_small` changed"),
        (BROKEN, "already run"),
    ],
)
async def test_an_invalid_correction_is_retried_with_the_reason(corrected: str, cause: str) -> None:
    model = make_model(program(corrected), program(CORRECTED))
    annotation = await annotate(model, make_sandbox())
    calls = [call for call in model.calls if call.role == "repair"]
    assert (annotation.repairs, annotation.error, len(calls)) == (1, None, 2)
    assert cause in calls[1].messages[-1].content


async def test_a_program_without_declared_stand_ins_is_rejected() -> None:
    model = make_model(f"```python\n{CORRECTED}```\n", program(CORRECTED))
    assert (await annotate(model, make_sandbox())).error is None
    assert "exactly one ```json block" in model.calls[3].messages[-1].content


async def test_a_round_of_corrections_counts_like_one_of_commands() -> None:
    repairs = [program(f"one = {number}\n{BROKEN}") for number in range(5)]
    sandbox = ScriptedSandbox(lambda _: UNDEFINED_NAME)
    annotation = await annotate(make_model(*repairs), sandbox)
    assert (annotation.repairs, len(sandbox.jobs)) == (3, 4)


async def test_the_prompt_has_the_lines_of_the_code_and_the_marker() -> None:
    model = make_model(program(CORRECTED))
    await annotate(model, make_sandbox())
    messages = model.calls[2].messages
    assert "lines 1 to 3:" in messages[1].content
    assert "\n# <candidate>\n" in messages[0].content


async def test_the_plain_repair_node_accepts_only_commands() -> None:
    model = make_model(program(CORRECTED), commands())
    annotation = await annotate(model, ScriptedSandbox([UNDEFINED_NAME]), without=["repair_program"])
    assert annotation.repairs == 0
    assert "# <candidate>" not in model.calls[2].messages[0].content
