"""Small files that expand without limit end in an error, or are read, with less than a gigabyte of memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

_READ = """
import re, sys
from agent.datasets.reading import read_pairs
try:
    print(len(read_pairs(sys.argv[1])))
except Exception as error:
    print(type(error).__name__)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""
MB = 1 << 20


def write_gzip(path: Path, start: bytes, unit: bytes, size: int, end: bytes = b"") -> None:
    block = gzip.compress(unit * (10 * MB // len(unit)))
    path.write_bytes(gzip.compress(start) + block * (size // (10 * MB)) + gzip.compress(end))


def write_parquet(path: Path, *, dictionary: bool = True, **columns: object) -> None:
    table = pyarrow.table({"query": ["q"], "code": ["c"], **columns})
    pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=dictionary)


def repeat(text: str, count: int) -> pyarrow.DictionaryArray:
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), pyarrow.array([text]))


def list_one(values: pyarrow.Array) -> pyarrow.ListArray:
    """Return a column of one row with a list."""
    return pyarrow.ListArray.from_arrays([0, len(values)], values)


START = b'{"query":"q","code":"c","meta":{"a":['
TEXTS = list_one(repeat("a" * 3_000, 100_000))
BOMBS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a line": ("x.jsonl.gz", lambda path: write_gzip(path, START, b"a", 500 * MB), "InputError"),
    "objects below the limit": ("x.jsonl.gz", lambda p: write_gzip(p, START, b'{"":{}},', 10 * MB, b"[]]}}\n"), "1"),
    "an array": ("x.json.gz", lambda path: write_gzip(path, b"[", b'{"query":"q"},', 500 * MB), "InputError"),
    "an array below the limit": (
        "x.json.gz",
        lambda p: write_gzip(p, b"[" + START, b'{"":{}},', 10 * MB, b"1]}}]"),
        "1",
    ),
    "a row": ("x.csv.gz", lambda path: write_gzip(path, b'query,code\n"', b'\n\n","', 200 * MB), "InputError"),
    "a text": ("x.parquet", lambda path: write_parquet(path, code=["a" * 300 * MB], dictionary=False), "InputError"),
    "a list": ("x.parquet", lambda path: write_parquet(path, list=list_one(pyarrow.nulls(40 * MB))), "InputError"),
    "texts in a list": ("x.parquet", lambda path: write_parquet(path, list=TEXTS), "InputError"),
    "long texts": (
        "x.parquet",
        lambda path: write_parquet(path, query=["q"] * 3000, code=[f"{n}{'a' * 30_000}" for n in range(3000)]),
        "3000",
    ),
    "equal texts": (
        "x.parquet",
        lambda path: write_parquet(path, query=["q"] * 1500, code=repeat("a" * MB, 1500)),
        "1500",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_needs_less_than_a_gigabyte(tmp_path: Path, name: str) -> None:
    file, write, outcome = BOMBS[name]
    write(tmp_path / file)
    assert (tmp_path / file).stat().st_size < 3 * MB
    done = subprocess.run([sys.executable, "-c", _READ, tmp_path / file], capture_output=True, text=True, check=True)
    result, megabytes = done.stdout.split()
    assert (result, int(megabytes) < 1000) == (outcome, True), done.stdout
