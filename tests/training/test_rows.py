"""Rows and batches of an epoch, checked against the rule itself for generated data."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from agent.errors import UsageError
from agent.training.data import TrainingData, TrainingPair
from agent.training.recipe import Form, Hyperparameters, Rewriting
from agent.training.rows import EpochRows, Row, rewrite_query
from tests.training.tiny import make_contrasts


def make_data(pairs: Sequence[tuple[int, int, int]], count: int, **changes: Any) -> TrainingData:
    """Build data in which no query and no code is a near duplicate, unless `changes` say so."""
    queries = 1 + max(query for query, _, _ in pairs)
    values: dict[str, Any] = {
        "queries": [f"sort list number {query}" for query in range(queries)],
        "codes": [f"def f{code}(): pass" for code in range(count)],
        "languages": ["python"] * count,
        "query_groups": range(queries),
        "code_clusters": range(count),
    }
    return TrainingData("data", pairs=[TrainingPair(*pair) for pair in pairs], **(values | changes))


def make_rows(data: TrainingData, form: Form = "ranking", **chosen: Any) -> EpochRows:
    return EpochRows(data, form, Hyperparameters(**chosen))


@st.composite
def generate_data(draw: st.DrawFn) -> TrainingData:
    """Generate small data with near duplicates, contradicting labels, empty texts and two languages."""
    queries, codes = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    places = st.tuples(st.integers(0, queries - 1), st.integers(0, codes - 1))
    pair = st.tuples(st.integers(0, queries - 1), st.integers(0, codes - 1), st.sampled_from([0, 1, 1]))

    def choose(size: int, *values: Any) -> list[Any]:
        return draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))

    return make_data(
        [(queries - 1, 0, 1), *draw(st.lists(pair, max_size=20))],
        codes,
        queries=choose(queries, "sort a list", "x", " "),
        codes=choose(codes, "def f(): pass", "y = 1", ""),
        languages=choose(codes, "python", "java"),
        query_groups=choose(queries, *range(4)),
        code_clusters=choose(codes, *range(9)),
        proved=draw(st.frozensets(places, max_size=9)),
    )


def is_relevant(data: TrainingData, query: int, code: int, *, in_batch: bool = False) -> bool:
    """Return whether a snippet is in F(q) by its definition, and not a proved negative of this query."""
    groups, clusters = data.query_groups, data.code_clusters
    relevant = {pair.code for pair in data.pairs if pair.label and groups[pair.query] == groups[query]}
    is_exempt = not in_batch and (query, code) in data.proved and code not in relevant
    return not is_exempt and clusters[code] in {clusters[other] for other in relevant}


def check_row(data: TrainingData, row: Row, others: Sequence[Row]) -> None:
    """Check that no negative of a row is relevant to its query, and that texts exist."""
    assert not any(is_relevant(data, row.query, code) for code in row.codes[row.label :])
    assert not any(is_relevant(data, row.query, code, in_batch=True) for other in others for code in other.codes)
    assert not row.label or (row.query, row.codes[0], 1) in data.pairs
    assert len(set(row.codes)) == len(row.codes)
    assert all(has_texts(data, row.query, code) for code in row.codes)


def has_texts(data: TrainingData, query: int, code: int) -> bool:
    return bool(data.queries[query].strip() and data.codes[code].strip())


@settings(max_examples=200, deadline=None)
@given(
    generate_data(), st.booleans(), st.booleans(), st.integers(1, 6), st.integers(0, 3), st.sampled_from([None, 0.5])
)
def test_no_batch_holds_a_false_negative(
    data: TrainingData, ranks: bool, in_batch: bool, size: int, negatives: int, alpha: float | None
) -> None:
    form: Form = "ranking" if ranks else "labels"
    try:
        rows = make_rows(data, form, in_batch=in_batch, batch_size=size, hard_negatives=negatives, alpha=alpha)
    except UsageError:
        reject()
    for batches in map(rows.draw, range(3)):
        assert len(batches) == rows.batches
        for batch in batches:
            assert 1 <= len(batch) <= size
            for place, row in enumerate(batch):
                assert len(row.codes) == 1 + negatives * ranks
                check_row(data, row, [*batch[:place], *batch[place + 1 :]] if ranks or in_batch else [])
            assert alpha is None or len({data.languages[code] for row in batch for code in row.codes}) == 1
        if ranks and alpha is None:
            omitted = {
                pair
                for pair in data.pairs
                if pair.label or (negatives and not (has_texts(data, *pair[:2]) and not is_relevant(data, *pair[:2])))
            }
            assert sum(map(len, batches)) + rows.omitted.total() == len(omitted)


PAIRS = [(query, query, 1) for query in range(20)] + [(query, 20 + query % 7, 0) for query in range(20)]


@pytest.mark.parametrize("form", ["ranking", "labels"])
def test_an_epoch_depends_on_seed_and_epoch_alone(form: Form) -> None:
    def draw(seed: int, *epochs: int) -> list[list[list[Row]]]:
        rows = make_rows(make_data(PAIRS, 40), form, seed=seed, batch_size=8, hard_negatives=2)
        return [rows.draw(epoch) for epoch in epochs]

    first, second = draw(7, 0, 1)
    assert draw(7, 1, 0) == [second, first]
    assert first != second
    assert draw(8, 0) != [first]


def test_codes_with_label_0_come_before_random_codes() -> None:
    def draw(number: int) -> list[tuple[int, ...]]:
        rows = make_rows(make_data([(0, 0, 1), *((0, code, 0) for code in (1, 2, 3))], 20), hard_negatives=number)
        return [rows.draw(epoch)[0][0].codes for epoch in range(40)]

    assert {code for codes in draw(2) for code in codes[1:]} == {1, 2, 3}
    assert all(set(codes[1:4]) == {1, 2, 3} for codes in draw(5))
    assert {code for codes in draw(5) for code in codes[4:]} == set(range(4, 20))


def test_pairs_without_label_0_give_one_random_negative_each() -> None:
    rows = make_rows(make_data([(0, 0, 1), (1, 1, 1)], 12, code_clusters=[0, 1, *[2] * 9, 0]), "labels")
    drawn = [[row for batch in rows.draw(epoch) for row in batch] for epoch in range(100)]
    assert all(sorted((row.query, row.label) for row in epoch) == [(0, 0), (0, 1), (1, 0), (1, 1)] for epoch in drawn)
    negatives = {(row.query, row.codes[0]) for epoch in drawn for row in epoch if not row.label}
    assert negatives == {(0, code) for code in range(1, 11)} | {(1, code) for code in (0, *range(2, 12))}


def test_batches_have_equal_sizes_and_a_row_that_fits_none_is_left_out_and_counted() -> None:
    several, two = [(code, code, 1) for code in range(10)], [(code % 2, code, 1) for code in range(10)]
    rows = [make_rows(make_data(pairs, 10), batch_size=8) for pairs in (several, two)]
    rows.append(make_rows(make_data(several, 10), batch_size=10, hard_negatives=3))
    assert [[len(batch) for batch in each.draw(0)] for each in rows] == [[5, 5], [2, 2], [7]]
    assert [each.omitted for each in rows] == [{}, {"no_batch": 6}, {"no_batch": 3}]


@pytest.mark.parametrize(
    ("pairs", "form"),
    [
        ([(0, 0, 1)], "ranking"),
        ([(0, code, 1) for code in range(9)], "ranking"),  # all codes of one query
        ([(0, 0, 1), (0, 1, 0)], "ranking"),  # label 0 is not used without `hard_negatives`
        ([(0, 0, 1)], "labels"),
        ([(0, 9, 1), (1, 0, 0)], "labels"),  # code 9 is empty
    ],
)
def test_data_without_a_negative_or_a_positive_is_refused(pairs: Any, form: Form) -> None:
    count = 1 + max(code for _, code, _ in pairs)
    with pytest.raises(UsageError):
        make_rows(make_data(pairs, count, codes=["def f(): pass"] * min(count, 9) + [""] * (count > 9)), form)


def test_labels_that_contradict_a_near_duplicate_are_left_out() -> None:
    data = make_data([(0, 0, 1), (1, 1, 0), (1, 2, 0)], 3, query_groups=[0, 0], code_clusters=[0, 0, 1])
    rows = make_rows(data, "labels")
    assert sorted(row[:2] for row in rows.draw(0)[0]) == [(0, (0,)), (1, (2,))]
    assert rows.omitted == {"near_duplicate": 1}


def test_rows_are_left_out_by_rule_and_proved_negatives_are_kept() -> None:
    """Snippets 1 and 2 nearly equal a relevant one, and 2 was proved wrong. Query 2 has one negative only."""
    pairs = [(0, 0, 1), (0, 1, 0), (0, 2, 0), (1, 3, 1), (2, 4, 1), (2, 0, 1)]
    data = make_data(pairs, 5, queries=["sort", " ", "join"], code_clusters=[0, 0, 0, 3, 4], proved={(0, 2)})
    rows = make_rows(data, hard_negatives=2)
    assert rows.omitted == {"near_duplicate": 1, "empty_text": 1, "no_negative": 2}
    ((row,),) = rows.draw(0)
    assert (row.codes[0], set(row.codes[1:]) - {3, 4}) == (0, {2})
    relevant_elsewhere = [(0, 0, 1), (1, 2, 1), (0, 2, 0), (2, 3, 1)]
    same = {"query_groups": [0, 0, 1], "code_clusters": [0, 1, 0, 3], "proved": {(0, 2)}}
    assert make_rows(make_data(relevant_elsewhere, 4, **same), "labels").omitted == {"near_duplicate": 1}


CONTRASTS = [
    replace(contrast, query=f"query {n}", right=f"right {n}", wrong=f"wrong {n} {mutant}")
    for n, contrast in enumerate(make_contrasts().rows)
    for mutant in range(2)
]


def test_the_contrasts_of_a_batch_are_from_different_families_and_depend_on_seed_and_epoch_alone() -> None:
    families = [0 if n < 4 else n // 2 for n in range(24)]  # functions 0 and 1 are near duplicates
    data = make_data(PAIRS, 40, contrasts=replace(make_contrasts(), rows=CONTRASTS, families=families))

    def read(rows: EpochRows, epoch: int) -> list[list[tuple[str, ...]]]:
        """Return the contrasts of each batch of an epoch."""
        dataset = rows.make_dataset()
        sizes = [len(batch) for batch in rows.draw(epoch)]
        contrasts = iter([tuple(row.values())[2:] for row in dataset])
        return [list(islice(contrasts, size)) for size in sizes]

    one, same, other = (make_rows(data, seed=seed, batch_size=8) for seed in (1, 1, 2))
    epochs = [read(one, epoch) for epoch in range(40)]
    assert [read(same, 1), read(same, 0)] == [epochs[1], epochs[0]]
    assert read(other, 0) != epochs[0] != epochs[1]
    assert list(one.make_dataset()[0])[2:] == ["contrast_query", "right", "wrong"]
    names = {(row.query, row.right, row.wrong): family for row, family in zip(CONTRASTS, families, strict=True)}
    batches = [[names[row] for row in batch] for epoch in epochs for batch in epoch]
    assert all(len(set(batch)) == len(batch) for batch in batches)
    assert {row for epoch in epochs for batch in epoch for row in batch} == set(names)
    with pytest.raises(UsageError, match="11"):
        make_rows(data, batch_size=12)


def test_data_without_enough_negatives_are_an_error() -> None:
    assert not make_rows(make_data([(0, 0, 1)], 3), hard_negatives=2).omitted
    with pytest.raises(UsageError):
        make_rows(make_data([(0, 0, 1)], 3), hard_negatives=3)


@given(st.lists(st.sampled_from(["sort", "list", "by", "key"]), min_size=2, max_size=6), st.integers())
def test_a_rewriting_deletes_copies_or_switches(query: list[str], seed: int) -> None:
    def rewrite(how: Rewriting) -> list[str]:
        return rewrite_query(" ".join(query), how, Random(seed)).split()

    copied, switched, deleted = rewrite("copy"), rewrite("switch"), rewrite("delete")
    assert any(deleted == query[:place] + query[place + 1 :] for place in range(len(query)))
    assert any(query == copied[:place] + copied[place + 1 :] for place in range(len(copied)))
    assert set(copied) == set(query)
    assert Counter(switched) == Counter(query)
    assert sum(one != other for one, other in zip(switched, query, strict=True)) in {0, 2}
    assert rewrite_query(query[0], "delete", Random(seed)) == query[0]


def test_rewritten_queries_differ_by_epoch_and_only_for_label_1() -> None:
    def read(epoch: int) -> dict[tuple[str, str], tuple[int, str]]:
        rows = make_rows(make_data(PAIRS, 40), "labels", rewrite="switch")
        dataset = rows.make_dataset()
        rows.draw(epoch)
        assert list(dataset[0]) == ["query", "code", "label", "rewritten"]
        return {(row["query"], row["code"]): (row["label"], row["rewritten"]) for row in dataset}

    epoch = read(1)
    assert all((label == 0) == (rewritten == query) for (query, _), (label, rewritten) in epoch.items())
    assert read(1) == epoch
    assert read(2) != epoch


@pytest.mark.embed
def test_a_data_loader_yields_the_texts_of_the_batches_of_its_epoch() -> None:
    from torch.utils.data import DataLoader

    from agent.training.trainer import BatchSampler

    data = make_data(PAIRS, 40)
    rows = make_rows(data, batch_size=8, hard_negatives=2)
    dataset = rows.make_dataset()
    assert len(pickle.dumps(rows)) < 100  # `datasets` pickles them
    assert list(dataset[0]) == ["query", "code", "negative_1", "negative_2"]
    sampler = BatchSampler(dataset, rows=rows, batch_size=8, drop_last=False, valid_label_columns=["label"], seed=1)
    loader: Any = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        batches = [[list(row.values()) for row in batch] for batch in loader]
        drawn = rows.draw(epoch)
        assert batches == [[[data.queries[row[0]], *(data.codes[code] for code in row[1])] for row in b] for b in drawn]
        assert len(batches) == len(loader)
