"""Review sessions: what a reviewer sees before and after a commit, and what a commit stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from agent.errors import RunFolderError, UsageError
from agent.pipeline.graph import Variant
from agent.runs.store import files
from agent.runs.store.evidence import EvidenceStore
from agent.runs.store.reviews import ReviewLog, read_reviews
from agent.runs.store.run_view import load_run
from agent.views.queues import Queue, QueueEntry
from agent.views.review_session import GUIDELINES, ReviewSession, get_guidelines
from tests.views.review_runs import SECRET, make_report, make_run

AT = datetime(2026, 5, 4, 3, 2, 1, 999, tzinfo=UTC)


@contextmanager
def open_session(
    run: Path, *, reviewer: str = "ann", blind: bool = True, sample: str | None = None
) -> Iterator[ReviewSession]:
    with load_run(run) as view:
        yield ReviewSession(
            view=view,
            queue=Queue(
                "all", tuple(QueueEntry(*key, (SECRET,)) for key in view.index.iterate_keys() if not key[1]), sample
            ),
            reviewer=reviewer,
            blind=blind,
            log=ReviewLog(run / files.REVIEWS),
            guidelines=get_guidelines(view.manifest),
            clock=lambda: AT,
        )


def review(label: int | None, reason: str = "", reviewer: str = "ann") -> dict[str, Any]:
    return {"label": label, "reason": reason, "reviewer": reviewer}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {"p0": {"test": make_report(1, 1)}, "p1": {"label": 0}})


def test_a_blind_reviewer_sees_query_and_code_only(run: Path) -> None:
    with open_session(run, reviewer="bob") as other:
        other.commit(0, review(0, f"{SECRET} says bob", "bob"))
    with open_session(run) as session:
        shown = session.show(0)
        assert shown["pair"] == {
            "query": "query of p0",
            "code": "def reverse(items):\n    return items[::-1]\n",
            "language": "python",
            "context": None,
        }
        assert (shown["mine"], shown["evidence"]) == (None, None)
        everything = json.dumps([session.show(0), session.show(1), session.describe_session()])
        assert SECRET not in everything
        assert '"p0"' not in everything


def test_a_commit_reveals_the_evidence_of_that_pair_only(run: Path) -> None:
    with open_session(run, reviewer="bob") as other:
        other.commit(0, review(0, "says bob", "bob"))
    with open_session(run) as session:
        session.commit(0, review(1))
        evidence = session.show(0)["evidence"]
        assert evidence["id"] == "p0"
        assert evidence["why"] == (SECRET,)
        story = {step["kind"]: step for step in evidence["story"]}
        assert list(story) == ["label", "fields", "program", "execution", "reply"]
        assert story["label"]["parts"][0]["text"] == f"{SECRET} it does so"
        cases = story["execution"]["parts"][0]["outcomes"]
        assert [name for _, name, _ in cases] == ["", "test_right_0", "test_wrong_0"]
        assert story["program"]["parts"][0]["text"].startswith(f"# {SECRET}")
        assert [part["kind"] for part in story["reply"]["parts"]] == ["reply"], "no prompt"
        assert [(other["reviewer"], other["label"], other["reason"]) for other in evidence["others"]] == [
            ("bob", 0, "says bob")
        ]
        assert SECRET not in json.dumps(session.show(1))


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"label": 1},
        {"label": 1, "reason": ""},
        review(2),
        {**review(1), "label": True},
        {**review(1), "label": "1"},
        {**review(1), "label": []},
        {**review(1), "reason": None},
        review(1, "x" * 10_001),
        {**review(1), "blind": True},
        {**review(1), "reviewer": ["ann"]},
        review(1, reviewer="bob"),
    ],
)
def test_invalid_reviews_are_not_written(run: Path, document: object) -> None:
    with open_session(run) as session, pytest.raises(UsageError):
        session.commit(0, document)
    assert read_reviews(run / files.REVIEWS) == []


@pytest.mark.parametrize("has_file", [True, False])
def test_a_pair_without_evidence_is_read_from_the_input(run: Path, has_file: bool) -> None:
    (run / files.EVIDENCE).unlink()
    if has_file:
        EvidenceStore(run / files.EVIDENCE).close()
    with open_session(run, blind=False) as session:
        shown = session.show(1)
    assert shown["pair"]["query"] == "query of p1"
    assert shown["evidence"]["kept"] is False
    step = shown["evidence"]["story"][0]
    assert (step["kind"], "label 0" in step["title"], "arbitrate" in step["title"]) == ("label", True, True)


def test_a_commit_reveals_the_evidence_in_all_sessions_of_the_reviewer(run: Path) -> None:
    with open_session(run) as first, open_session(run) as second, open_session(run, reviewer="bob") as bob_session:
        first.commit(0, review(1))
        assert first.show(0)["evidence"] is not None
        assert second.commit(0, review(0))["saved"]["blind"] is False
        assert second.commit(1, review(0))["saved"]["blind"] is True
        assert bob_session.commit(0, review(0, reviewer="bob"))["saved"]["blind"] is True
    assert [review.blind for review in read_reviews(run / files.REVIEWS)] == [False, True, True]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\tb", "\u202eann", "\ud800", "x" * 101, 1, None, ["ann"]])
def test_invalid_names_do_not_change_the_reviewer(run: Path, name: object) -> None:
    with open_session(run) as session:
        for document in ({"reviewer": name}, {"name": name}, name):
            with pytest.raises(UsageError):
                session.change_reviewer(document)
        assert session.reviewer == "ann"


@pytest.mark.parametrize(("sample", "source"), [(None, "queue"), ("0f", "sample")])
def test_a_review_records_its_queue_or_sample(run: Path, sample: str | None, source: str) -> None:
    with open_session(run, sample=sample) as session:
        session.commit(0, review(1))
    assert [(review.source, review.sample) for review in read_reviews(run / files.REVIEWS)] == [(source, sample)]


def test_every_criterion_has_guidelines() -> None:
    criteria = get_args(Variant.model_fields["criterion"].annotation)
    assert set(criteria) == set(GUIDELINES)
    for criterion in criteria:
        assert get_guidelines({"identity": {"pipeline": {"criterion": criterion}}}) is GUIDELINES[criterion]
    exact, half = (set(GUIDELINES[criterion].notes) for criterion in ("exact", "half"))
    assert (len(exact - half), len(half - exact)) == (1, 1)
    with pytest.raises(RunFolderError, match="'other'"):
        get_guidelines({"identity": {"pipeline": {"criterion": "other"}}})
