"""The pairs of a queue, their reasons and order, and the sample of a run."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.runs.store.reviews import Review
from agent.runs.store.run_view import load_run
from agent.runs.store.samples import ReviewSample, read_sample
from agent.types import Annotation, Cause, ErrorInfo, Status
from agent.types import TestReport as Report
from agent.views.queues import KINDS, SampleRequest, build_queue, build_sample_queue, load_or_draw_sample, parse_kinds
from tests.runs.store.samples import make_annotation, make_pair, open_folder
from tests.views.review_runs import make_history, make_report, make_run

PASSED, FAILED = make_report(2, 0), make_report(1, 1)
RAISED = Report(status=Status.ERROR, cause=Cause.SNIPPET)
KEYWORDS = ("decide", "failed", "test", "rounds", "reviewers", "generated")


def annotation(pair_id: str, **fields: Any) -> Annotation:
    return Annotation(id=pair_id, input_sha256="0" * 64, **fields)


def review(pair_id: str, label: int | None, reviewer: str) -> Review:
    return Review(id=pair_id, label=label, reviewer=reviewer, at=datetime.now(UTC), blind=True, source="queue")  # type: ignore[arg-type]


def list_reasons(kind: str, *annotations: Annotation, reviews: tuple[Review, ...] = ()) -> dict[str, tuple[str, ...]]:
    pairs = [list(rounds) for _, rounds in groupby(annotations, lambda annotation: annotation.id)]
    entries = build_queue(parse_kinds([kind]), pairs, reviews).entries
    return {entry.id: tuple(word for why in entry.why for word in KEYWORDS if word in why) for entry in entries}


def test_generated_pairs_are_the_matches_whose_code_a_model_wrote() -> None:
    generated = {"source": "generated"}
    queue = build_queue(parse_kinds(["generated"]), [
        [annotation("match", label=1, meta=generated)],
        [annotation("no match", label=0, meta=generated)],
        [annotation("from the web", label=1, meta={"source": "web"})],
        [annotation("by majority", label=label, round=i, meta=generated) for i, label in enumerate((0, 1, 1))],
    ], ())  # fmt: skip
    assert [entry.id for entry in queue.entries] == ["match", "by majority"]


def test_proposed_equivalents_are_reviewed_with_their_evidence() -> None:
    record = {"of": "c1", "group": "g1", "evidence": [{"input": "[3, 1]", "output": "[1, 3]"}]}
    pairs = [
        [annotation(str(meta), label=0, meta={"equivalent": meta})] for meta in (record, record | {"of": 1}, {}, None)
    ]
    [entry] = build_queue(parse_kinds(["equivalents"]), pairs, ()).entries
    assert (entry.id, len(entry.why)) == (str(record), 2)
    assert all(text in " ".join(entry.why) for text in ("c1", "[3, 1]", "[1, 3]"))


def test_undecided_pairs_have_no_label() -> None:
    error = ErrorInfo(type="ModelError", message="no reply")
    assert list_reasons(
        "undecided",
        annotation("decided", label=0),
        annotation("open"),
        annotation("failed", error=error),
        annotation("tied", label=1),
        annotation("tied", label=0, round=1),
        annotation("majority", label=1),
        annotation("majority", round=1, error=error),
    ) == {
        "open": ("decide",),
        "failed": ("failed",),
        "tied": ("decide",),
    }


def test_disputed_pairs_have_contradictory_tests_rounds_or_reviewers() -> None:
    reviews = (
        review("reviewers", 1, "ann"),
        review("reviewers", 0, "bob"),
        review("one reviewer", 0, "ann"),
        review("cannot decide", None, "ann"),
        review("cannot decide", 1, "bob"),
    )
    assert list_reasons(
        "disputed",
        annotation("agreed", label=1, test=PASSED),
        annotation("overruled", label=0, test=PASSED),
        annotation("contradicted", label=1, test=FAILED),
        annotation("undecided", test=PASSED),
        annotation("raised", label=1, test=RAISED),
        annotation("rounds", label=1),
        annotation("rounds", label=0, round=1),
        annotation("one round", label=1),
        annotation("one round", round=1),
        annotation("reviewers", label=1),
        annotation("one reviewer", label=1),
        annotation("cannot decide", label=1),
        reviews=reviews,
    ) == {
        "overruled": ("test",),
        "contradicted": ("test",),
        "rounds": ("rounds",),
        "reviewers": ("reviewers",),
    }


def test_several_queues_are_concatenated_without_duplicates() -> None:
    generated = {"source": "generated"}
    pairs = [
        [annotation("x", label=1, meta=generated), annotation("x", label=1, round=1), annotation("x", round=2)],
        [annotation("y")],
        [annotation("z", label=1, meta=generated, test=FAILED)],
    ]
    queue = build_queue(("undecided", "disputed", "generated"), pairs, ())
    assert [(entry.id, len(entry.why)) for entry in queue.entries] == [("y", 1), ("z", 2), ("x", 1)]
    assert all(word in queue.title for word in ("undecided", "disputed", "generated", "3"))


def test_a_limit_keeps_the_first_pairs_and_appears_in_the_title() -> None:
    queue = build_queue(("undecided",), [[annotation(name)] for name in "abc"], (), limit=2)
    assert [entry.id for entry in queue.entries] == ["a", "b"]
    assert re.findall(r"\d+", queue.title) == ["2", "3"]


def test_an_unknown_queue_lists_the_known_ones() -> None:
    assert parse_kinds([*KINDS, "disputed"]) == KINDS
    with pytest.raises(UsageError, match=r"'nope'.* undecided, disputed, generated, equivalents"):
        parse_kinds(["nope"])


LABELS = {f"p{number}": {"label": number % 2} for number in range(30)}


def draw(run: Path, new: bool = False, **request: object) -> ReviewSample:
    with load_run(run) as view:
        return load_or_draw_sample(view, SampleRequest(**request), view.annotations, new=new)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", LABELS)


def test_the_default_sample_is_stratified_by_decider_and_label(run: Path) -> None:
    sample = draw(run)
    assert (sample.size, sample.by, sample.seed) == (30, ("decided_by", "label"), 0)
    assert draw(run) == draw(run, size=500, by=("label", "decided_by"), seed=0) == sample
    assert read_sample(run / "review_sample.json") == sample


@pytest.mark.parametrize(
    ("fields", "option"),
    [({"size": 11}, "--sample 11"), ({"by": ("decided_by",)}, "--stratify decided_by"), ({"seed": 8}, "--seed 8")],
)
def test_options_that_differ_from_the_sample_are_rejected(run: Path, fields: dict[str, object], option: str) -> None:
    sample = draw(run, size=10, by=("label",), seed=7)
    with pytest.raises(UsageError, match=rf"10 from 30.*\blabel\b.*seed 7.*{option}.*--new-sample"):
        draw(run, **fields)
    assert read_sample(run / "review_sample.json") == sample


def test_a_simple_random_sample_has_one_stratum(run: Path) -> None:
    sample = draw(run, size=5, by=())
    assert [(stratum.key, stratum.size) for stratum in sample.strata] == [({}, 30)]
    assert draw(run, by=()) == sample


def test_the_sample_of_a_run_that_has_changed_is_rejected(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("a", label=1), make_history(make_pair("a"), make_annotation("a")))
    draw(tmp_path / "run")
    with open_folder(tmp_path / "run", pairs="abc") as folder:
        folder.commit(make_annotation("b", label=1), make_history(make_pair("b"), make_annotation("b")))
    with pytest.raises(UsageError, match=r"run.*--new-sample"):
        draw(tmp_path / "run")
    assert draw(tmp_path / "run", new=True).population == 2


def test_reviewers_who_start_at_the_same_time_get_the_same_sample(run: Path) -> None:
    samples: list[ReviewSample] = []
    threads = [threading.Thread(target=lambda: samples.append(draw(run, size=8))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(samples) == 6
    assert len({sample.model_dump_json() for sample in samples}) == 1


def test_the_queue_of_a_sample_has_random_order_and_first_rounds(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": {"rounds": [{"label": 1}, {"label": 0}]}, "b": {"label": 0}})
    sample = draw(run)
    with load_run(run) as view:
        queue = build_sample_queue(sample, view)
    assert [(entry.id, entry.round) for entry in queue.entries] == [(pair_id, 0) for pair_id in sample.shuffle_ids()]
    assert (queue.title.count("2"), queue.sample) == (2, sample.fingerprint)


def test_the_fingerprint_of_a_sample_depends_on_its_pairs_and_their_order(run: Path) -> None:
    requests: list[dict[str, int]] = [{"size": 10}, {"size": 12}, {"seed": 1, "size": 30}, {"size": 30}]
    assert len({draw(run, new=True, **request).fingerprint for request in requests}) == 4
    assert draw(run).fingerprint == draw(run).fingerprint
