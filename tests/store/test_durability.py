"""A crash of the machine loses the last seconds at most, and every annotation that is left has its evidence.

The crash is simulated by what it leaves: files up to where they were synced, or any further byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import StorageError
from agent.store import SqliteReplyCache, run_folder
from agent.store.verify import verify
from tests.store.samples import make_annotation, make_error, make_evidence, open_folder

PAIRS = "abcdefgh"
SYNCED = 3
SHA = make_evidence().pair.input_sha256()
WAL, LINES = "evidence.sqlite-wal", "annotations.jsonl"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were synced, in order."""
    names, sync = list[str](), os.fsync

    def spy(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    return names


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync with each annotation."""
    monkeypatch.setattr(run_folder, "SECONDS_BETWEEN_SYNCS", 0.0)


class TestOrder:
    def test_replies_are_synced_before_evidence_and_evidence_before_annotations(
        self, tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ordered, now = ["cache.sqlite-wal", WAL, LINES], 100.0
        monkeypatch.setattr(run_folder.time, "monotonic", lambda: now)
        with SqliteReplyCache(tmp_path / "cache.sqlite") as cache:
            with open_folder(tmp_path / "run", cache=cache) as folder:
                for now, expected in ((104.9, []), (105.0, ordered), (109.0, []), (110.0, ordered)):
                    synced.clear()
                    folder.commit(make_annotation(str(now)), make_evidence(str(now)))
                    assert [name for name in synced if name in ordered] == expected
                synced.clear()
            assert [name for name in synced if name in ordered][:3] == ordered

    @pytest.mark.usefixtures("often")
    def test_a_disk_that_fails_ends_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        with open_folder(tmp_path / "run") as folder, monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with pytest.raises(StorageError, match=r"evidence\.sqlite: cannot be written: the disk reports"):
                folder.commit(make_annotation("0"), make_evidence("0"))


@pytest.fixture(scope="module")
def in_progress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, int]]:
    """A run in progress, and the sizes of its log of evidence and its annotations when they were synced."""
    path = tmp_path_factory.mktemp("in-progress") / "run"
    with open_folder(path, pairs=PAIRS) as folder:
        for number, pair_id in enumerate(PAIRS, start=1):
            folder.commit(make_error(pair_id, input_sha256=SHA), make_evidence(pair_id))
            if number == SYNCED:
                sizes = [(path / name).stat().st_size for name in (WAL, LINES)]
        yield path, sizes[0], sizes[1]


def crash(path: Path, left: Path, *, evidence: int | None = None, annotations: int | None = None) -> None:
    """Copy what a crash leaves: these many bytes of the log of evidence and of the annotations."""
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(path, left)
    (left / "evidence.sqlite-shm").unlink()
    for name, size in ((WAL, evidence), (LINES, annotations)):
        if size is not None:
            os.truncate(left / name, size)


class TestCrash:
    def test_annotations_since_the_last_sync_are_annotated_again_where_their_evidence_is_lost(
        self, tmp_path: Path, in_progress: tuple[Path, int, int]
    ) -> None:
        run, evidence, _ = in_progress
        crash(run, tmp_path / "run", evidence=evidence)
        with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
            assert [found.id for found in folder.annotations()] == list(PAIRS[:SYNCED])
            assert folder.notes == (
                "the evidence of the last 5 annotations was lost, as by a crash of the machine: "
                "their pairs are annotated again",
            )

    @given(data=st.data())
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_whatever_part_of_the_last_seconds_is_left_the_run_goes_on_whole(
        self, tmp_path: Path, in_progress: tuple[Path, int, int], data: st.DataObject
    ) -> None:
        run, evidence, annotations = in_progress
        left = [
            data.draw(st.integers(least, (run / name).stat().st_size))
            for name, least in ((WAL, evidence), (LINES, annotations))
        ]
        crash(run, tmp_path / "run", evidence=left[0], annotations=left[1])
        with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
            kept = [found.id for found in folder.annotations()]
            assert kept[:SYNCED] == list(PAIRS[:SYNCED])
            assert kept == list(PAIRS[: len(kept)])
            for pair_id in PAIRS[len(kept) :]:
                folder.commit(make_error(pair_id, input_sha256=SHA), make_evidence(pair_id))
        found = verify(tmp_path / "run")
        assert (found.problems, found.missing) == ([], 0)

    def test_no_annotation_is_lost_with_evidence_that_was_moved_away_even_when_killed_again(
        self, tmp_path: Path, in_progress: tuple[Path, int, int]
    ) -> None:
        crash(in_progress[0], tmp_path / "run")
        for name in ("evidence.sqlite", WAL):
            (tmp_path / "run" / name).unlink()
        for _ in range(2):
            with open_folder(tmp_path / "run", pairs=PAIRS) as folder:
                assert len(list(folder.annotations())) == len(PAIRS)
                crash(tmp_path / "run", tmp_path / "killed")
            shutil.rmtree(tmp_path / "run")
            (tmp_path / "killed").rename(tmp_path / "run")
