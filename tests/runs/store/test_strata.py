"""Tests for strata by evidence."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.runs.store.strata import (
    MAX_STRATA,
    MIN_SHARE,
    Cell,
    Evidence,
    Setting,
    assign_cells,
    find_cell,
    hash_strata,
    stratify,
)
from agent.types import ModuleContext
from tests.evaluation.runs import annotate, make_error

AGREES, READING, NO_VERDICT, DISAGREES = Evidence
MODULE, ALONE, STAND_INS = Setting
CELLS = st.builds(Cell, st.sampled_from(Evidence), st.sampled_from(Setting), st.sampled_from([0, 1]))


def make_cells(sizes: dict[Cell, int]) -> dict[str, Cell]:
    numbered = enumerate(cell for cell, size in sizes.items() for _ in range(size))
    return {f"pair {number}": cell for number, cell in numbered}


@pytest.mark.parametrize(
    ("label", "status", "more", "cell"),
    [
        (1, "passed", {}, Cell(AGREES, ALONE, 1)),
        (0, "failed", {"module_context": ModuleContext(module="a.b")}, Cell(AGREES, MODULE, 0)),
        (1, "failed", {"module_context": ModuleContext(reason="no release")}, Cell(DISAGREES, ALONE, 1)),
        (0, "passed", {"stand_ins": ("requests",)}, Cell(DISAGREES, STAND_INS, 0)),
        (0, "error", {}, Cell(NO_VERDICT, ALONE, 0)),
        (1, "not_run", {}, Cell(NO_VERDICT, ALONE, 1)),
        (1, None, {}, Cell(READING, ALONE, 1)),
        (None, "passed", {}, None),
    ],
)
def test_cells_name_evidence_setting_and_label(
    label: int | None, status: str | None, more: dict[str, Any], cell: Cell | None
) -> None:
    assert find_cell(annotate("a", label, status, **more)) == cell


def test_a_pair_has_the_cell_of_its_majority_label() -> None:
    rounds = [
        annotate("a", 0, None),
        annotate("a", 1, "error", round=1),
        annotate("a", 1, "passed", round=2),
        annotate("tied", 0, None),
        annotate("tied", 1, "passed", round=1),
        annotate("undecided", None, "error"),
        make_error("failed"),
    ]
    assert assign_cells(reversed(rounds)) == {"a": Cell(NO_VERDICT, ALONE, 1)}


@given(st.dictionaries(CELLS, st.integers(1, 60), max_size=24), st.randoms(use_true_random=False))
def test_strata_are_few_large_ordered_and_independent_of_the_order_of_pairs(
    sizes: dict[Cell, int], order: random.Random
) -> None:
    cells = make_cells(sizes)
    strata = stratify(cells)
    assert len(strata) <= MAX_STRATA
    assert all(len(stratum.labels) >= MIN_SHARE * len(cells) for stratum in strata)
    assert Counter(cell for stratum in strata for cell in stratum.cells) == Counter(sizes.keys())
    assert {pair: label for stratum in strata for pair, label in stratum.labels.items()} == {
        pair: cell.label for pair, cell in cells.items()
    }
    main = [max(stratum.cells, key=lambda cell: (sizes[cell], cell)) for stratum in strata]
    assert main == sorted(main)
    shuffled = order.sample(list(cells.items()), len(cells))
    assert hash_strata(stratify(dict(shuffled))) == hash_strata(strata)


@pytest.mark.parametrize(
    ("small", "others", "partner"),
    [
        (
            Cell(AGREES, STAND_INS, 1),
            [Cell(AGREES, ALONE, 0), Cell(AGREES, ALONE, 1), Cell(AGREES, MODULE, 1)],
            Cell(AGREES, ALONE, 1),
        ),
        (Cell(AGREES, STAND_INS, 1), [Cell(READING, ALONE, 1), Cell(AGREES, MODULE, 0)], Cell(AGREES, MODULE, 0)),
        (Cell(READING, ALONE, 1), [Cell(AGREES, ALONE, 1), Cell(DISAGREES, ALONE, 1)], Cell(DISAGREES, ALONE, 1)),
        (Cell(DISAGREES, ALONE, 0), [Cell(AGREES, ALONE, 0), Cell(NO_VERDICT, ALONE, 1)], Cell(NO_VERDICT, ALONE, 1)),
    ],
    ids=["same label", "same evidence", "weaker", "stronger"],
)
def test_a_small_stratum_is_merged_with_the_most_similar_one(small: Cell, others: list[Cell], partner: Cell) -> None:
    strata = stratify(make_cells({small: 1, **{cell: 100 + number for number, cell in enumerate(others)}}))
    assert {small, partner} in [set(stratum.cells) for stratum in strata]
    assert len(strata) == len(others)


@pytest.mark.parametrize("changed", [Cell(READING, ALONE, 0), Cell(AGREES, ALONE, 1), None])
def test_the_hash_depends_on_each_id_label_and_stratum(changed: Cell | None) -> None:
    cells = make_cells({Cell(READING, ALONE, 1): 10, Cell(AGREES, ALONE, 1): 10, Cell(AGREES, ALONE, 0): 10})
    other = {**cells, "pair 0": changed} if changed else {"\ud800" if k == "pair 0" else k: v for k, v in cells.items()}
    assert hash_strata(stratify(other)) != hash_strata(stratify(cells))
