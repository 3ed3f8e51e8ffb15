"""Assignment of pairs to parts: leaks, ratios, sizes, seeds and the fields of rules."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.labelled import read_labelled
from agent.corpus.split import PARTS, Rule, SplitPair, SplitRules, describe_split, find_groups, split_pairs
from agent.errors import InputError, UsageError

RULES: tuple[Rule, ...] = ("query", "code", "repository", "time", "pair")
QUERIES = [
    "sort a list",
    "Sort  a list",
    "sort a list.",
    "read a file",
    "open url",
    "x",
    "",
    "join strings with commas",
]
CODES = ["def f(a, b): return a + b", "def f(a, b):  return a + b", "def g(): pass", "h()", "print(1)", "x"]


def ignore(*_: object) -> None:
    """Ignore progress."""


def split(pairs: Sequence[SplitPair], by: Rule = "query", **rules: Any) -> list[str]:
    return split_pairs(pairs, SplitRules(by, field="f", **rules), ignore)


def group(pairs: Sequence[SplitPair], by: Rule) -> list[Sequence[Hashable]]:
    return find_groups(pairs, SplitRules(by, field="f"), ignore)


def make_pairs(count: int, per_query: int = 1, **fields: Any) -> list[SplitPair]:
    """Return pairs with different codes. `per_query` consecutive pairs have the same query."""
    names = (random.Random(number // per_query).randbytes(12).hex() for number in range(count))
    return [SplitPair(f"p{n}", name, f"code {n} {name} {n * n}", **fields) for n, name in enumerate(names)]


@st.composite
def pair_lists(draw: st.DrawFn) -> list[SplitPair]:
    """Lists of pairs that share queries, codes and values."""
    rows = st.tuples(
        st.sampled_from(QUERIES) | st.text("ab ", max_size=5),
        st.sampled_from(CODES) | st.text("ab ", max_size=5),
        st.sampled_from([0, 1, None]),
        st.sampled_from(["1", "2", "3.5"]),
    )
    return [SplitPair(str(number), *row) for number, row in enumerate(draw(st.lists(rows, min_size=1, max_size=40)))]


ratios = st.tuples(*[st.integers(0, 9)] * 3).filter(any)


def measure_largest(keys: Sequence[Hashable]) -> int:
    return max(Counter(keys).values())


@given(pairs=pair_lists(), by=st.sampled_from(RULES), shares=ratios, seed=st.integers(0, 5))
def test_no_group_of_the_rule_is_in_two_parts(
    pairs: list[SplitPair], by: Rule, shares: tuple[int, int, int], seed: int
) -> None:
    result = split(pairs, by, ratios=shares, seed=seed)
    names = {"query": "query", "code": "query code", "repository": "query value", "time": "value", "pair": "id"}[by]
    texts = [[getattr(pair, name) for pair in pairs] for name in names.split()]
    for keys in (*texts, *group(pairs, by)):
        parts = defaultdict[Hashable, set[str]](set)
        for key, part in zip(keys, result, strict=True):
            parts[key].add(part)
        assert all(len(found & set(PARTS)) < 2 for found in parts.values())
    shared = describe_split(pairs, result).shared_between_parts
    assert by in ("time", "pair") or not shared["queries"]
    assert by != "code" or not shared["codes"]


@given(pairs=pair_lists(), by=st.sampled_from(RULES), shares=ratios, seed=st.integers(0, 5))
def test_parts_and_dropped_pairs_add_up(
    pairs: list[SplitPair], by: Rule, shares: tuple[int, int, int], seed: int
) -> None:
    described = describe_split(pairs, split(pairs, by, ratios=shares, seed=seed))
    dropped = sum(described.dropped.values())
    assert sum(part.pairs for part in described.parts.values()) + dropped == len(pairs)
    assert described.share_kept == pytest.approx(1 - dropped / len(pairs))
    assert by in ("code", "repository") or not dropped


@given(
    sizes=st.lists(st.integers(1, 6), min_size=5, max_size=60),
    by=st.sampled_from(["query", "time", "pair"]),
    shares=st.tuples(*[st.integers(1, 9)] * 3),
    seed=st.integers(0, 5),
)
def test_ratios_are_met_within_one_group(sizes: list[int], by: Rule, shares: tuple[int, int, int], seed: int) -> None:
    names = [random.Random(number).randbytes(12).hex() for number, size in enumerate(sizes) for _ in range(size)]
    pairs = [SplitPair(str(n), name, "c", None, names.index(name)) for n, name in enumerate(names)]
    counts = Counter(split(pairs, by, ratios=shares, seed=seed))
    for part, share in zip(PARTS[1:], shares[1:], strict=True):
        assert abs(counts[part] - len(pairs) * share / sum(shares)) <= measure_largest(group(pairs, by)[0])


@given(pairs=pair_lists(), by=st.sampled_from(RULES))
def test_equal_seeds_give_equal_splits(pairs: list[SplitPair], by: Rule) -> None:
    assert split(pairs, by, seed=3) == split(list(pairs), by, seed=3)
    assert split(make_pairs(50)) != split(make_pairs(50), seed=1)


@pytest.mark.parametrize("by", ["code", "repository"])
def test_hash_seeds_do_not_change_the_split(by: str) -> None:
    code = (
        "import tests.corpus.test_split as t\n"
        "pairs = [p._replace(code=f'code {n % 20}', value=f'r{n % 7}') for n, p in enumerate(t.make_pairs(60, 2))]\n"
        f"print(t.split(pairs, {by!r}))"
    )
    command, hash_seeds = [sys.executable, "-c", code], [{"PYTHONHASHSEED": seed} for seed in ("1", "2")]
    runs = [subprocess.run(command, env=seed, capture_output=True, check=True) for seed in hash_seeds]
    assert runs[0].stdout == runs[1].stdout
    assert b"test" in runs[0].stdout


def test_near_duplicates_of_a_query_stay_together() -> None:
    pairs = [*make_pairs(30), *(SplitPair(f"s{n}", q, str(n)) for n, q in enumerate(QUERIES[:3]))]
    for seed in range(20):
        assert len(set(split(pairs, seed=seed)[-3:])) == 1


def test_codes_of_test_queries_belong_to_test() -> None:
    pairs = [SplitPair(p.id, p.query, f"code {n % 5} of many different codes") for n, p in enumerate(make_pairs(60, 3))]
    result = split(pairs, "code")
    assert set(result) - set(PARTS) <= {"code in test", "code in validation"}
    test_codes = {pair.code for pair, part in zip(pairs, result, strict=True) if part == "test"}
    for pair, outcome in zip(pairs, result, strict=True):
        assert (pair.code in test_codes) == (outcome in ("test", "code in test"))


def test_a_pair_stays_where_query_and_repository_agree() -> None:
    pairs = [pair._replace(value=f"r{number % 40}") for number, pair in enumerate(make_pairs(2000, 5))]
    result = split(pairs, "repository")
    # queries and repositories are drawn independently: .8² + .1² + .1²
    assert sum(part in PARTS for part in result) / 2000 == pytest.approx(0.66, abs=0.03)


@pytest.mark.parametrize(
    "values",
    [
        [3, 10, 20, 20.5, "100"],
        ["2024-01-02", "2024-01-02T10:00", "2024-05-01", "2025-01-01", "2025-01-01T00:00:01"],
        [
            "2024-01-01T00:00+00:00",
            "2024-01-01T00:00-01:00",
            "2024-01-01T02:00Z",
            "2024-02-01T00:00",
            1735689600,
        ],
    ],
)
def test_the_latest_pairs_are_test(values: list[Any]) -> None:
    pairs = [pair._replace(value=value) for pair, value in zip(make_pairs(5), values, strict=True)]
    result = split([pairs[number] for number in (4, 2, 0, 3, 1)], "time", ratios=(3, 1, 1))
    assert result == ["test", "train", "train", "validation", "train"]


INVALID = [("time", value) for value in (None, "", "soon", True, float("inf"), ["2024"])]


@pytest.mark.parametrize(("by", "value"), [*INVALID, *(("repository", value) for value in (None, " ", 3, ["a"]))])
def test_invalid_values_are_counted_and_the_first_is_named(by: Rule, value: Any) -> None:
    pairs = [SplitPair(name, "q", "c", value=value) for name in ("bad one", "bad two")]
    with pytest.raises(InputError, match=r"'f'.* 2 of 3 .*'bad one'") as caught:
        split([SplitPair("good", "q", "c", value="2024-01-01"), *pairs], by)
    assert "None" not in str(caught.value)


def test_sizes_of_cosqas_search_task_are_exact() -> None:
    pairs = [pair._replace(label=n % 3 % 2) for n, pair in enumerate(make_pairs(900))]
    result = split(pairs, sizes=(50, 40), positives_only=frozenset({"validation", "test"}))
    parts = describe_split(pairs, result).parts
    assert [(part.pairs, part.matches) for part in parts.values()] == [(810, 210), (50, 50), (40, 40)]


def test_other_pairs_of_a_positive_part_are_dropped() -> None:
    pairs = [pair._replace(label=n % 4 % 2) for n, pair in enumerate(make_pairs(400, 4))]
    result = split(pairs, sizes=(20, 21), positives_only=frozenset({"test"}))
    described = describe_split(pairs, result)
    parts = described.parts
    assert (parts["validation"].pairs, parts["test"].pairs) == (20, 20)  # two positive pairs for each query
    assert parts["test"].matches == 20
    assert described.dropped == {"not positive": 20}
    assert described.shared_between_parts["queries"] == 0


@pytest.mark.parametrize(
    "rules",
    [
        {"ratios": (1, 1)}, {"ratios": (0, 0, 0)}, {"ratios": (1, -1, 1)}, {"ratios": (1, float("nan"), 1)},
        {"sizes": (1,)}, {"sizes": (-1, 1)}, {"sizes": (6, 6)}, {"sizes": (1, 1), "by": "repository"},
        {"positives_only": frozenset({"test"})}, {"positives_only": frozenset({"train"}), "sizes": (1, 1)},
        {"positives_only": frozenset({"test"}), "sizes": (1, 1)},
        {"positives_only": frozenset({"test"}), "sizes": (0, 0), "by": "time"},
    ],
)  # fmt: skip
def test_rules_that_cannot_be_met_are_wrong_usage(rules: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        split(make_pairs(10), **rules)


@pytest.mark.real_data
@pytest.mark.parametrize("by", ["query", "code", "pair"])
def test_real_pairs_are_split_without_leaks(real_data: Path, by: Rule) -> None:
    items = list(read_labelled(real_data / "cosqa_dev.jsonl"))
    pairs = [SplitPair(item.pair.id, item.pair.query, item.pair.code, item.label) for item in items]
    result = split(pairs, by)
    described = describe_split(pairs, result)
    assert [described.parts[part].pairs for part in PARTS[1:]] == [28, 28]
    assert (described.shared_between_parts["codes"] > 0) == (by != "code")
