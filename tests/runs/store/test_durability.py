"""A machine crash loses at most the last seconds, and every remaining annotation has its evidence.

The tests simulate the files after a crash: they end where they were last synced, or at any later byte.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import StorageError
from agent.runs.store import run_folder
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.verify import verify
from tests.runs.store.samples import make_annotation, make_error, make_evidence, open_folder

PAIRS = "abcdefgh"
SYNCED = 3
SHA = make_evidence().pair.input_sha256()
WAL, LINES = "evidence.sqlite-wal", "annotations.jsonl"


@pytest.fixture
def synced_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of synced files, in order."""
    names, sync = list[str](), os.fsync

    def spy(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    return names


class TestOrder:
    def test_replies_are_synced_before_evidence_and_evidence_before_annotations(
        self, tmp_path: Path, synced_names: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        in_order, now = ["cache.sqlite-wal", WAL, LINES], 100.0
        monkeypatch.setattr(run_folder.time, "monotonic", lambda: now)
        with SqliteReplyCache(tmp_path / "cache.sqlite") as cache:
            with open_folder(tmp_path / "run", cache=cache) as folder:
                for now, expected in ((104.9, []), (105.0, in_order), (109.0, []), (110.0, in_order)):
                    synced_names.clear()
                    folder.commit(make_annotation(str(now)), make_evidence(str(now)))
                    assert [name for name in synced_names if name in in_order] == expected
                synced_names.clear()
            assert [name for name in synced_names if name in in_order][:3] == in_order

    def test_a_failing_disk_stops_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(run_folder, "SECONDS_BETWEEN_SYNCS", 0.0)
        with open_folder(tmp_path / "run") as folder, monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with pytest.raises(StorageError, match=r"evidence\.sqlite: "):
                folder.commit(make_annotation("0"), make_evidence("0"))


@pytest.fixture(scope="module")
def run_in_progress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, int]]:
    """A run in progress, and the sizes of its evidence log and annotations when they were synced."""
    path = tmp_path_factory.mktemp("in-progress") / "run"
    with open_folder(path, pairs=PAIRS) as folder:
        for number, pair_id in enumerate(PAIRS, start=1):
            folder.commit(make_error(pair_id, input_sha256=SHA), make_evidence(pair_id))
            if number == SYNCED:
                sizes = [(path / name).stat().st_size for name in (WAL, LINES)]
        yield path, sizes[0], sizes[1]


def copy_after_crash(path: Path, copy: Path, *, evidence: int | None = None, annotations: int | None = None) -> None:
    """Copy a run with the files truncated to these sizes, as after a crash."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    (copy / "evidence.sqlite-shm").unlink()
    for name, size in ((WAL, evidence), (LINES, annotations)):
        if size is not None:
            os.truncate(copy / name, size)


class TestCrash:
    def test_annotations_without_evidence_since_the_last_sync_are_repeated(
        self, tmp_path: Path, run_in_progress: tuple[Path, int, int]
    ) -> None:
        run, evidence, _ = run_in_progress
        copy_after_crash(run, tmp_path / "run", evidence=evidence)
        with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
            assert [annotation.id for annotation in folder.annotations()] == list(PAIRS[:SYNCED])
            assert [re.findall(r"\d+", note) for note in folder.notes] == [["5"]]

    @given(data=st.data())
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_run_resumes_completely_after_any_partial_loss_since_the_last_sync(
        self, tmp_path: Path, run_in_progress: tuple[Path, int, int], data: st.DataObject
    ) -> None:
        run, evidence, annotations = run_in_progress
        sizes = [
            data.draw(st.integers(least, (run / name).stat().st_size))
            for name, least in ((WAL, evidence), (LINES, annotations))
        ]
        copy_after_crash(run, tmp_path / "run", evidence=sizes[0], annotations=sizes[1])
        with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
            ids = [annotation.id for annotation in folder.annotations()]
            assert ids[:SYNCED] == list(PAIRS[:SYNCED])
            assert ids == list(PAIRS[: len(ids)])
            for pair_id in PAIRS[len(ids) :]:
                folder.commit(make_error(pair_id, input_sha256=SHA), make_evidence(pair_id))
        findings = verify(tmp_path / "run")
        assert (findings.problems, findings.missing) == ([], 0)

    def test_annotations_survive_missing_evidence_even_after_another_kill(
        self, tmp_path: Path, run_in_progress: tuple[Path, int, int]
    ) -> None:
        copy_after_crash(run_in_progress[0], tmp_path / "run")
        for name in ("evidence.sqlite", WAL):
            (tmp_path / "run" / name).unlink()
        for _ in range(2):
            with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
                assert len(list(folder.annotations())) == len(PAIRS)
                copy_after_crash(tmp_path / "run", tmp_path / "killed")
            shutil.rmtree(tmp_path / "run")
            (tmp_path / "killed").rename(tmp_path / "run")
