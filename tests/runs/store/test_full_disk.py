"""A disk that fills up during a run is reported, finished work survives, and the run can be resumed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import StorageError
from agent.runs.store.run_view import load_run
from tests.disks import remount, tiny_disk
from tests.runs.store.samples import commit, make_annotation, make_evidence, open_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with tiny_disk(tmp_path / "tiny") as folder:
        yield folder


def test_a_run_on_a_read_only_disk_can_be_read(tiny: Path) -> None:
    with open_folder(tiny / "run") as folder:
        commit(folder, "1")
    remount(tiny, "ro")
    with load_run(tiny / "run") as run:
        assert run.annotation("1") == make_annotation("1")
        assert run.evidence("1") == make_evidence("1", segment=1)
    with pytest.raises(StorageError, match="read-only"):
        open_folder(tiny / "run")


# A file size limit simulates a full disk without root. Like a full disk, it can interrupt a write in the middle.
LIMITED = """
import resource, sys
from pathlib import Path
from agent.errors import StorageError
from agent.runs.store.annotations import AnnotationLog
from tests.runs.store.samples import make_annotation

log = AnnotationLog(Path(sys.argv[1]) / "annotations.jsonl")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
number = 0
try:
    while True:
        log.append(make_annotation(str(number)))
        number += 1
except StorageError as error:
    print(number)
    print(error)
"""


def test_a_file_size_limit_leaves_only_complete_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    writer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert writer.returncode == 0, writer.stderr
    count, message = writer.stdout.split("\n", 1)
    assert message.startswith(f"{tmp_path / 'annotations.jsonl'}: ")
    content = (tmp_path / "annotations.jsonl").read_bytes()
    assert content.endswith(b"\n")
    assert content.count(b"\n") == int(count) > 5
