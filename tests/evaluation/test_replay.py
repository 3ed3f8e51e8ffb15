"""A recorded program runs again as it ran; what differs is named and counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from statsmodels.stats.proportion import proportion_confint

from agent import Annotator, Pair, ScriptedSandbox
from agent.errors import LockUnavailable, NotReplayable, SandboxError, UnsupportedLanguage
from agent.evaluation.recorded import Difference, RecordedSandbox, find_segment, keys_with_tests
from agent.evaluation.replay import ReplayCounts, Replayer, ReplayFailure, ReplayResult
from agent.history import Command, Execution, Program
from agent.sandbox.base import SandboxBackend
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.store import load_run
from agent.types import CaseOutcome, Cause, ErrorInfo, Status, TestReport
from tests.evaluation.replays import (
    ADD,
    ENDLESS,
    FAILS,
    PASSES,
    changed,
    make_run,
    packaged,
    replayer,
    rewrite,
)
from tests.sandbox.wheelhouse import make_wheel
from tests.scripts import pass_all

OWN = [
    Pair(id="reverse", query="reverse a list", code="def rev(xs):\n    return xs[::-1]\n"),
    Pair(id="upper", query="upper case a string", code="def upper(s):\n    return s.lower()\n"),
    Pair(id="broken", query="divide two numbers", code="def divide(a, b):\n    return a / undefined\n"),
    Pair(id="none", query="sort a list", code="def f(:\n"),
]


async def own_pairs(run: Path, backend: SandboxBackend) -> list[ReplayResult | ReplayFailure]:
    """Annotate a few pairs by the embedded model, and replay what was executed."""
    async with Annotator(model="heuristic", sandbox=backend, without=["screen"], run_dir=run) as annotator:
        assert len([each async for each in annotator.annotate(OWN)]) == len(OWN)
        async with replayer(run, backend) as again:
            with load_run(run) as view:
                keys = [key for key in keys_with_tests(view) if find_segment(view, key)]
            return [each async for each in again.replay_all(keys)]


@pytest.mark.bwrap
async def test_what_a_run_executed_ends_as_it_did(tmp_path: Path, bwrap: BwrapBackend) -> None:
    found = await own_pairs(tmp_path / "run", bwrap)
    assert {each.id for each in found} == {"reverse", "upper", "broken"}
    assert [each for each in found if isinstance(each, ReplayFailure) or not each.same] == []


@pytest.mark.docker
async def test_what_a_run_executed_in_docker_ends_as_it_did(tmp_path: Path) -> None:
    from agent.sandbox.docker.backend import DockerBackend

    backend = DockerBackend(pool=1)
    await backend.start(lambda _line: None)
    try:
        found = await own_pairs(tmp_path / "run", backend)
    finally:
        await backend.close()
    assert {each.id for each in found} == {"reverse", "upper", "broken"}
    assert [each for each in found if isinstance(each, ReplayFailure) or not each.same] == []


@pytest.mark.bwrap
async def test_failures_and_time_outs_are_outcomes_like_others(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"fails": FAILS, "endless": ENDLESS}, timeout=2)
    async with replayer(run, bwrap) as again:
        fails, endless = await again.replay("fails"), await again.replay("endless")
    assert (fails.same, fails.report.status, fails.report.cause) == (True, Status.FAILED, Cause.SNIPPET)
    assert (endless.same, endless.report.status) == (True, Status.TIMEOUT)


@pytest.mark.bwrap
async def test_a_program_has_the_versions_it_had_and_not_newer_ones(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    run = tmp_path / "run"
    labels = await make_run(run, bwrap, {"packaged": packaged("yaml")})
    assert labels["packaged"].installed == ("pyyaml==1.0",)
    make_wheel(index, "pyyaml", "2.0", files={"yaml.py": "VERSION = '2.0'\n"})
    forget_packages(tmp_path, store)
    async with replayer(run, bwrap) as again:
        found = await again.replay("packaged")
    assert (found.same, found.report.status) == (True, Status.PASSED)
    assert found.notes == ()


@pytest.mark.bwrap
async def test_packages_that_are_still_in_the_store_are_not_asked_for_again(
    tmp_path: Path, bwrap: BwrapBackend, index: Path
) -> None:
    wheel = make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": packaged("yaml")})
    wheel.unlink()
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    async with replayer(tmp_path / "run", bwrap) as again:
        assert (await again.replay("packaged")).same


@pytest.mark.bwrap
async def test_packages_of_equal_versions_and_other_files_are_told(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    first = make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": packaged("yaml")})
    first.unlink()
    built_again = {"yaml.py": "VERSION = '1.0'  # built again\n"}
    make_wheel(index, "pyyaml", "1.0", tag="py2.py3-none-any", files=built_again)
    forget_packages(tmp_path, store)
    async with replayer(tmp_path / "run", bwrap) as again:
        found = await again.replay("packaged")
    assert (found.same, found.notes) == (True, ("the packages are of the recorded versions, and other files",))


@pytest.mark.bwrap
async def test_a_lock_that_leads_to_more_than_it_says_is_no_outcome_either(
    tmp_path: Path, bwrap: BwrapBackend, store: Path, index: Path
) -> None:
    make_wheel(index, "pyyaml", "1.0", files={"yaml.py": "VERSION = '1.0'\n"})
    await make_run(tmp_path / "run", bwrap, {"packaged": packaged("yaml")})
    make_wheel(index, "pyyaml", "1.0", requires=["more"], files={"yaml.py": "VERSION = '1.0'\n"})
    make_wheel(index, "more")
    forget_packages(tmp_path, store)
    async with replayer(tmp_path / "run", bwrap) as again:
        with pytest.raises(LockUnavailable, match=r"lacking: nothing; more: more==1\.0"):
            await again.replay("packaged")


def forget_packages(tmp_path: Path, store: Path) -> None:
    """Remove what was downloaded and what was installed."""
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    for environment in store.glob("**/envs/*"):
        shutil.rmtree(environment)


MADE = "import sys\nsys.path.insert(0, '.')\nimport made_by_command\n" + PASSES
MAKES = """python3 -c "open('made_by_command.py', 'w').write('')\""""


