"""Dense retrieval is exact, includes all ties, and resumes after any interruption."""

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
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.dense import DenseSearcher, EmbeddedTexts
from agent.retrieval.searchers.presets import Kind
from tests.disks import remount, tiny_disk

CODES = [f"def f{n}(): " + "pass;" * (n % 7) for n in range(200)]


class HashEmbedder:
    """Derives each vector from its text, and records the embedded texts."""

    about, concurrency = "", 1

    def __init__(
        self, vectors: Mapping[str, Sequence[float]] | None = None, dimensions: int = 8, **settings: Any
    ) -> None:
        self.name = "hashes"
        self.settings = settings
        self.embedded: list[str] = []
        self._vectors, self._dimensions = vectors, dimensions

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:  # noqa: ARG002
        self.embedded += texts
        result = [self._vectors[text] if self._vectors else self._hash(text) for text in texts]
        return EmbeddedTexts(np.array(result, dtype=np.float32), {"cut": sum("pass;" * 6 in text for text in texts)})

    def _hash(self, text: str) -> np.ndarray[Any, Any]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).normal(size=self._dimensions)


def silent(_step: str, _done: int, _total: int) -> None:
    return


def stop_at(limit: int) -> Any:
    def progress(_step: str, done: int, _total: int) -> None:
        if done >= limit:
            raise KeyboardInterrupt

    return progress


def search_scores(searcher: Searcher, queries: Sequence[str], depth: int) -> list[dict[int, float]]:
    return [
        dict(zip(result.positions.tolist(), result.scores.tolist(), strict=True))
        for result in searcher.search(queries, depth, silent)
    ]


def test_the_nearest_snippets_are_retrieved_with_their_inner_products(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    searcher = DenseSearcher(embedder, tmp_path)
    searcher.index(CODES, silent)
    queries = [f"query {n}" for n in range(100)]
    vectors = np.array([embedder._hash(code) for code in CODES], dtype=np.float32).astype(float)
    for query, result in zip(queries, search_scores(searcher, queries, 10), strict=True):
        exact = vectors @ embedder._hash(query).astype(np.float32)
        assert list(result) == np.argsort(-exact)[:10].tolist()
        assert list(result.values()) == pytest.approx(np.sort(exact)[::-1][:10], abs=1e-6)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 70))
def test_snippets_tied_with_the_last_one_are_retrieved(tmp_path_factory: Any, values: list[int], depth: int) -> None:
    codes = [f"code {position}" for position in range(len(values))]
    vectors: dict[str, list[float]] = {code: [value, 1.0] for code, value in zip(codes, values, strict=True)}
    searcher = DenseSearcher(HashEmbedder({**vectors, "query": [1.0, 0.0]}), tmp_path_factory.mktemp("ties"))
    searcher.index(codes, silent)
    [result] = search_scores(searcher, ["query"], depth)
    threshold = sorted(values, reverse=True)[min(depth, len(values)) - 1]
    assert result == {position: value for position, value in enumerate(values) if value >= threshold}


def test_equal_vectors_have_equal_scores_at_any_position(tmp_path: Path) -> None:
    vector = np.random.default_rng(1).normal(size=100).tolist()
    codes = [str(n) for n in range(1_000)]
    searcher = DenseSearcher(HashEmbedder({**dict.fromkeys(codes, vector), "query": vector[::-1]}), tmp_path)
    searcher.index(codes, silent)
    [result] = search_scores(searcher, ["query"], 3)
    assert len(result) == 1_000
    assert len(set(result.values())) == 1


def test_an_interrupted_index_resumes_with_stored_vectors(tmp_path: Path) -> None:
    first, second = HashEmbedder(), HashEmbedder()
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(first, tmp_path).index(CODES, stop_at(100))
    resumed = DenseSearcher(second, tmp_path)
    resumed.index(CODES, silent)
    assert sorted(first.embedded[:128] + second.embedded) == sorted(CODES)
    assert [note.split(" snippets")[0] for note in resumed.notes] == ["28 of 200"]

    reference = DenseSearcher(HashEmbedder(), tmp_path / "other")
    reference.index(CODES, silent)
    assert search_scores(resumed, ["a", "b"], 5) == search_scores(reference, ["a", "b"], 5)
    assert [path.read_bytes() for path in sorted(tmp_path.glob("*.f32"))] == [
        path.read_bytes() for path in sorted((tmp_path / "other").glob("*.f32"))
    ]

    third = HashEmbedder()
    repeated = DenseSearcher(third, tmp_path)
    repeated.index(CODES, silent)
    search_scores(repeated, ["a", "b"], 5)
    assert third.embedded == []


