"""Review samples: allocation, reproducibility and inclusion probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import RunFolderError, UsageError
from agent.runs.store.files import write_document
from agent.runs.store.samples import FIELDS, ReviewSample, allocate, draw_sample, is_stale, read_sample
from agent.types import Annotation
from tests.runs.store.samples import make_annotation, make_error, make_full_annotation

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=8)


def make_run(ones: int, zeros: int, errors: int = 0) -> list[Annotation]:
    return [
        *(make_annotation(f"one{n}", label=1, decided_by="screen") for n in range(ones)),
        *(make_annotation(f"zero{n}", label=0, decided_by="arbitrate") for n in range(zeros)),
        *(make_error(f"error{n}") for n in range(errors)),
    ]


@given(SIZES, st.integers(1, 500))
def test_an_allocation_has_the_requested_size_and_fits_the_strata(sizes: list[int], n: int) -> None:
    if n < min(len(sizes), sum(sizes)):
        with pytest.raises(UsageError, match=rf"\b{n} .*\b{len(sizes)} strata"):
            allocate(sizes, n)
        return
    numbers = allocate(sizes, n)
    assert sum(numbers) == min(n, sum(sizes))
    assert all(1 <= number <= size for number, size in zip(numbers, sizes, strict=True))
    if n >= sum(min(2, size) for size in sizes):
        assert all(number >= min(2, size) for number, size in zip(numbers, sizes, strict=True))


def test_large_strata_get_a_proportional_share_and_small_ones_two_pairs() -> None:
    assert allocate([7000, 2000, 1000], 100) == [70, 20, 10]
    assert allocate([7000, 2900, 90, 9, 1], 100) == [67, 28, 2, 2, 1]


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 9), st.integers(3, 60))
def test_a_sample_depends_on_its_seed_and_not_on_the_file_order(random, seed: int, n: int) -> None:  # type: ignore[no-untyped-def]
    annotations = make_run(20, 30, 4)
    sample = draw_sample(annotations, ("decided_by", "label"), n, seed)
    shuffled = list(annotations)
    random.shuffle(shuffled)
    assert draw_sample(shuffled, ("decided_by", "label"), n, seed) == sample
    assert (sample.size, sample.population) == (min(n, 54), 54)
    for stratum in sample.strata:
        assert len(set(stratum.sampled)) == len(stratum.sampled)
        members = [a.id for a in annotations if (a.decided_by, a.label) == tuple(stratum.key.values())]
        assert (set(stratum.sampled) <= set(members), stratum.size) == (True, len(members))
    assert sorted(sample.shuffle_ids()) == sorted(pair_id for stratum in sample.strata for pair_id in stratum.sampled)


def test_inclusion_probabilities_within_a_stratum_are_equal() -> None:
    annotations, seeds = make_run(5, 12, 1), range(2000)
    counts = dict.fromkeys((annotation.id for annotation in annotations), 0)
    for seed in seeds:
        for pair_id in draw_sample(annotations, ("label",), 8, seed).shuffle_ids():
            counts[pair_id] += 1
    for stratum in draw_sample(annotations, ("label",), 8, 0).strata:
        probability = len(stratum.sampled) / stratum.size
        deviation = math.sqrt(len(seeds) * probability * (1 - probability))
        members = {"1": "one", "0": "zero", "None": "error"}[str(stratum.key["label"])]
        for pair_id, times in counts.items():
            if pair_id.startswith(members):
                assert abs(times - len(seeds) * probability) <= 4 * deviation


def test_a_pair_with_several_rounds_belongs_to_the_stratum_of_their_majority() -> None:
    rounds = [make_annotation("a", round=number, label=label) for number, label in ((2, 1), (1, 1), (0, 0))]
    (stratum,) = draw_sample([*rounds, make_annotation("b", label=1)], ("label",), 2, 0).strata
    assert (stratum.key, stratum.size) == ({"label": 1}, 2)
    tie = [make_annotation("a", round=number, label=number, decided_by="screen") for number in (0, 1)]
    (stratum,) = draw_sample(tie, ("decided_by", "label", "stand_ins"), 1, 0).strata
    assert stratum.key == {"decided_by": None, "label": None, "stand_ins": "none"}


def test_strata_have_the_values_of_the_annotations() -> None:
    (stratum,) = draw_sample([make_full_annotation()], tuple(FIELDS), 1, 0).strata
    assert stratum.key == {
        "decided_by": "arbitrate",
        "label": 0,
        "status": "failed",
        "cause": None,
        "screen_verdict": "unclear",
        "stand_ins": "some",
        "error": None,
    }
    (stratum,) = draw_sample([make_error()], ("error", "label", "status"), 1, 0).strata
    assert stratum.key == {"error": "ModelError", "label": None, "status": None}


def test_impossible_samples_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'lable'.* decided_by, label\b"):
        draw_sample(make_run(1, 1), ("lable",), 1, 0)
    with pytest.raises(UsageError, match="no annotations"):
        draw_sample([], ("label",), 1, 0)
    with pytest.raises(UsageError, match=r"\b2 .*\b3 strata"):
        draw_sample(make_run(5, 5, 5), ("label",), 2, 0)


def test_samples_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "review_sample.json"
    sample = draw_sample([*make_run(3, 3, 2), make_full_annotation()], ("label", "error"), 7, 5)
    assert read_sample(path) is None
    write_document(path, sample)
    assert read_sample(path) == sample
    record = json.loads(path.read_text())
    assert list(record) == ["schema", "seed", "by", "strata"]
    assert record["strata"][1] | {"sampled": 0} == {"key": {"label": 1, "error": None}, "size": 3, "sampled": 0}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("{", ""),
        ('{"schema": 9}', "schema 9"),
        (f'{{"seed": 0, "by": [], "strata": [{{"key": {{}}, "size": {10**400}, "sampled": ["a"]}}]}}', "size"),
    ],
)
def test_a_damaged_sample_is_reported(tmp_path: Path, content: str, cause: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(RunFolderError, match=rf"s\.json: .*{cause}"):
        read_sample(tmp_path / "s.json")


def test_a_sample_is_stale_after_the_run_has_changed() -> None:
    annotations = make_run(4, 4)
    sample: ReviewSample = draw_sample(annotations, ("label",), 4, 0)
    assert not is_stale(sample, reversed(annotations))
    assert is_stale(sample, [*annotations, make_annotation("new", label=1)])
    new_labels = {stratum.sampled[0]: 1 - int(stratum.key["label"] or 0) for stratum in sample.strata}
    relabelled = [make_annotation(a.id, label=new_labels.get(a.id, a.label)) for a in annotations]
    assert is_stale(sample, relabelled)
