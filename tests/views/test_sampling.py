"""A run's sample is drawn once, gone on with, and replaced only when that is asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.store import load_run
from agent.store.reviews import ReviewSample, read_sample
from agent.views.sampling import Wanted, lone_strata, queue_from, sample_of
from tests.store.samples import make_annotation, make_pair, open_folder
from tests.views.review_runs import make_evidence, make_run

LABELS = {f"p{number}": {"label": number % 2} for number in range(30)}


def sample(run: Path, new: bool = False, **wanted: object) -> ReviewSample:
    with load_run(run) as view:
        return sample_of(view, Wanted(**wanted), view.annotations, new=new)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", LABELS)


def test_without_a_wish_a_hundred_pairs_are_drawn_by_label_and_by_who_decided(run: Path) -> None:
    drawn = sample(run)
    assert (drawn.size, drawn.by, drawn.seed) == (30, ("decided_by", "label"), 0)
    assert read_sample(run / "review_sample.json") == drawn


def test_the_same_options_or_none_go_on_with_the_sample(run: Path) -> None:
    drawn = sample(run, size=10, by=("label",), seed=7)
    assert sample(run, size=10, by=("label",), seed=7) == drawn
    assert sample(run) == drawn


@pytest.mark.parametrize(
    ("wanted", "named"),
    [({"size": 11}, "--sample 11"), ({"by": ("decided_by",)}, "--stratify decided_by"), ({"seed": 8}, "--seed 8")],
)
def test_other_options_are_refused_and_the_sample_stays(run: Path, wanted: dict[str, object], named: str) -> None:
    drawn = sample(run, size=10, by=("label",), seed=7)
    with pytest.raises(UsageError, match=f"already has a sample of 10 of 30 pairs, by label, seed 7, .*not {named}"):
        sample(run, **wanted)
    assert read_sample(run / "review_sample.json") == drawn


def test_a_new_sample_takes_the_place_of_the_old_one(run: Path) -> None:
    old = sample(run, size=10)
    new = sample(run, new=True, size=12, seed=1)
    assert (new.size, new.seed) == (12, 1)
    assert new != old
    assert read_sample(run / "review_sample.json") == new


def test_a_sample_larger_than_the_run_is_the_run_each_time(run: Path) -> None:
    assert sample(run, size=500).size == 30
    assert sample(run, size=500).size == 30


def test_a_simple_random_sample_has_one_stratum(run: Path) -> None:
    drawn = sample(run, size=5, by=())
    assert [(stratum.key, stratum.size) for stratum in drawn.strata] == [({}, 30)]
    assert sample(run, by=()) == drawn


def test_a_sample_of_a_run_that_went_on_is_refused(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("a", label=1), make_evidence(make_pair("a"), make_annotation("a")))
    sample(tmp_path / "run")
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("b", label=1), make_evidence(make_pair("b"), make_annotation("b")))
    with pytest.raises(UsageError, match="the run has changed since"):
        sample(tmp_path / "run")
    assert sample(tmp_path / "run", new=True).population == 2


def test_reviewers_who_start_at_once_have_the_same_sample(run: Path) -> None:
    drawn: list[ReviewSample] = []
    starters = [threading.Thread(target=lambda: drawn.append(sample(run, size=8))) for _ in range(6)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert len(drawn) == 6
    assert len({each.model_dump_json() for each in drawn}) == 1


def test_a_queue_from_a_sample_has_its_pairs_in_random_order_by_their_first_round(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": {"rounds": [{"label": 1}, {"label": 0}]}, "b": {"label": 0}})
    drawn = sample(run)
    with load_run(run) as view:
        queue = queue_from(drawn, view)
    assert [(entry.id, entry.round) for entry in queue.entries] == [(pair_id, 0) for pair_id in drawn.ids()]
    assert "2 of 2 pairs" in queue.title
    assert queue.sample == drawn.fingerprint


def test_samples_have_a_fingerprint_by_their_pairs_and_order(run: Path) -> None:
    drawn = sample(run, size=10)
    assert drawn.fingerprint == sample(run).fingerprint
    others = [sample(run, new=True, **wanted) for wanted in ({"size": 12}, {"seed": 1, "size": 30}, {"size": 30})]
    assert len({each.fingerprint for each in [drawn, *others]}) == 4


def test_strata_with_one_pair_drawn_of_several_are_counted(run: Path) -> None:
    assert lone_strata(sample(run, size=2)) == 2
    assert lone_strata(sample(run, new=True, size=4)) == 0
