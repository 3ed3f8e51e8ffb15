"""Scores of searchers that are corrected by reviews of whole queries."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.reviewed import score_reviews, shuffle
from agent.runs.store.run_view import load_run
from agent.views.queues import build_query_queue
from tests.evaluation.runs import add_reviews
from tests.retrieval.pooled import add_rankings, make_folder
from tests.runs.store.samples import commit, make_pair, open_folder

NAMES = [f"q{number}" for number in range(40)]
ORDER = shuffle(NAMES)
SEARCHERS = {
    "one": {name: {f"a-{name}": 3.0, f"k-{name}": 2.0} for name in NAMES},
    "two": {name: {f"b-{name}": 2.0, f"k-{name}": 2.0} for name in NAMES},
}
"""`k` is relevant according to the benchmark. The annotator labels `a` 1 and `b` 0."""


def make_judged(folder: Path) -> Path:
    """Create a retrieval folder whose pool is judged, and return its path."""
    queries = {name: (f"query {name}", f"k-{name}", 2) for name in NAMES}
    codes = {f"{kind}-{name}": f"{kind}_{name} = 1" for name in NAMES for kind in "abk"}
    path = make_folder(folder, SEARCHERS, queries, codes)
    pairs = [
        make_pair(code, meta={"query_id": name, "code_id": code})
        for name in NAMES
        for code in (f"a-{name}", f"b-{name}")
    ]
    (path / "pool.jsonl").write_text("".join(f"{pair.model_dump_json()}\n" for pair in pairs))
    with open_folder(path / "judged", pairs=pairs) as run:
        for pair in pairs:
            commit(run, pair.id, label=int(pair.id < "b"), meta=pair.meta)
    return path


def review(path: Path, queries: list[str], wrong: int, label: int | None = 1, **more: Any) -> None:
    """Review all pairs of queries. `label` is the review of `b` in the first query. `wrong` labels of `a` are wrong."""
    labels = {f"a-{name}": int(number >= wrong) for number, name in enumerate(queries)}
    labels |= {f"b-{name}": 0 for name in queries}
    add_reviews(path / "judged", "reader", labels, **more)
    for reviewer in ("other", "third"):
        add_reviews(path / "judged", reviewer, {**labels, f"b-{queries[0]}": label}, **more)


def test_scores_match_manual_results(tmp_path: Path) -> None:
    path = make_judged(tmp_path)
    review(path, ORDER[:32], wrong=8)
    scores = score_reviews(RetrievalFolder(path), metrics=["p@1", "P@2", "DCG@2"])
    one, two = scores.searchers
    assert (scores.queries, scores.reviewed, scores.pairs, scores.undecided) == (40, 32, 64, 0)
    assert one.differences is None
    assert two.differences is not None
    low = 1 / log2(3)
    # `k` has grade 2. It ties with `b`, so both have the mean discount.
    expected = {"P@1": (1, 0.75), "P@2": (1, 0.875), "DCG@2": (1 + 2 * low, 0.75 + 2 * low)}
    assert {name: (v.predicted, v.mean) for name, v in one.values.items()} == {
        name: pytest.approx(value) for name, value in expected.items()
    }
    b, tied = 1 / 32, (1 + low) / 2
    expected = {"P@1": (0.5, (1 + b) / 2), "P@2": (0.5, (1 + b) / 2), "DCG@2": (2 * tied, (2 + b) * tied)}
    assert {name: (v.predicted, v.mean) for name, v in two.values.items()} == {
        name: pytest.approx(value) for name, value in expected.items()
    }
    for name, value in two.differences.items():
        assert value.mean == pytest.approx(two.values[name].mean - one.values[name].mean)
        assert value.interval is not None
        assert value.interval.low < value.mean < value.interval.high


@pytest.mark.parametrize("label", [None, 0])
def test_pairs_that_reviewers_cannot_decide_are_not_relevant(tmp_path: Path, label: int | None) -> None:
    path = make_judged(tmp_path)
    review(path, ORDER[:30], wrong=0, label=label)
    scores = score_reviews(RetrievalFolder(path), metrics=["P@1"], searchers=["two"])
    assert (scores.undecided, scores.searchers[0].values["P@1"].mean) == (int(label is None), 0.5)


@pytest.mark.parametrize(
    ("queries", "figures"), [(ORDER[:29], ("29", "1")), (ORDER[1:], ("0", "30"))], ids=["too few", "first missing"]
)
def test_too_few_reviewed_queries_are_rejected(tmp_path: Path, queries: list[str], figures: tuple[str, str]) -> None:
    path = make_judged(tmp_path)
    review(path, queries, 0)
    with pytest.raises(UsageError, match=f": {figures[0]} .* {figures[1]} "):
        score_reviews(RetrievalFolder(path), metrics=["P@1"])


def test_results_without_judgement_and_other_metrics_are_rejected(tmp_path: Path) -> None:
    path = make_judged(tmp_path)
    review(path, ORDER, 0)
    add_rankings(path, {"new": {"q0": {"b-q1": 1.0}, "unknown": {"k-q0": 1.0}}})
    with pytest.raises(UsageError, match="agent retrieval judge"):
        score_reviews(RetrievalFolder(path))
    with pytest.raises(UsageError, match="nDCG@10"):
        score_reviews(RetrievalFolder(path), metrics=["nDCG@10"])
    assert score_reviews(RetrievalFolder(path), searchers=["two", "one"]).searchers[1].searcher == "one"


def test_the_queue_contains_whole_queries_in_random_order(tmp_path: Path) -> None:
    with load_run(make_judged(tmp_path) / "judged") as view:
        queue = build_query_queue(view.index.group_by_pair(), 3)
    assert [entry.id.partition("-")[2] for entry in queue.entries] == [name for name in ORDER[:3] for _ in "ab"]
    assert {entry.id[0] for entry in queue.entries[::2]} == {"a", "b"}
    with open_folder(tmp_path / "run") as run:
        commit(run, "1")
    with load_run(tmp_path / "run") as view, pytest.raises(UsageError, match="--queries"):
        build_query_queue(view.index.group_by_pair(), 3)


@pytest.mark.parametrize("others", [0, 2])
def test_a_pair_without_a_blind_review_is_undecided(tmp_path: Path, others: int) -> None:
    path = make_judged(tmp_path)
    add_reviews(path / "judged", "reader", {f"b-{ORDER[0]}": 0}, blind=False, source="queue")
    for reviewer in ["reader", "second", "third"][: others + 1]:
        add_reviews(path / "judged", reviewer, {f"{kind}-{name}": 0 for name in ORDER[:30] for kind in "ab"})
    assert score_reviews(RetrievalFolder(path), metrics=["P@1"]).undecided == int(not others)