@pytest.mark.bwrap
async def test_the_commands_that_repaired_a_program_run_before_it(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    labels = await make_run(run, bwrap, {"made": MADE}, repair=["apt install x", MAKES])
    assert (labels["made"].label, labels["made"].repairs) == (1, 1)
    async with replayer(run, bwrap) as again:
        last, first = await again.replay("made"), await again.replay("made", number=1)
    assert (last.execution, last.same, last.report.status) == (2, True, Status.PASSED)
    assert (first.execution, first.same, first.report.cause) == (1, True, Cause.DEPENDENCY)


@pytest.mark.bwrap
async def test_a_command_that_fails_by_now_is_told(tmp_path: Path, bwrap: BwrapBackend) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"made": MADE}, repair=[MAKES])
    with load_run(run) as view:
        evidence = view.evidence("made")
    assert evidence is not None
    fails = {"command": "python3 -c 'raise SystemExit(\"no more\")'"}
    rewrite(run, "made", events=changed(evidence, Command, **fails))
    async with replayer(run, bwrap) as again:
        found = await again.replay("made")
    assert not found.same
    assert found.notes == ('the command python3 -c raise SystemExit("no more") ran then, and fails now: no more',)


async def scripted_run(run: Path) -> None:
    await make_run(run, ScriptedSandbox(pass_all), {"passes": PASSES, "other": PASSES})


async def test_what_was_never_executed_cannot_be_replayed(tmp_path: Path) -> None:
    await scripted_run(tmp_path / "run")
    rewrite(tmp_path / "run", "other", events=())
    async with replayer(tmp_path / "run", ScriptedSandbox(pass_all)) as again:
        with pytest.raises(NotReplayable, match="nothing was executed"):
            await again.replay("other")
        with pytest.raises(NotReplayable, match="there is no execution 2; it has 1 to 1"):
            await again.replay("passes", number=2)
        with pytest.raises(NotReplayable, match="no evidence"):
            await again.replay("passes", 7)
    with load_run(tmp_path / "run") as view:
        assert [find_segment(view, key) for key in keys_with_tests(view)] == [None, 1]


