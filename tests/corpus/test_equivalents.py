"""Functions that agree form cliques, and the search for pairs that agree misses none."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.corpus.equivalents import Function, find_agreements, iterate_cliques
from agent.types import Pair

DIGESTS = st.lists(st.sampled_from(["", "a", "b", "c", "d", "=a", "=e"]), min_size=8, max_size=8)


MOST = "a b c d e " * 10
"""Fifty digests, which are 98% of fifty-one."""


def parse(shared: str, optional: str = "", arguments: str = "", *, is_method: bool = False) -> Function:
    digests = tuple(shared.split(" "))
    pair = Pair(id="f", query="", code="")
    inputs = [str(number) for number in range(len(digests))]
    return Function(pair, inputs, frozenset(optional), tuple(arguments), is_method, digests)


@given(st.lists(DIGESTS, max_size=8))
def test_no_pair_that_agrees_is_missed(rows: list[list[str]]) -> None:
    nodes = [parse(" ".join(row)) for row in rows]
    pairs = {(a, b) for a, b in combinations(range(len(nodes)), 2) if nodes[a].agrees(nodes[b])}
    found = find_agreements(nodes)
    assert {(a, b) for a, others in enumerate(found) for b in others if a < b} == pairs


@pytest.mark.parametrize(
    ("first", "second", "agrees"),
    [
        ("a b c d e", "a b c d e", True),
        (f"{MOST}f", MOST, True),
        (f"{MOST}f g", f"{MOST} ", False),
        ("a b c d e", "a b c d x", False),
        ("a b c d =e", "a b c d e", False),
        ("a b c d =e", "a b c d =x", False),
        (f"{MOST}=f", MOST, True),
        (f"{MOST}=f =g", f"{MOST} ", False),
        ("a a b b a", "a a b b a", False),
        ("    ", "    ", False),
    ],
)
def test_functions_agree_if_they_share_informative_results(first: str, second: str, agrees: bool) -> None:
    assert parse(first).agrees(parse(second)) is agrees
    assert parse(second).agrees(parse(first)) is agrees


def test_functions_with_other_optional_parameters_do_not_agree() -> None:
    functions = [parse(MOST), parse(MOST, optional="k"), parse(MOST), parse(MOST, optional="x")]
    assert find_agreements(functions) == [{2}, set(), {0}, set()]


def test_attributes_agree_only_with_arguments_of_the_same_name() -> None:
    method = parse(MOST, arguments="ab", is_method=True)
    functions = [parse(MOST, arguments=names) for names in ("ab", "ac")]
    assert find_agreements([method, *functions]) == [{1}, {0, 2}, {1}]


@given(st.integers(1, 7), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_cliques_are_all_maximal_sets_of_neighbours(size: int, edges: set[tuple[int, int]]) -> None:
    neighbours: list[set[int]] = [set() for _ in range(size)]
    for a, b in edges:
        if a != b and max(a, b) < size:
            neighbours[a].add(b)
            neighbours[b].add(a)
    subsets = [set(own) for count in range(1, size + 1) for own in combinations(range(size), count)]
    cliques = [own for own in subsets if all(b in neighbours[a] for a, b in combinations(own, 2))]
    maximal = [sorted(own) for own in cliques if not any(own < other for other in cliques)]
    assert sorted(iterate_cliques(dict(enumerate(neighbours)))) == sorted(maximal)


def test_an_empty_graph_has_no_cliques() -> None:
    assert list(iterate_cliques({})) == []


def test_a_chain_of_agreements_is_two_groups() -> None:
    chain = [f"{MOST} ", f"{MOST}f ", f" {MOST[2:]}f "]
    nodes = [parse(row) for row in chain]
    assert [*map(sorted, find_agreements(nodes))] == [[1], [0, 2], [1]]
    assert sorted(iterate_cliques(dict(enumerate(find_agreements(nodes))))) == [[0, 1], [1, 2]]


def test_inputs_with_different_results_are_chosen_first() -> None:
    shared = ["a"] * 100 + ["b"] * 20 + ["=c"] * 50
    chosen = parse(" ".join(shared)).choose_inputs()
    assert len(chosen) == len(set(chosen)) == 80
