"""TempDatabase tables are on disk and disappear with the process. A full disk raises an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import InputError
from agent.temp_database import TempDatabase, as_key, from_key
from tests.disks import tiny_disk

TABLE = "CREATE TABLE notes (number INTEGER PRIMARY KEY, text BLOB)"
FILL = f"""
import os
from agent.errors import StorageError
from agent.temp_database import TempDatabase

scratch = TempDatabase({TABLE!r})
try:
    scratch.execute_many("INSERT INTO notes VALUES (?, ?)", ((number, os.urandom(1000)) for number in range(20_000)))
    rows = scratch.execute("SELECT count(*), sum(length(text)) FROM notes")
    with open("/proc/self/status") as file:
        print(rows, next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS")))
except StorageError as error:
    print(type(error).__name__, error)
"""


def fill_table(folder: Path) -> str:
    """Write 20 MB to a table in the folder from another process, and return its output."""
    environment = {**os.environ, "SQLITE_TMPDIR": str(folder)}
    return subprocess.run([sys.executable, "-c", FILL], env=environment, text=True, capture_output=True).stdout


def test_only_changed_rows_are_counted_and_rows_can_be_written_during_iteration() -> None:
    scratch = TempDatabase(TABLE)
    assert scratch.execute_many("INSERT OR IGNORE INTO notes VALUES (?, ?)", [(n, b"x") for n in (1, 2, 2, 3)]) == 3
    rows = scratch.iterate("SELECT number FROM notes ORDER BY number")
    assert next(rows) == (1,)
    scratch.execute_many("INSERT INTO notes VALUES (?, ?)", [(n, b"x") for n in range(10, 500)])
    assert scratch.execute("SELECT count(*) FROM notes") == [(493,)]
    assert [number for (number,) in rows][:2] == [2, 3]


def test_a_value_may_have_at_most_256_megabytes() -> None:
    with pytest.raises(InputError):
        TempDatabase(TABLE).execute("SELECT zeroblob(300000000)")


def test_keys_sort_like_their_texts() -> None:
    texts = ["", "\x00", "a", "a\x00", "ä", "\ud800", "\ue000", "\U0001f600"]
    assert sorted(map(as_key, texts)) == [as_key(text) for text in sorted(texts)]
    assert [from_key(as_key(text)) for text in texts] == texts


def test_the_file_is_unnamed_and_on_disk(tmp_path: Path) -> None:
    rows, _, megabytes = fill_table(tmp_path).rpartition(" ")
    assert rows == "[(20000, 20000000)]"
    assert int(megabytes) < 45  # Python and pydantic need 30 MB
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_raises_a_storage_error_with_a_remedy(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        output = fill_table(disk)
    assert "StorageError" in output
    assert "SQLITE_TMPDIR" in output