def test_no_batches_are_requested_after_an_interruption(tmp_path: Path) -> None:
    stopped = threading.Event()

    class Slow(HashEmbedder):
        concurrency = 4

        def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
            if len(self.embedded) >= 6 * 64:
                stopped.wait()
            return super().embed(texts, kind)

    embedder = Slow()
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(embedder, tmp_path).index([f"code {n}" for n in range(10_000)], stop_at(64))
    stopped.set()
    for thread in threading.enumerate():
        if thread.name.endswith("(worker)"):
            thread.join()
    assert len(embedder.embedded) <= (6 + 4 + 4) * 64


@pytest.mark.parametrize("torn", [b"\0" * 7, b"\0" * 4096])
def test_incomplete_batches_are_embedded_again(tmp_path: Path, torn: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        DenseSearcher(HashEmbedder(), tmp_path).index(CODES, stop_at(128))
    [data], [record] = tmp_path.glob("*.f32"), tmp_path.glob("*.jsonl")
    with data.open("ab") as file:
        file.write(torn)
    with record.open("ab") as file:
        file.write(b'{"rows":200,"dimens')
    embedder = HashEmbedder()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.embedded) == 72
    assert data.stat().st_size == 200 * 8 * 4

    data.write_bytes(data.read_bytes()[: 100 * 8 * 4])
    embedder = HashEmbedder()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.embedded) == 136  # from the first incomplete batch


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
def test_batches_after_a_damaged_line_are_embedded_again(tmp_path: Path, damaged: bytes) -> None:
    DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)
    [record] = tmp_path.glob("*.jsonl")
    lines = record.read_bytes().splitlines()
    record.write_bytes(b"\n".join([lines[0], damaged, *lines[2:], b""]))
    embedder = HashEmbedder()
    DenseSearcher(embedder, tmp_path).index(CODES, silent)
    assert len(embedder.embedded) == 136
    assert record.read_bytes().splitlines() == lines


@pytest.mark.parametrize(
    ("settings", "codes"), [({"pooling": "cls"}, CODES), ({}, CODES[:-1]), ({}, [*CODES[1:], CODES[0]])]
)
def test_texts_are_embedded_again_if_settings_or_texts_change(tmp_path: Path, settings: Any, codes: list[str]) -> None:
    DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)
    embedder = HashEmbedder(**settings)
    DenseSearcher(embedder, tmp_path).index(codes, silent)
    assert sorted(embedder.embedded) == sorted(codes)


def test_a_full_disk_raises_storage_error_and_the_index_can_be_resumed(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        with pytest.raises(StorageError, match="disk"):
            DenseSearcher(HashEmbedder(dimensions=1024), disk).index(CODES, silent)
        remount(disk, "size=4m")
        embedder = HashEmbedder(dimensions=1024)
        DenseSearcher(embedder, disk).index(CODES, silent)
        assert 0 < len(embedder.embedded) < 200
        assert next(disk.glob("*.f32")).stat().st_size == 200 * 1024 * 4


def test_vectors_have_one_writer(tmp_path: Path) -> None:
    class Nested(HashEmbedder):
        def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
            with pytest.raises(RunFolderError, match="in use"):
                DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)
            return super().embed(texts, kind)

    DenseSearcher(Nested(), tmp_path).index(CODES, silent)


def test_links_are_not_followed(tmp_path: Path) -> None:
    DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)
    [data] = tmp_path.glob("*.f32")
    data.rename(tmp_path / "away")
    data.symlink_to(tmp_path / "away")
    with pytest.raises(RunFolderError, match=r"\.f32: .*link"):
        DenseSearcher(HashEmbedder(), tmp_path).index(CODES, silent)


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        ((64, 8), np.nan, "NaN"),
        ((63, 8), 1.0, r"\b63 vectors\b.*\b8 dimensions\b.*\b64 texts"),
        ((64, 9), 1.0, r"\b64 vectors\b.*\b9 dimensions\b.*\b64 texts\b.*\b8 dimensions"),
    ],
)
def test_invalid_vectors_stop_the_run_and_are_not_stored(
    tmp_path: Path, shape: tuple[int, int], value: float, message: str
) -> None:
    class Wrong(HashEmbedder):
        def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
            return super().embed(texts, kind) if not self.embedded else EmbeddedTexts(np.full(shape, value, np.float32))

    with pytest.raises(RunStopped, match=message):
        DenseSearcher(Wrong(), tmp_path).index(CODES, silent)
    assert next(tmp_path.glob("*.f32")).stat().st_size == 64 * 8 * 4


def test_an_empty_corpus_raises_usage_error_and_zero_queries_have_zero_results(tmp_path: Path) -> None:
    searcher = DenseSearcher(HashEmbedder(), tmp_path)
    with pytest.raises(UsageError, match="snippets"):
        searcher.index([], silent)
    searcher.index(CODES, silent)
    assert search_scores(searcher, [], 5) == []
