"""Searching by vectors: exact, with all ties, and gone on with after whatever ended it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import RunFolderError, RunStopped, StorageError, UsageError
from agent.retrieval.searchers.dense import DenseSearcher, EmbeddedTexts
from agent.retrieval.searchers.recipes import Kind
from tests.disks import remount, tiny_disk

CODES = [f"def f{n}(): " + "pass;" * (n % 7) for n in range(200)]


class Hashes:
    """Gives each text a vector that depends on the text alone, and notes what it was asked for."""

    about, concurrency = "", 1

    def __init__(
        self, vectors: Mapping[str, Sequence[float]] | None = None, dimensions: int = 8, **settings: Any
    ) -> None:
        self.name = "hashes"
        self.settings = settings
        self.asked: list[str] = []
        self._vectors, self._dimensions = vectors, dimensions

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:  # noqa: ARG002
        self.asked += texts
        found = [self._vectors[text] if self._vectors else self._hash(text) for text in texts]
        return EmbeddedTexts(np.array(found, dtype=np.float32), {"cut": sum("pass;" * 6 in text for text in texts)})

    def _hash(self, text: str) -> np.ndarray[Any, Any]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).normal(size=self._dimensions)


def silent(_what: str, _done: int, _all: int) -> None:
    return


def ended_at(most: int) -> Any:
    def progress(_what: str, done: int, _all: int) -> None:
        if done >= most:
            raise KeyboardInterrupt

    return progress


def scores(searcher: DenseSearcher, queries: Sequence[str], depth: int) -> list[dict[int, float]]:
    return [
        dict(zip(found.positions.tolist(), found.scores.tolist(), strict=True))
        for found in searcher.search(queries, depth, silent)
    ]


def test_the_nearest_codes_are_found_with_their_inner_products(tmp_path: Path) -> None:
    embedder = Hashes()
    searcher = DenseSearcher(embedder, tmp_path)
    searcher.index(CODES, silent)
    queries = [f"query {n}" for n in range(100)]
    vectors = np.array([embedder._hash(code) for code in CODES], dtype=np.float32).astype(float)
    for query, found in zip(queries, scores(searcher, queries, 10), strict=True):
        exact = vectors @ embedder._hash(query).astype(np.float32)
        assert list(found) == np.argsort(-exact)[:10].tolist()
        assert list(found.values()) == pytest.approx(np.sort(exact)[::-1][:10], abs=1e-6)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 70))
def test_all_codes_that_tie_with_the_last_are_found(tmp_path_factory: Any, values: list[int], depth: int) -> None:
    codes = [f"code {at}" for at in range(len(values))]
    vectors: dict[str, list[float]] = {code: [value, 1.0] for code, value in zip(codes, values, strict=True)}
    searcher = DenseSearcher(Hashes({**vectors, "query": [1.0, 0.0]}), tmp_path_factory.mktemp("ties"))
    searcher.index(codes, silent)
    [found] = scores(searcher, ["query"], depth)
    least = sorted(values, reverse=True)[min(depth, len(values)) - 1]
    assert found == {at: value for at, value in enumerate(values) if value >= least}


def test_equal_vectors_have_equal_scores_wherever_they_stand(tmp_path: Path) -> None:
    vector = np.random.default_rng(1).normal(size=100).tolist()
    codes = [str(n) for n in range(1_000)]
    searcher = DenseSearcher(Hashes({**dict.fromkeys(codes, vector), "query": vector[::-1]}), tmp_path)
    searcher.index(codes, silent)
    [found] = scores(searcher, ["query"], 3)
    assert len(found) == 1_000
    assert len(set(found.values())) == 1


def test_what_was_embedded_is_kept_and_nothing_of_it_is_asked_for_again(tmp_path: Path) -> None:
    first, second = Hashes(), Hashes()
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(first, tmp_path).index(CODES, ended_at(100))
    resumed = DenseSearcher(second, tmp_path)
    resumed.index(CODES, silent)
    assert sorted(first.asked[:128] + second.asked) == sorted(CODES)
    assert resumed.notes == ("28 of 200 codes are longer than the model takes, and were cut",)

    whole = DenseSearcher(Hashes(), tmp_path / "other")
    whole.index(CODES, silent)
    assert scores(resumed, ["a", "b"], 5) == scores(whole, ["a", "b"], 5)
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*.f32"))] == [
        path.read_bytes() for path in sorted((tmp_path / "other").glob("*.f32"))
    ]

    third = Hashes()
    again = DenseSearcher(third, tmp_path)
    again.index(CODES, silent)
    scores(again, ["a", "b"], 5)
    assert third.asked == []


def test_nothing_more_is_asked_for_once_the_command_is_stopped(tmp_path: Path) -> None:
    stopped = threading.Event()

    class Slow(Hashes):
        concurrency = 4

        def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
            if len(self.asked) >= 6 * 64:
                stopped.wait()
            return super().embed(texts, kind)

    embedder = Slow()
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(embedder, tmp_path).index([f"code {n}" for n in range(10_000)], ended_at(64))
    stopped.set()
    for thread in threading.enumerate():
        if thread.name.endswith("(worker)"):
            thread.join()
    assert len(embedder.asked) <= (6 + 4 + 4) * 64


@pytest.mark.parametrize("torn", [b"\0" * 7, b"\0" * 4096])
def test_vectors_without_their_line_and_lines_without_their_vectors_are_made_again(tmp_path: Path, torn: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(Hashes(), tmp_path).index(CODES, ended_at(128))
    [data], [record] = tmp_path.glob("*.f32"), tmp_path.glob("*.jsonl")
    with data.open("ab") as file:
        file.write(torn)
    with record.open("ab") as file:
        file.write(b'{"rows":200,"dimens')
    embedder = Hashes()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.asked) == 72
    assert data.stat().st_size == 200 * 8 * 4

    data.write_bytes(data.read_bytes()[: 100 * 8 * 4])
    embedder = Hashes()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.asked) == 136  # from the first batch that is not whole


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"rows":"128","dimensions":[8],"counts":{}}',
        b'{"rows":-1,"dimensions":8,"counts":{}}',
        b'{"rows":128,"dimensions":8,"counts":{"cut":"many"}}',
        b'{"rows":128,"dimensions":8,"counts":1}',
        b"[1]",
        b"\xff",
    ],
)
def test_from_a_damaged_line_on_vectors_are_made_again(tmp_path: Path, damaged: bytes) -> None:
    DenseSearcher(Hashes(), tmp_path).index(CODES, silent)
    [record] = tmp_path.glob("*.jsonl")
    lines = record.read_bytes().splitlines()
    record.write_bytes(b"\n".join([lines[0], damaged, *lines[2:], b""]))
    embedder = Hashes()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.asked) == 136
    assert record.read_bytes().splitlines() == lines


@pytest.mark.parametrize(
    ("settings", "codes"), [({"pooling": "cls"}, CODES), ({}, CODES[:-1]), ({}, [*CODES[1:], CODES[0]])]
)
def test_other_settings_or_codes_are_embedded_anew(tmp_path: Path, settings: Any, codes: list[str]) -> None:
    DenseSearcher(Hashes(), tmp_path).index(CODES, silent)
    embedder = Hashes(**settings)
    DenseSearcher(embedder, tmp_path).index(codes, silent)
    assert sorted(embedder.asked) == sorted(codes)


def test_a_full_disk_is_an_error_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        with pytest.raises(StorageError, match="the disk is full"):
            DenseSearcher(Hashes(dimensions=1024), disk).index(CODES, silent)
        remount(disk, "size=4m")
        embedder = Hashes(dimensions=1024)
        DenseSearcher(embedder, disk).index(CODES, silent)
        assert 0 < len(embedder.asked) < 200
        assert next(disk.glob("*.f32")).stat().st_size == 200 * 1024 * 4


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    DenseSearcher(Hashes(), tmp_path).index(CODES, silent)
    [data] = tmp_path.glob("*.f32")
    data.rename(tmp_path / "away")
    data.symlink_to(tmp_path / "away")
    with pytest.raises(RunFolderError, match="is a link"):
        DenseSearcher(Hashes(), tmp_path).index(CODES, silent)


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        ((64, 8), np.nan, "no finite numbers"),
        ((63, 8), 1.0, "gave 63 vectors of 8 dimensions for 64 texts"),
        ((64, 9), 1.0, "gave 64 vectors of 9 dimensions for 64 texts, and 8 dimensions before"),
    ],
)
def test_what_is_no_vector_for_each_text_is_an_error_and_not_kept(
    tmp_path: Path, shape: tuple[int, int], value: float, message: str
) -> None:
    class Wrong(Hashes):
        def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
            return super().embed(texts, kind) if not self.asked else EmbeddedTexts(np.full(shape, value, np.float32))

    with pytest.raises(RunStopped, match=message):
        DenseSearcher(Wrong(), tmp_path).index(CODES, silent)
    assert next(tmp_path.glob("*.f32")).stat().st_size == 64 * 8 * 4


def test_no_codes_are_an_error_and_no_queries_find_nothing(tmp_path: Path) -> None:
    searcher = DenseSearcher(Hashes(), tmp_path)
    with pytest.raises(UsageError, match="no codes"):
        searcher.index([], silent)
    searcher.index(CODES, silent)
    assert scores(searcher, [], 5) == []
