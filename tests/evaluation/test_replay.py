"""Tests for replays of recorded programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent import Annotator, Pair, ScriptedSandbox
from agent.errors import LockUnavailable, NotReplayable, SandboxError, UnsupportedLanguage
from agent.evaluation.recorded import RecordedSandbox
from agent.evaluation.replay import ReplayFailure, ReplayResult
from agent.pipeline.history import Command, Execution, Program
from agent.runs.store.run_view import load_run
from agent.sandbox.base import SandboxBackend
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.types import CaseOutcome, Cause, Status
from tests.evaluation.replays import (
    ADD,
    ENDLESS,
    FAILS,
    PASSES,
    change_events,
    make_run,
    open_run_replayer,
    program_importing,
    rewrite,
)
from tests.runs.store.samples import read_evidence
from tests.sandbox.conftest import BACKENDS, start
from tests.sandbox.wheelhouse import make_wheel
from tests.scripts import pass_all

PAIRS = [
    Pair(id="reverse", query="reverse a list", code="def rev(xs):\n    return xs[::-1]\n"),
    Pair(id="upper", query="upper case a string", code="def upper(s):\n    return s.lower()\n"),
    Pair(id="broken", query="divide two numbers", code="def divide(a, b):\n    return a / undefined\n"),
    Pair(id="none", query="sort a list", code="def f(:\n"),
]


async def replay_heuristic_run(run: Path, backend: SandboxBackend) -> list[ReplayResult | ReplayFailure]:
    """Annotate a few pairs with the heuristic and replay the executed programs."""
    async with Annotator(model="heuristic", sandbox=backend, without=["screen"], run_dir=run) as annotator:
        assert len([result async for result in annotator.annotate(PAIRS)]) == len(PAIRS)
        async with open_run_replayer(run, backend) as replayer:
            return [result async for result in replayer.replay_all([(pair.id, 0) for pair in PAIRS[:3]])]


@pytest.mark.parametrize("name", BACKENDS)
async def test_replayed_programs_have_the_same_outcome(tmp_path: Path, name: str) -> None:
    backend = await start(name)
    try:
        results = await replay_heuristic_run(tmp_path / "run", backend)
    finally:
        await backend.close()
    assert {result.id for result in results} == {"reverse", "upper", "broken"}
    assert [result for result in results if isinstance(result, ReplayFailure) or result.differences] == []


@pytest.mark.bwrap
async def test_failures_and_timeouts_are_outcomes(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"fails": FAILS, "endless": ENDLESS}, timeout=2)
    async with open_run_replayer(run, bwrap) as replayer:
        fails, endless = await replayer.replay("fails"), await replayer.replay("endless")
    assert (fails.differences, fails.report.status, fails.report.cause) == ((), Status.FAILED, Cause.SNIPPET)
    assert (endless.differences, endless.report.status) == ((), Status.TIMEOUT)


@pytest.mark.bwrap
async def test_a_program_gets_its_recorded_package_versions(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    run = tmp_path / "run"
    labels = await make_run(run, bwrap, {"packaged": program_importing("yaml")})
    assert labels["packaged"].installed == ("pyyaml==1.0",)
    make_wheel(index, "pyyaml", "2.0", files={"yaml.py": "VERSION = '2.0'\n"})
    remove_packages(tmp_path, store)
    async with open_run_replayer(run, bwrap) as replayer:
        result = await replayer.replay("packaged")
    assert (result.differences, result.report.status) == ((), Status.PASSED)
    assert result.notes == ()


@pytest.mark.bwrap
async def test_cached_environments_are_not_built_again(tmp_path: Path, bwrap: BwrapBackend, index: Path) -> None:
    wheel = make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": program_importing("yaml")})
    wheel.unlink()
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    async with open_run_replayer(tmp_path / "run", bwrap) as replayer:
        assert (await replayer.replay("packaged")).differences == ()


@pytest.mark.bwrap
async def test_packages_with_different_files_add_a_note(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    first = make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": program_importing("yaml")})
    first.unlink()
    built_again = {"yaml.py": "VERSION = '1.0'  # built again\n"}
    make_wheel(index, "pyyaml", "1.0", tag="py2.py3-none-any", files=built_again)
    remove_packages(tmp_path, store)
    async with open_run_replayer(tmp_path / "run", bwrap) as replayer:
        result = await replayer.replay("packaged")
    assert (result.differences, len(result.notes)) == ((), 1)


@pytest.mark.bwrap
async def test_a_lock_with_additional_packages_is_rejected(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": program_importing("yaml")})
    make_wheel(index, "pyyaml", "1.0", requires=["more"], files={"yaml.py": "VERSION = '1.0'\n"})
    make_wheel(index, "more")
    remove_packages(tmp_path, store)
    async with open_run_replayer(tmp_path / "run", bwrap) as replayer:
        with pytest.raises(LockUnavailable, match=r"more==1\.0"):
            await replayer.replay("packaged")


def remove_packages(tmp_path: Path, store: Path) -> None:
    """Remove downloaded and installed packages."""
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    for environment in store.glob("**/envs/*"):
        shutil.rmtree(environment)


MADE = "import sys\nsys.path.insert(0, '.')\nimport made_by_command\n" + PASSES
MAKES = """python3 -c "open('made_by_command.py', 'w').write('')\""""