@pytest.mark.bwrap
@pytest.mark.parametrize("source", ["x\ud800", "def " * 200_000], ids=["surrogate", "long"])
async def test_a_recorded_program_that_nobody_can_read_keeps_no_other_from_its_turn(
    tmp_path: Path, bwrap: BwrapBackend, source: str
) -> None:
    run = tmp_path / "run"
    await make_run(run, bwrap, {"other": PASSES, "strange": PASSES})
    with load_run(run) as view:
        evidence = view.evidence("strange")
    assert evidence is not None
    rewrite(run, "strange", events=changed(evidence, Program, source=source))
    async with replayer(run, bwrap) as again:
        found = {each.id: each async for each in again.replay_all([("other", 0), ("strange", 0)])}
    assert isinstance(found["other"], ReplayResult)
    strange = found["strange"]
    assert isinstance(strange, ReplayFailure)
    assert strange.error.type == "NotReplayable"
    assert strange.error.message.startswith("pair 'strange': its recorded program is none: ")


async def test_a_broken_sandbox_is_no_outcome(tmp_path: Path) -> None:
    await scripted_run(tmp_path / "run")
    async with replayer(tmp_path / "run", ScriptedSandbox(lambda _job: SandboxError("it broke"))) as again:
        found = [each async for each in again.replay_all([("passes", 0)])]
    assert [each.error.type for each in found if isinstance(each, ReplayFailure)] == ["SandboxError"]


async def test_a_language_without_support_is_no_outcome(tmp_path: Path) -> None:
    await scripted_run(tmp_path / "run")
    other = Pair(id="passes", query="q", code=ADD, language="cobol")
    rewrite(tmp_path / "run", "passes", pair=other)
    async with replayer(tmp_path / "run", ScriptedSandbox(pass_all)) as again:
        with pytest.raises(UnsupportedLanguage, match="cobol"):
            await again.replay("passes")


async def test_what_differs_is_run_again_to_tell_whether_it_always_does(tmp_path: Path) -> None:
    run, sandbox = tmp_path / "run", ScriptedSandbox(pass_all)
    await scripted_run(run)
    with load_run(run) as view:
        evidence = view.evidence("passes")
    assert evidence is not None
    [execution] = evidence.tests
    cases = tuple(case.model_copy(update={"outcome": CaseOutcome.FAILED}) for case in execution.report.cases)
    report = execution.report.model_copy(update={"cases": cases})
    rewrite(run, "passes", events=changed(evidence, Execution, report=report))
    async with replayer(run, sandbox) as again:
        assert (await again.replay("passes")).cause == "changed"
    assert len(sandbox.jobs) == 3
    async with replayer(run, sandbox, again=0) as again:
        assert (await again.replay("passes")).cause == "changed"
    assert len(sandbox.jobs) == 4


async def test_a_replayer_needs_no_manifest_of_a_sandbox_of_ours(tmp_path: Path) -> None:
    await scripted_run(tmp_path / "run")
    with load_run(tmp_path / "run") as view:
        with pytest.raises(NotReplayable, match="'scripted', which is none of ours"):
            RecordedSandbox.of(view.manifest, 1)
        again = Replayer(view, ScriptedSandbox(pass_all), RecordedSandbox.of(view.manifest, 1, "auto"))
        assert (await again.replay("passes")).same


REPORT = TestReport(status=Status.PASSED)
STATUS = Difference("status", "", "passed", "failed")
MESSAGE = Difference("message", "test_a", "1", "2")


def ended(*differing: Difference, pair: str, round: int = 0, cause: str | None = None) -> ReplayResult:
    return ReplayResult(pair, round, 1, REPORT, REPORT, differing, cause)  # type: ignore[arg-type]


def test_what_could_not_be_run_is_no_part_of_the_share() -> None:
    tally = ReplayCounts()
    for each in (
        ended(pair="a"),
        ended(pair="b"),
        ended(pair="c"),
        ended(STATUS, MESSAGE, pair="d", cause="changed"),
        ended(MESSAGE, pair="e", cause="flaky"),
        ReplayFailure("q", 0, ErrorInfo(type="LockUnavailable", message="")),
    ):
        tally.add(each)
    found = tally.summarise()
    assert (found["same"], found["different"], found["share"]) == (3, 2, 0.6)
    assert (found["flaky"], found["only_messages"], found["not_run"]) == (1, 1, {"LockUnavailable": 1})
    low, high = proportion_confint(3, 5, method="wilson")
    assert (found["low"], found["high"]) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
