"""Near duplicates: shingles, the index, and clusters, compared with brute force."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.corpus.near_duplicates import THRESHOLD, NearDuplicateIndex, cluster, shingle_code, shingle_text
from agent.errors import ExtraMissing

WORDS = [f"word{i}" for i in range(12)]


def compute_jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / len(first | second)


def find_clusters(codes: Sequence[str]) -> list[int]:
    """Return the components of all pairs with a Jaccard similarity of at least .8, by brute force."""
    shingles = [shingle_code(code) for code in codes]
    names = list(range(len(codes)))
    for first, second in combinations(range(len(codes)), 2):
        if compute_jaccard(shingles[first], shingles[second]) >= 0.8 and names[first] != names[second]:
            low, high = sorted((names[first], names[second]))
            names = [low if name == high else name for name in names]
    return names


def ignore_progress(_name: str, _done: int, _total: int) -> None:
    pass


def cluster_all(codes: Sequence[str]) -> list[int]:
    return list(cluster(codes, len(codes), ignore_progress))


def make_pairs_of_sets(similarity: float, number: int) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Yield pairs of sets of 45 to 225 shingles that have exactly this Jaccard similarity, which has 2 decimals."""
    numbers = random.Random(7)
    for i in range(number):
        union = 50 * numbers.randint(1, 5)
        shared = round(union * similarity)
        left = shared + (union - shared) // 2
        names = [f"{i}-{j}" for j in range(union)]
        yield frozenset(names[:left]), frozenset(names[:shared] + names[left:])


def test_int_to_string_is_not_a_near_duplicate_of_string_to_int() -> None:
    index = NearDuplicateIndex()
    index.add(shingle_text("int to string"))
    assert index.find(shingle_text("string to int")) is None
    assert index.find(shingle_text("int to string")) == 0


def test_short_texts_and_codes_are_one_shingle() -> None:
    assert shingle_text("abcd") == {"abc", "bcd"}
    assert shingle_text("ab") == {"ab"}
    assert shingle_code("a+b") == {"a + b"}
    assert shingle_code("f( a,b )") == {"f ( a , b", "( a , b )"}
    assert len(shingle_text("")) == len(shingle_code("  ")) == 1


def test_the_index_returns_the_earliest_similar_set() -> None:
    index = NearDuplicateIndex()
    words = [str(i) for i in range(100)]
    sets = [frozenset(words[:50]), frozenset(words[:99]), frozenset(words), frozenset(["other"])]
    assert [index.add(shingles) for shingles in sets] == [0, 1, 2, 3]
    assert index.find(frozenset(words)) == 1
    assert index.find(frozenset(["other"])) == 3
    assert index.find(frozenset(["another"])) is None


@pytest.mark.parametrize(("similarity", "least", "most"), [(0.78, 0, 0), (0.80, 950, 1000), (0.90, 950, 1000)])
def test_the_recall_is_at_least_95_percent_from_the_threshold_up(similarity: float, least: int, most: int) -> None:
    index = NearDuplicateIndex()
    pairs = list(make_pairs_of_sets(similarity, 1000))
    for first, _ in pairs:
        index.add(first)
    matches = [index.find(second) for _, second in pairs]
    assert all(match in (number, None) for number, match in enumerate(matches))
    assert least <= sum(match is not None for match in matches) <= most


def test_clusters_are_connected_components_named_by_their_first_member() -> None:
    body = [f"x{i} = {i}" for i in range(30)]
    chain = ["; ".join(body[start : start + 24]) for start in range(0, 6, 2)]  # only neighbours are similar
    assert compute_jaccard(shingle_code(chain[0]), shingle_code(chain[2])) < THRESHOLD
    assert find_clusters(["pass", *chain, "pass "]) == [0, 1, 1, 1, 0]
    assert cluster_all(["pass", *chain, "pass "]) == [0, 1, 1, 1, 0]
    assert cluster_all(["pass", chain[0], chain[2], chain[1]]) == [0, 1, 1, 1]


CODES = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=4).map(lambda tail: " ".join([*WORDS * 2, *tail])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(CODES)
def test_a_cluster_contains_only_codes_that_brute_force_connects(codes: list[str]) -> None:
    names, expected = cluster_all(codes), find_clusters(codes)
    assert all(names[name] == name <= number for number, name in enumerate(names))
    assert all(expected[number] == expected[name] for number, name in enumerate(names))


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(ExtraMissing) as raised:
        NearDuplicateIndex()
    assert pickle.loads(pickle.dumps(raised.value)).extra == "corpus"  # raised in another process
