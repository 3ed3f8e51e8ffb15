"""Untrusted run folders: nothing outside is written, and no pipe or socket blocks the reader."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.datasets.pair_store import iter_normalised
from agent.errors import InputError, RunFolderError
from agent.runs.store import files
from agent.runs.store.annotations import AnnotationIndex, AnnotationLog
from agent.runs.store.batches import BatchStore
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.database import Database
from agent.runs.store.evidence import EvidenceStore
from agent.runs.store.files import lock_folder, open_draft, replacing
from agent.runs.store.manifest import read_manifest
from agent.runs.store.reviews import ReviewLog, read_reviews
from agent.runs.store.run_view import load_run
from agent.runs.store.samples import read_sample
from tests.runs.store.samples import commit, make_evidence, open_folder
from tests.runs.store.test_reviews import make_review

SECRET = b"no newline at the end"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with open_folder(path) as run:
        commit(run, "0")
    return path


def replace_content(path: Path, content: bytes) -> None:
    with replacing(path) as draft:
        draft.write_bytes(content)


class TestReplacing:
    def test_a_link_is_replaced_and_not_followed(self, tmp_path: Path) -> None:
        victim = tmp_path / "bashrc"
        victim.write_bytes(SECRET)
        (tmp_path / "report.html").symlink_to(victim)
        replace_content(tmp_path / "report.html", b"new")
        assert (victim.read_bytes(), (tmp_path / "report.html").is_symlink()) == (SECRET, False)

    def test_a_failed_replacement_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        replace_content(path, b"old")

        def interrupt() -> None:
            with replacing(path) as draft:
                draft.write_bytes(b"half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("report.html", b"old")]

    @pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_a_new_file_respects_the_umask_and_a_replaced_one_keeps_its_mode(
        self, tmp_path: Path, mask: int, mode: int
    ) -> None:
        path, before = tmp_path / "new", os.umask(mask)
        try:
            replace_content(path, b"x")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o640)
        replace_content(path, b"y")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def kill_while_writing(path: Path, *, is_folder: bool) -> Path:
    """Let a process be killed while it writes. Return the draft that it leaves behind."""
    before = set(path.parent.iterdir())
    if (child := os.fork()) == 0:
        with open_draft(path, is_folder=is_folder) as draft:
            (draft / "part" if is_folder else draft).write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("name", ["out", "a" * 80])
def test_the_next_write_removes_the_drafts_of_killed_writers_but_not_of_running_ones(
    tmp_path: Path, name: str, is_folder: bool
) -> None:
    path = tmp_path / name
    others = [tmp_path / other for other in (".out.tmp", ".out.0123456789abcdef.swp", ".other.0123456789abcdef.tmp")]
    for other in others:
        other.touch()
    link = tmp_path / ".out.0123456789abcdef.tmp"
    link.symlink_to(others[0])
    with open_draft(path, is_folder=is_folder) as running:
        killed = kill_while_writing(path, is_folder=is_folder)
        with open_draft(path, is_folder=is_folder) as draft:
            assert (killed.exists(), running.exists(), draft.exists()) == (False, True, True)
    assert set(tmp_path.iterdir()) == {*others, link}


def list_writers(folder: Path) -> dict[str, Callable[[], object]]:
    return {
        files.REVIEWS: lambda: ReviewLog(folder / files.REVIEWS).append(make_review()),
        files.ANNOTATIONS: lambda: AnnotationLog(folder / files.ANNOTATIONS),
        files.LOCK: lambda: lock_folder(folder),
        files.EVIDENCE: lambda: EvidenceStore(folder / files.EVIDENCE).put(make_evidence()),
        f"{files.EVIDENCE}-wal": lambda: EvidenceStore(folder / files.EVIDENCE),
        f"{files.EVIDENCE}-shm": lambda: EvidenceStore(folder / files.EVIDENCE, read_only=True),
    }


@pytest.mark.parametrize("name", list_writers(Path()))
@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_written_or_created_through_a_link(folder: Path, tmp_path: Path, name: str, exists: bool) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_bytes(SECRET)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    with pytest.raises(RunFolderError, match=f"{name}: .*link"):
        list_writers(folder)[name]()
    assert target.exists() == exists
    assert not exists or target.read_bytes() == SECRET


def test_a_run_of_links_can_be_read(folder: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for entry in folder.iterdir():
        (links / entry.name).symlink_to(entry)
    with load_run(links) as run:
        assert [annotation.id for annotation in run.annotations()] == ["0"]
        assert run.evidence("0") == make_evidence("0", segment=1)
        assert len(list(run.pairs())) == 3


@pytest.fixture
def time_limit() -> Iterator[None]:
    """Raise `TimeoutError` in a test that blocks."""

    def time_out(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, time_out)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    working_folder = Path.cwd()
    os.chdir(path.parent)  # socket addresses have a small length limit
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(working_folder)


READERS: dict[str, Callable[[Path], object]] = {
    files.REVIEWS: read_reviews,
    files.REVIEW_SAMPLE: read_sample,
    files.MANIFEST: read_manifest,
    files.ANNOTATIONS: AnnotationIndex,
    files.INPUT: lambda path: list(iter_normalised(path)),
    files.EVIDENCE: lambda path: EvidenceStore(path, read_only=True),
    f"{files.EVIDENCE}-wal": lambda path: EvidenceStore(path.with_name(files.EVIDENCE), read_only=True),
    f"{files.EVIDENCE}-journal": lambda path: EvidenceStore(path.with_name(files.EVIDENCE), read_only=True),
}


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [make_pipe, make_socket])
def test_a_reader_refuses_pipes_and_sockets(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises((RunFolderError, InputError), match=r"a pipe|regular file"):
        READERS[name](folder / name)


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("name", list_writers(Path()))
def test_a_writer_refuses_a_pipe(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(RunFolderError, match=r"a pipe|regular file"):
        list_writers(folder)[name]()


@pytest.mark.parametrize("store", [EvidenceStore, SqliteReplyCache, BatchStore])
@pytest.mark.parametrize("name", ["clean", "sqlite_clean"])
def test_a_database_with_a_trigger_is_rejected_whatever_its_name(
    tmp_path: Path, store: type[Database], name: str
) -> None:
    path = tmp_path / "file.sqlite"
    store(path).close()
    table = store.tables.split()[2]
    trigger = f"CREATE TRIGGER {name} AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(trigger.replace(name, "plain"))
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = ?, sql = ? WHERE type = 'trigger'", (name, trigger))
        connection.commit()
    for read_only in (False, True):
        with pytest.raises(RunFolderError, match=str(path)):
            store(path, read_only=read_only)