@pytest.mark.bwrap
async def test_recorded_repair_commands_run_before_the_program(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    labels = await make_run(run, bwrap, {"made": MADE}, repair=["apt install x", MAKES])
    assert (labels["made"].label, labels["made"].repairs) == (1, 1)
    async with open_run_replayer(run, bwrap) as replayer:
        result = await replayer.replay("made")
    assert (result.differences, result.report.status) == ((), Status.PASSED)


@pytest.mark.bwrap
async def test_a_failing_recorded_command_adds_a_note(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"made": MADE}, repair=[MAKES])
    evidence = read_evidence(run, "made")
    fails = {"command": "python3 -c 'raise SystemExit(\"no more\")'"}
    rewrite(run, "made", events=change_events(evidence, Command, **fails))
    async with open_run_replayer(run, bwrap) as replayer:
        result = await replayer.replay("made")
    assert result.differences
    assert 'python3 -c raise SystemExit("no more")' in result.notes[0]


async def make_scripted_run(run: Path) -> None:
    await make_run(run, ScriptedSandbox(pass_all), {"passes": PASSES, "other": PASSES})


async def test_missing_executions_cannot_be_replayed(tmp_path: Path) -> None:
    await make_scripted_run(tmp_path / "run")
    rewrite(tmp_path / "run", "other", events=())
    async with open_run_replayer(tmp_path / "run", ScriptedSandbox(pass_all)) as replayer:
        with pytest.raises(NotReplayable, match="'other'"):
            await replayer.replay("other")
        with pytest.raises(NotReplayable, match="'passes'"):
            await replayer.replay("passes", 7)


@pytest.mark.bwrap
@pytest.mark.parametrize("source", ["x\ud800", "def " * 200_000], ids=["surrogate", "long"])
async def test_a_malformed_recorded_program_does_not_stop_the_others(
    tmp_path: Path, bwrap: BwrapBackend, source: str
) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"other": PASSES, "strange": PASSES})
    evidence = read_evidence(run, "strange")
    rewrite(run, "strange", events=change_events(evidence, Program, source=source))
    async with open_run_replayer(run, bwrap) as replayer:
        results = {result.id: result async for result in replayer.replay_all([("other", 0), ("strange", 0)])}
    assert isinstance(results["other"], ReplayResult)
    strange = results["strange"]
    assert isinstance(strange, ReplayFailure)
    assert strange.error.type == "NotReplayable"
    assert "malformed" in strange.error.message


async def test_a_sandbox_failure_is_not_an_outcome(tmp_path: Path) -> None:
    await make_scripted_run(tmp_path / "run")
    async with open_run_replayer(tmp_path / "run", ScriptedSandbox(lambda _job: SandboxError("it broke"))) as replayer:
        results = [result async for result in replayer.replay_all([("passes", 0)])]
    assert [result.error.type for result in results if isinstance(result, ReplayFailure)] == ["SandboxError"]


async def test_an_unsupported_language_is_not_an_outcome(tmp_path: Path) -> None:
    await make_scripted_run(tmp_path / "run")
    other = Pair(id="passes", query="q", code=ADD, language="cobol")
    rewrite(tmp_path / "run", "passes", pair=other)
    async with open_run_replayer(tmp_path / "run", ScriptedSandbox(pass_all)) as replayer:
        with pytest.raises(UnsupportedLanguage, match="cobol"):
            await replayer.replay("passes")


async def test_differing_programs_are_repeated_to_detect_flaky_ones(tmp_path: Path) -> None:
    run, sandbox = tmp_path / "run", ScriptedSandbox(pass_all)
    await make_scripted_run(run)
    evidence = read_evidence(run, "passes")
    [execution] = evidence.tests
    cases = tuple(case.model_copy(update={"outcome": CaseOutcome.FAILED}) for case in execution.report.cases)
    report = execution.report.model_copy(update={"cases": cases})
    rewrite(run, "passes", events=change_events(evidence, Execution, report=report))
    async with open_run_replayer(run, sandbox) as replayer:
        assert (await replayer.replay("passes")).cause == "changed"
    assert len(sandbox.jobs) == 3


async def test_runs_of_unknown_backends_cannot_be_replayed(tmp_path: Path) -> None:
    await make_scripted_run(tmp_path / "run")
    with load_run(tmp_path / "run") as view, pytest.raises(NotReplayable, match="'scripted'"):
        RecordedSandbox.of(view.manifest, 1)
