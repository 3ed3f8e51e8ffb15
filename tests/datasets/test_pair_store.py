"""A spool behaves like a list of pairs, and equal pairs produce equal bytes."""

from __future__ import annotations

import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.datasets import sources
from agent.datasets.encoding import dumps, loads
from agent.datasets.pair_store import PairStore, group_by_query, iter_normalised
from agent.datasets.reading import read_pairs
from agent.errors import InputError
from agent.pipeline.history import History
from agent.types import Comparison, Origin, Pair

# All code points, including lone surrogates and NUL.
hostile_text = st.text(st.characters(), max_size=40)
filled_text = hostile_text.filter(lambda text: bool(text.strip()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | hostile_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile_text, inner, max_size=3),
    max_leaves=6,
)
origins = st.builds(
    Origin,
    **dict.fromkeys(("repository", "commit", "name"), hostile_text),
    **dict.fromkeys(("module", "path", "class_name"), st.none() | hostile_text),
    lines=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
pair_lists = st.lists(
    st.builds(
        Pair,
        id=hostile_text.filter(bool),
        query=filled_text,
        code=filled_text,
        language=st.sampled_from(["python", "sql"]),
        context=st.none() | hostile_text,
        origin=st.none() | origins,
        meta=st.dictionaries(hostile_text, json_values, max_size=3),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda pair: pair.id,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=pair_lists)
def test_written_pairs_are_read_back_in_order(tmp_path: Path, pairs: list[Pair]) -> None:
    path = tmp_path / "input.jsonl.gz"
    PairStore(pairs).write(path)
    assert list(iter_normalised(path)) == pairs
    assert list(read_pairs(path)) == pairs


def test_a_comparison_is_read_back_and_its_hash_covers_the_first_snippet(tmp_path: Path) -> None:
    pairs = [Comparison(id=first, query="q", code="b", first=first) for first in "ac"]
    PairStore(pairs).write(tmp_path / "input.jsonl.gz")
    assert list(iter_normalised(tmp_path / "input.jsonl.gz")) == list(PairStore(pairs)) == pairs
    assert History.model_validate(History(pair=pairs[0]).model_dump(mode="json")).pair == pairs[0]
    assert len({pair.input_sha256() for pair in pairs}) == 2


@settings(max_examples=100, deadline=None)
@given(pairs=pair_lists, limit=st.integers(0, 6), part=st.slices(6))
def test_a_spool_behaves_like_a_list_of_the_pairs(pairs: list[Pair], limit: int, part: slice) -> None:
    spool = PairStore(iter(pairs))
    for _ in range(2):
        assert list(spool) == pairs
    assert (len(spool), list(spool.ids())) == (len(pairs), [pair.id for pair in pairs])
    assert [spool[index] for index in range(-len(pairs), len(pairs))] == pairs * 2
    assert spool[part] == pairs[part]
    assert [spool.place(pair.id) for pair in pairs] == [*range(len(pairs))]
    assert spool.place("".join(pair.id for pair in pairs) + "x") is None
    assert list(group_by_query(spool, limit)) == group_by_query(pairs, limit)
    assert list(group_by_query(spool)) == group_by_query(pairs)
    first = {pair.language: pair for pair in reversed(pairs)}
    assert sorted(pair.id for pair in spool.of_each_language()) == sorted(pair.id for pair in first.values())


def test_several_threads_can_iterate_at_once() -> None:
    pairs = [Pair(id=str(number), query=f"q{number % 7}", code="c") for number in range(2_000)]
    spool = PairStore(pairs)
    with ThreadPoolExecutor(4) as threads:
        lists = [threads.submit(list, spool) for _ in range(4)]
        groups = [threads.submit(list, group_by_query(spool)) for _ in range(4)]
    assert all(future.result() == pairs for future in lists)
    assert all(future.result() == group_by_query(pairs) for future in groups)


@settings(max_examples=200, deadline=None)
@given(value=json_values)
def test_any_json_value_survives_as_one_line(value: object) -> None:
    line = dumps(value)
    assert b"\n" not in line
    assert loads(line) == value


def test_equal_pairs_produce_equal_bytes_and_the_hash_covers_the_lines(tmp_path: Path) -> None:
    pairs = [Pair(id="ä", query="q", code="c\ud800", meta={"b": 1, "a": 2}), Pair(id="1", query="q", code="c")]
    first, second = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    PairStore(pairs).write(first)
    PairStore(iter(pairs)).write(second)
    assert first.read_bytes() == second.read_bytes()
    assert PairStore(pairs).sha256 == hashlib.sha256(gzip.decompress(first.read_bytes())).hexdigest()
    changed = pairs[0].model_copy(update={"meta": {"label": 1}})
    assert len({PairStore(variant).sha256 for variant in (pairs, pairs[::-1], [changed, pairs[1]])}) == 3


@pytest.mark.parametrize("value", [object(), {1, 2}])
def test_meta_that_is_not_json_is_rejected(value: object) -> None:
    with pytest.raises(InputError, match="'a'"):
        PairStore([Pair(id="a", query="q", code="c", meta={"x": value})])


def test_an_error_locates_the_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "input.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id":"a","query":"q","code":"c"}\n{"id":1}\n'))
    pairs = iter_normalised(path)
    assert next(pairs).id == "a"
    with pytest.raises(InputError) as caught:
        next(pairs)
    assert caught.value.line == 2


def test_a_line_that_expands_beyond_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(b'{"id": "a", "query": "q", "code": "c"}\n' + bytes(4 << 20))
    monkeypatch.setattr(sources, "LONGEST_LINE", 1 << 20)
    pairs = iter_normalised(path)
    assert next(pairs).id == "a"
    with pytest.raises(InputError, match=r"input\.jsonl\.gz:2: .* 1 MB"):
        next(pairs)
