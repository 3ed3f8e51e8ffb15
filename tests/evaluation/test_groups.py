"""Programs are replayed together that ran under the same conditions, whatever other starts a run had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import NotReplayable
from agent.evaluation.conditions import Group, grouped, told
from agent.evaluation.replay import NotRun, Replayer
from agent.history import Execution
from agent.sandbox.scripted import ScriptedSandbox
from agent.store import load_run
from agent.store.evidence import EvidenceStore
from tests.evaluation.test_conditions import DESCRIBED, LIMITS
from tests.histories import program_of
from tests.scripts import passed
from tests.store.samples import REPORT, commit, make_evidence, open_folder


def start(path: Path, *annotated: str, sandbox: dict[str, str] | None = DESCRIBED, **limits: Any) -> None:
    """Start a run, or go on with it, under these limits, and annotate pairs."""
    environment = {"sandbox": sandbox, "limits": {**LIMITS, **limits}}
    with open_folder(path, environment=environment) as folder:
        for pair_id in annotated:
            commit(folder, pair_id)


def keep(path: Path, pair_id: str, segment: int | None) -> None:
    """Keep evidence as another version, or somebody else, wrote it."""
    store = EvidenceStore(path / "evidence.sqlite")
    store.put(make_evidence(pair_id, segment=segment, events=(program_of(""), Execution(program=0, report=REPORT))))
    store.close()


def parted(path: Path, *pairs: str) -> list[tuple[int, list[str]]]:
    """Return the memory that each group's programs had, and their pairs."""
    with load_run(path) as view:
        groups = grouped(view, [(pair, 0) for pair in pairs])
        return [(group.conditions.config.sandbox.memory_mb, [pair for pair, _ in group.keys]) for group in groups]


def test_programs_are_parted_by_the_limits_of_the_start_that_annotated_them(tmp_path: Path) -> None:
    start(tmp_path / "r", "0", memory_mb=1024)
    start(tmp_path / "r", "1", memory_mb=256)
    start(tmp_path / "r", "2", memory_mb=1024)
    start(tmp_path / "r", memory_mb=300)
    assert parted(tmp_path / "r", "0", "1", "2") == [(1024, ["0", "2"]), (256, ["1"])]
    assert parted(tmp_path / "r", "1") == [(256, ["1"])]


def test_where_all_starts_are_alike_no_evidence_is_read(tmp_path: Path) -> None:
    for pair in "01":
        start(tmp_path / "r", pair, memory_mb=300)
    (tmp_path / "r" / "evidence.sqlite").unlink()
    assert parted(tmp_path / "r", "0", "1") == [(300, ["0", "1"])]


def test_evidence_that_does_not_name_its_start_is_taken_for_the_last_with_a_sandbox(tmp_path: Path) -> None:
    start(tmp_path / "r", "0", memory_mb=1024)
    start(tmp_path / "r", "1", memory_mb=256)
    start(tmp_path / "r", sandbox=None)
    keep(tmp_path / "r", "0", None)
    assert parted(tmp_path / "r", "0") == [(256, ["0"])]
    with load_run(tmp_path / "r") as view:
        [group] = grouped(view, [("0", 0)])
    assert "limits.memory_mb changed while the run was made, from 1024 to 256; it is taken for 256" in (
        group.conditions.notes
    )


def test_a_start_by_a_sandbox_of_its_own_refuses_only_what_it_annotated(tmp_path: Path) -> None:
    start(tmp_path / "r", "0")
    start(tmp_path / "r", "1", sandbox={"backend": "chroot"})
    assert parted(tmp_path / "r", "0") == [(LIMITS["memory_mb"], ["0"])]
    with pytest.raises(NotReplayable, match="none of ours"):
        parted(tmp_path / "r", "0", "1")


async def test_what_names_a_start_that_the_manifest_lacks_is_not_run(tmp_path: Path) -> None:
    start(tmp_path / "r", "0")
    keep(tmp_path / "r", "0", 7)
    with load_run(tmp_path / "r") as view:
        [group] = grouped(view, [("0", 0)])
        again = Replayer(view, ScriptedSandbox(passed), group.conditions)
        [found] = [each async for each in again.replay_all(group.keys)]
    assert isinstance(found, NotRun)
    assert found.error.message == "segment 7 of the run's manifest had no sandbox: it executed nothing"


def test_notes_say_of_which_programs_they_are(tmp_path: Path) -> None:
    start(tmp_path / "r", "0", memory_mb=1024)
    start(tmp_path / "r", "1", "2", memory_mb=256, cpus=2.0)
    with load_run(tmp_path / "r") as view:
        groups = grouped(view, [(pair, 0) for pair in "012"])
    first, second = "memory_mb 1024, cpus 0.5", "memory_mb 256, cpus 2.0"
    own = "each runs again with its own, unless another note says otherwise"
    assert list(told(groups, [["kernel", "memory"], ["kernel"]])) == [
        f"the run's programs ran with {first} (1 program) and {second} (2 programs); {own}",
        "kernel",
        f"of programs that ran with {first}: memory",
    ]
    assert list(told([Group(groups[0].conditions)], [["kernel"]])) == ["kernel"]
