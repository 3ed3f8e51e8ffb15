"""reviews.jsonl: lines are complete or absent, and the last line of a reviewer and pair counts."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.errors import RunFolderError, StorageError
from agent.runs.store.reviews import Review, ReviewLog, iterate_reviews, read_reviews

ROOT = Path(__file__).parents[3]


def make_review(pair_id: str = "a", **fields: Any) -> Review:
    defaults = {"label": 1, "reviewer": "ann", "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "blind": True}
    return Review(id=pair_id, **{**defaults, "source": "sample", **fields})


def write(path: Path, *reviews: Review) -> None:
    log = ReviewLog(path)
    for review in reviews:
        log.append(review)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reviews.jsonl"


def test_reviews_round_trip(path: Path) -> None:
    assert read_reviews(path) == []
    hostile = make_review("a\ud800\n\x00", label=None, reason="line\nbreak \u2028 \ud800", round=2, blind=False)
    write(path, hostile, make_review("b"))
    assert read_reviews(path) == [hostile, make_review("b")]
    assert path.read_bytes().decode("utf-8").count("\n") == 2


def test_a_line_has_the_documented_fields(path: Path) -> None:
    write(path, make_review(reason="all of it", source="sample", sample="0f"))
    assert json.loads(path.read_text()) == {
        "schema": 2,
        "id": "a",
        "round": 0,
        "label": 1,
        "reason": "all of it",
        "reviewer": "ann",
        "at": "2026-01-02T03:04:05Z",
        "blind": True,
        "source": "sample",
        "sample": "0f",
    }


def test_the_last_line_of_a_reviewer_and_pair_counts(path: Path) -> None:
    first, other = make_review(label=0), make_review(reviewer="bob", label=0)
    latest = make_review(label=1, blind=False)
    write(path, first, other, make_review("b"), latest)
    assert read_reviews(path) == [other, make_review("b"), latest]
    assert list(iterate_reviews(path)) == [first, other, make_review("b"), latest]


def test_only_the_first_review_of_a_reviewer_and_pair_is_blind(path: Path) -> None:
    first_log, second_log = ReviewLog(path), ReviewLog(path)
    reviews = [
        first_log.append(make_review("a")),
        second_log.append(make_review("a", label=0)),
        second_log.append(make_review("b")),
        second_log.append(make_review("a", reviewer="bob")),
        first_log.append(make_review("b", blind=False)),
    ]
    assert [review.blind for review in reviews] == [True, False, True, True, False]
    assert list(iterate_reviews(path)) == reviews


@pytest.mark.parametrize("length", range(1, 40, 3))
def test_a_truncated_line_is_ignored_and_removed_by_the_next_append(path: Path, length: int) -> None:
    write(path, make_review("a"))
    content = path.read_bytes()
    path.write_bytes(content + content[:length])
    assert read_reviews(path) == [make_review("a")]
    assert path.read_bytes() == content + content[:length]
    write(path, make_review("b"))
    assert read_reviews(path) == [make_review("a"), make_review("b")]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"{\n", ""),
        (b'{"schema":1,"id":"a"}\n', "label: "),
        (
            b'{"schema":1,"id":"a","round":10000000000000000000000000,"label":1,"reviewer":"ann",'
            b'"at":"2026-01-02T03:04:05Z","blind":true}\n',
            "round: ",
        ),
        (b'{"schema":9}\n', "schema 9"),
    ],
)
def test_opening_the_log_locates_a_damaged_complete_line(path: Path, line: bytes, cause: str) -> None:
    write(path, make_review("a"))
    path.write_bytes(path.read_bytes() + line)
    before = path.read_bytes()
    with pytest.raises(RunFolderError, match=rf"reviews\.jsonl:2: .*{cause}"):
        ReviewLog(path)
    assert path.read_bytes() == before


def test_a_review_that_cannot_be_written_leaves_the_file_unchanged(path: Path) -> None:
    log = ReviewLog(path)
    log.append(make_review("a"))
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"reviews\.jsonl: .*ulimit"):
            log.append(make_review("b", reason="x" * 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    log.append(make_review("c"))
    assert [review.id for review in read_reviews(path)] == ["a", "c"]


WRITER = """
import sys
from pathlib import Path
from agent.runs.store.reviews import ReviewLog
from tests.runs.store.test_reviews import make_review

log = ReviewLog(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while number < int(sys.argv[3]):
    log.append(make_review(str(number), reviewer=sys.argv[2], reason="x" * (20_000 if number % 5 == 0 else 10)))
    print(number, flush=True)
    number += 1
"""


def start_writer(path: Path, reviewer: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), reviewer, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_concurrent_reviewers_lose_nothing(path: Path) -> None:
    names = ("ann", "bob", "cleo")
    processes = [start_writer(path, name, 60) for name in names]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    reviews = list(iterate_reviews(path))
    assert path.read_bytes().endswith(b"\n")
    for name in names:
        assert [review.id for review in reviews if review.reviewer == name] == [str(number) for number in range(60)]
