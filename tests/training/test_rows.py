"""Rows and batches of an epoch, checked against the rule itself for generated data."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from agent.errors import UsageError
from agent.training.data import TrainingData, TrainingPair
from agent.training.recipe import Form, Hyperparameters, Rewriting
from agent.training.rows import EpochRows, Row, rewrite_query


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
    return TrainingData("data", pairs=[TrainingPair(*pair) for pair in pairs], **{**values, **changes})


@st.composite
def generate_data(draw: st.DrawFn) -> TrainingData:
    """Generate small data with near duplicates, contradicting labels, empty texts and two languages."""
    queries, codes = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    pair = st.tuples(st.integers(0, queries - 1), st.integers(0, codes - 1), st.sampled_from([0, 1, 1]))

    def lists(values: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[Any]:
        return st.lists(values, min_size=size, max_size=size)

    return make_data(
        [(queries - 1, 0, 1), *draw(st.lists(pair, max_size=20, unique=True))],
        codes,
        queries=draw(lists(st.sampled_from(["sort a list", "x", "a b", " "]), queries)),
        codes=draw(lists(st.sampled_from(["def f(): pass", "y = 1", "z", ""]), codes)),
        languages=draw(lists(st.sampled_from(["python", "java"]), codes)),
        query_groups=draw(lists(st.integers(0, 3), queries)),
        code_clusters=draw(lists(st.integers(0, 8), codes)),
    )


hyperparameters = st.builds(
    Hyperparameters,
    seed=st.integers(0, 5),
    batch_size=st.integers(1, 6),
    hard_negatives=st.sampled_from([None, 1, 2, 3]),
    alpha=st.sampled_from([None, 0.5]),
)
forms = st.sampled_from(["ranking", "labels"])


def find_relevant(data: TrainingData, query: int) -> set[int]:
    """Return F(q) by its definition."""
    group = data.query_groups[query]
    return {
        data.code_clusters[pair.code] for pair in data.pairs if pair.label and data.query_groups[pair.query] == group
    }


def make_rows(data: TrainingData, form: Form, chosen: Hyperparameters, in_batch: bool) -> EpochRows:
    """Build the rows, or reject the example. An error is right if each usable relevant pair lacks negatives."""
    try:
        return EpochRows(data, form, chosen, in_batch)
    except UsageError:
        needed = chosen.hard_negatives or 0 if form == "ranking" else 1
        for query, code, label in data.pairs:
            relevant = find_relevant(data, query)
            enough = needed <= sum(
                bool(text) and data.code_clusters[other] not in relevant
                for other, text in enumerate(data.codes)
                if chosen.alpha is None or data.languages[other] == data.languages[code]
            )
            assert not (label and enough and data.queries[query].strip() and data.codes[code])
        assume(False)
        raise


@settings(max_examples=150, deadline=None)
@given(generate_data(), forms, hyperparameters, st.booleans())
def test_no_batch_holds_a_false_negative(
    data: TrainingData, form: Form, chosen: Hyperparameters, in_batch: bool
) -> None:
    rows = make_rows(data, form, chosen, in_batch)
    for batch in rows.draw(1):
        for row in batch:
            others = [code for other in batch if other is not row for code in other.codes] if in_batch else []
            own = row.codes[1:] if row.label else row.codes
            assert find_relevant(data, row.query).isdisjoint(data.code_clusters[code] for code in [*own, *others])
            assert not row.label or TrainingPair(row.query, row.codes[0], 1) in data.pairs


@settings(max_examples=150, deadline=None)
@given(generate_data(), forms, hyperparameters, st.booleans())
def test_rows_have_all_columns_with_texts_and_their_number_is_accounted_for(
    data: TrainingData, form: Form, chosen: Hyperparameters, in_batch: bool
) -> None:
    rows = make_rows(data, form, chosen, in_batch)
    columns = 1 + (chosen.hard_negatives or 0) if form == "ranking" else 1
    distinct = set(data.pairs)
    relevant = sum(pair.label for pair in distinct)
    usable_zeros = [pair for pair in distinct if _is_usable_zero(data, pair)]
    expected = relevant if form == "ranking" else len(distinct) + (0 if usable_zeros else relevant)
    for epoch in range(3):
        batches = rows.draw(epoch)
        assert len(batches) == rows.batches
        assert all(1 <= len(batch) <= chosen.batch_size for batch in batches)
        for row in (row for batch in batches for row in batch):
            assert data.queries[row.query].strip()
            assert all(data.codes[code] for code in row.codes)
            assert len(set(row.codes)) == len(row.codes) == columns
        if chosen.alpha is None:
            assert sum(map(len, batches)) + rows.omitted == expected
        else:
            assert all(len({data.languages[code] for row in batch for code in row.codes}) == 1 for batch in batches)


def _is_usable_zero(data: TrainingData, pair: TrainingPair) -> bool:
    texts = data.queries[pair.query].strip() and data.codes[pair.code]
    return bool(texts) and not pair.label and data.code_clusters[pair.code] not in find_relevant(data, pair.query)


PAIRS = [(query, query, 1) for query in range(20)] + [(query, 20 + query % 7, 0) for query in range(20)]


@pytest.mark.parametrize("form", ["ranking", "labels"])
def test_an_epoch_depends_on_seed_and_epoch_alone(form: Form) -> None:
    def draw(seed: int, *epochs: int) -> list[list[list[Row]]]:
        rows = EpochRows(make_data(PAIRS, 40), form, Hyperparameters(seed=seed, batch_size=8, hard_negatives=2), True)
        return [rows.draw(epoch) for epoch in epochs]

    first, second = draw(7, 0, 1)
    assert draw(7, 1, 0) == [second, first]
    assert first != second
    assert draw(8, 0) != [first]


def test_codes_with_label_0_come_before_random_codes() -> None:
    data = make_data([(0, 0, 1), *((0, code, 0) for code in (1, 2, 3))], 20)

    def draw(number: int) -> list[tuple[int, ...]]:
        rows = EpochRows(data, "ranking", Hyperparameters(hard_negatives=number), True)
        return [rows.draw(epoch)[0][0].codes for epoch in range(40)]

    assert {code for codes in draw(2) for code in codes[1:]} == {1, 2, 3}
    assert all(set(codes[1:4]) == {1, 2, 3} for codes in draw(5))
    assert {code for codes in draw(5) for code in codes[4:]} == set(range(4, 20))


def test_pairs_without_label_0_give_one_random_negative_each() -> None:
    rows = EpochRows(
        make_data([(0, 0, 1), (1, 1, 1)], 12, code_clusters=[0, 1, *[2] * 9, 0]), "labels", DEFAULTS, False
    )
    drawn = [[row for batch in rows.draw(epoch) for row in batch] for epoch in range(100)]
    assert all(sorted((row.query, row.label) for row in epoch) == [(0, 0), (0, 1), (1, 0), (1, 1)] for epoch in drawn)
    negatives = {(row.query, row.codes[0]) for epoch in drawn for row in epoch if not row.label}
    assert negatives == {(0, code) for code in range(1, 11)} | {(1, code) for code in (0, *range(2, 12))}


DEFAULTS = Hyperparameters()


def test_a_row_that_fits_no_batch_is_left_out_and_counted() -> None:
    rows = EpochRows(
        make_data([(0, code, 1) for code in range(10)], 10), "ranking", Hyperparameters(batch_size=4), True
    )
    assert [len(batch) for batch in rows.draw(0)] == [1, 1, 1]
    assert rows.omitted == 7


def test_labels_that_contradict_a_near_duplicate_are_left_out() -> None:
    data = make_data([(0, 0, 1), (1, 1, 0), (1, 2, 0)], 3, query_groups=[0, 0], code_clusters=[0, 0, 1])
    rows = EpochRows(data, "labels", DEFAULTS, False)
    assert sorted(row[:2] for row in rows.draw(0)[0]) == [(0, (0,)), (1, (2,))]
    assert rows.omitted == 1


def test_data_without_enough_negatives_are_an_error() -> None:
    with pytest.raises(UsageError):
        EpochRows(make_data([(0, 0, 1)], 3), "ranking", Hyperparameters(hard_negatives=3), True)


def test_the_share_of_batches_by_language_follows_equation_2() -> None:
    sizes = {"python": 900, "java": 100, "go": 25}
    languages = [language for language, size in sizes.items() for _ in range(size)]
    data = make_data([(code, code, 1) for code in range(1025)], 1025, languages=languages)
    rows = EpochRows(data, "ranking", Hyperparameters(batch_size=5, alpha=0.5, seed=3), True)
    counts = Counter(languages[batch[0].codes[0]] for epoch in range(20) for batch in rows.draw(epoch))
    observed, total = [counts[language] for language in sizes], 20 * rows.batches

    def test_alpha(alpha: float) -> float:
        weights = [size**alpha for size in sizes.values()]
        return float(chisquare(observed, [total * weight / sum(weights) for weight in weights]).pvalue)

    assert test_alpha(0.5) > 0.01
    assert max(test_alpha(0), test_alpha(0.4), test_alpha(0.6), test_alpha(1)) < 1e-6


words = st.lists(st.sampled_from(["sort", "list", "python", "by", "key"]), min_size=2, max_size=6)


@given(words, st.integers())
def test_a_rewriting_deletes_copies_or_switches(query: list[str], seed: int) -> None:
    def rewrite(how: Rewriting) -> list[str]:
        return rewrite_query(" ".join(query), how, Random(seed)).split()

    copied, switched, deleted = rewrite("copy"), rewrite("switch"), rewrite("delete")
    assert any(deleted == query[:place] + query[place + 1 :] for place in range(len(query)))
    assert any(query == copied[:place] + copied[place + 1 :] for place in range(len(copied)))
    assert set(copied) == set(query)
    assert Counter(switched) == Counter(query)
    assert sum(one != other for one, other in zip(switched, query, strict=True)) in {0, 2}


def test_a_query_of_one_word_is_not_rewritten() -> None:
    ways: list[Rewriting] = ["delete", "copy", "switch", "none"]
    assert [rewrite_query("sort", how, Random(0)) for how in ways] == ["sort"] * 4


def test_the_dataset_has_the_texts_of_the_drawn_epoch() -> None:
    data = make_data(PAIRS, 40)
    rows = EpochRows(data, "ranking", Hyperparameters(batch_size=8, hard_negatives=2), True)
    dataset = rows.make_dataset()
    drawn = [row for batch in rows.draw(3) for row in batch]
    texts = [[data.queries[row.query], *(data.codes[code] for code in row.codes)] for row in drawn]
    assert [list(row.values()) for row in dataset.select(range(len(drawn)))] == texts
    assert list(dataset[0]) == ["query", "code", "negative_1", "negative_2"]
    assert len(pickle.dumps(rows)) < 100


def test_rewritten_queries_differ_by_epoch_and_only_for_label_1() -> None:
    def read(epoch: int) -> dict[tuple[str, str], tuple[int, str]]:
        rows = EpochRows(make_data(PAIRS, 40), "labels", Hyperparameters(rewrite="switch"), True)
        dataset = rows.make_dataset()
        rows.draw(epoch)
        assert list(dataset[0]) == ["query", "code", "label", "rewritten"]
        return {(row["query"], row["code"]): (row["label"], row["rewritten"]) for row in dataset}

    epoch = read(1)
    assert all((label == 0) == (rewritten == query) for (query, _), (label, rewritten) in epoch.items())
    assert read(1) == epoch
    assert read(2) != epoch
