"""Which pairs a queue holds, why, and in which order; a run's sample is drawn once, and gone on with."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.store import load_run
from agent.store.reviews import Review, ReviewSample, read_sample
from agent.types import Annotation, Cause, ErrorInfo, Status
from agent.types import TestReport as Report
from agent.views.queues import (
    KINDS,
    QueueEntry,
    SampleRequest,
    build_queue,
    build_sample_queue,
    load_or_draw_sample,
    parse_kinds,
)
from tests.store.samples import make_annotation, make_pair, open_folder
from tests.views.review_runs import make_history, make_report, make_run

PASSED, FAILED = make_report(2, 0), make_report(1, 1)
VACUOUS = PASSED.model_copy(update={"vacuous": True})
RAISED = Report(status=Status.ERROR, cause=Cause.SNIPPET)


def annotation(pair_id: str, **fields: Any) -> Annotation:
    return Annotation(id=pair_id, input_sha256="0" * 64, **fields)


def review(pair_id: str, label: int | None, reviewer: str) -> Review:
    return Review(id=pair_id, label=label, reviewer=reviewer, at=datetime.now(UTC), blind=True, source="queue")  # type: ignore[arg-type]


def found(kind: str, *annotations: Annotation, reviews: tuple[Review, ...] = ()) -> dict[str, tuple[str, ...]]:
    pairs = [list(rounds) for _, rounds in groupby(annotations, lambda each: each.id)]
    return {entry.id: entry.why for entry in build_queue(parse_kinds([kind]), pairs, reviews).entries}


def test_undecided_are_those_without_a_label_and_those_that_the_arbiter_gave_up() -> None:
    broken = ErrorInfo(type="ModelError", message="no reply")
    assert found(
        "undecided",
        annotation("decided", label=0),
        annotation("open"),
        annotation("broken", error=broken),
        annotation("abstained", label=0, abstained=True),
        annotation("tied", label=1),
        annotation("tied", label=0, round=1),
        annotation("two to one", label=1),
        annotation("two to one", round=1, error=broken),
    ) == {
        "open": ("the run did not decide",),
        "broken": ("the run ended in an error",),
        "abstained": ("the arbiter abstained",),
        "tied": ("the run did not decide",),
    }


def test_disputed_are_labels_that_a_test_a_round_a_vote_or_a_reviewer_contradicts() -> None:
    reviews = (
        review("reviewers", 1, "ann"),
        review("reviewers", 0, "bob"),
        review("one reviewer", 0, "ann"),
        review("cannot decide", None, "ann"),
        review("cannot decide", 1, "bob"),
    )
    assert found(
        "disputed",
        annotation("agreed", label=1, test=PASSED, votes=(1, None, 1)),
        annotation("overruled", label=0, test=PASSED),
        annotation("overruled too", label=1, test=FAILED, votes=(1, 0, 1)),
        annotation("undecided", test=PASSED),
        annotation("nothing proved", label=0, test=VACUOUS),
        annotation("raised", label=1, test=RAISED),
        annotation("rounds", label=1),
        annotation("rounds", label=0, round=1),
        annotation("one round undecided", label=1),
        annotation("one round undecided", round=1),
        annotation("reviewers", label=1),
        annotation("one reviewer", label=1),
        annotation("cannot decide", label=1),
        reviews=reviews,
    ) == {
        "overruled": ("label and test outcome differ",),
        "overruled too": ("label and test outcome differ", "votes disagree"),
        "rounds": ("rounds disagree",),
        "reviewers": ("reviewers disagree",),
    }


def test_low_confidence_comes_lowest_first_and_leaves_out_what_has_none() -> None:
    some = [annotation(name, label=1, confidence=value) for name, value in (("b", 0.9), ("a", 0.2), ("c", None))]
    assert list(found("low-confidence", *some)) == ["a", "b"]
    assert found("low-confidence", *some)["a"] == ("confidence 0.20",)


def test_several_queues_are_one_after_the_other_with_each_pair_once() -> None:
    some = [[annotation("x", label=1, confidence=0.9)], [annotation("y", confidence=0.1)], [annotation("z", label=1)]]
    queue = build_queue(("undecided", "low-confidence"), some, ())
    assert queue.entries == (
        QueueEntry("y", why=("the run did not decide", "confidence 0.10")),
        QueueEntry("x", why=("confidence 0.90",)),
    )
    assert queue.title == "undecided and low-confidence, 2 pairs"


def test_a_limit_takes_the_first_ones_and_says_so() -> None:
    queue = build_queue(("undecided",), [[annotation(name)] for name in "abc"], (), limit=2)
    assert ([entry.id for entry in queue.entries], queue.title) == (["a", "b"], "undecided, the first 2 pairs of 3")


def test_an_unknown_queue_is_told_with_those_there_are() -> None:
    assert parse_kinds([*KINDS, "disputed"]) == KINDS
    with pytest.raises(UsageError, match="no queue 'nope'; there is undecided, disputed, low-confidence"):
        parse_kinds(["nope"])


LABELS = {f"p{number}": {"label": number % 2} for number in range(30)}


def sample(run: Path, new: bool = False, **wanted: object) -> ReviewSample:
    with load_run(run) as view:
        return load_or_draw_sample(view, SampleRequest(**wanted), view.annotations, new=new)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", LABELS)


def test_without_a_wish_a_hundred_pairs_are_drawn_by_label_and_by_who_decided(run: Path) -> None:
    drawn = sample(run)
    assert (drawn.size, drawn.by, drawn.seed) == (30, ("decided_by", "label"), 0)
    assert sample(run) == sample(run, size=500, by=("label", "decided_by"), seed=0) == drawn
    assert read_sample(run / "review_sample.json") == drawn


@pytest.mark.parametrize(
    ("wanted", "named"),
    [({"size": 11}, "--sample 11"), ({"by": ("decided_by",)}, "--stratify decided_by"), ({"seed": 8}, "--seed 8")],
)
def test_other_options_are_refused_and_the_sample_stays(run: Path, wanted: dict[str, object], named: str) -> None:
    drawn = sample(run, size=10, by=("label",), seed=7)
    with pytest.raises(UsageError, match=f"already has a sample of 10 of 30 pairs, by label, seed 7, .*not {named}"):
        sample(run, **wanted)
    assert read_sample(run / "review_sample.json") == drawn


def test_a_simple_random_sample_has_one_stratum(run: Path) -> None:
    drawn = sample(run, size=5, by=())
    assert [(stratum.key, stratum.size) for stratum in drawn.strata] == [({}, 30)]
    assert sample(run, by=()) == drawn


def test_a_sample_of_a_run_that_went_on_is_refused(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("a", label=1), make_history(make_pair("a"), make_annotation("a")))
    sample(tmp_path / "run")
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("b", label=1), make_history(make_pair("b"), make_annotation("b")))
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
        queue = build_sample_queue(drawn, view)
    assert [(entry.id, entry.round) for entry in queue.entries] == [(pair_id, 0) for pair_id in drawn.shuffle_ids()]
    assert "2 of 2 pairs" in queue.title
    assert queue.sample == drawn.fingerprint


def test_samples_have_a_fingerprint_by_their_pairs_and_order(run: Path) -> None:
    wanted: list[dict[str, int]] = [{"size": 10}, {"size": 12}, {"seed": 1, "size": 30}, {"size": 30}]
    assert len({sample(run, new=True, **each).fingerprint for each in wanted}) == 4
    assert sample(run).fingerprint == sample(run).fingerprint
