"""Certificates count every pair of the sample, and notice changes of the run, the sample and its order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.evaluation.guarantee import (
    Guarantee,
    Method,
    calibrate_sample,
    certify_sample,
    read_reviewed_sample,
)
from agent.runs.store.files import write_document
from agent.runs.store.run_view import load_run
from agent.runs.store.samples import draw_sample, read_sample, replace_sample
from tests.evaluation.runs import add_reviews, annotate, write_run

LEVEL = 0.05


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 400 labels, all right, with a drawn sample of 150 pairs."""
    annotations = [
        *(annotate(f"p{number}", 1, "passed") for number in range(100)),
        *(annotate(f"p{number}", 0) for number in range(100, 400)),
    ]
    path = write_run(tmp_path_factory.mktemp("guarantee") / "run", annotations)
    draw(path)
    return path


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def draw(run: Path, size: int = 150, seed: int = 0) -> None:
    with load_run(run) as view:
        replace_sample(run / "review_sample.json", draw_sample(view.annotations(), ("evidence",), size, seed))


def get_order(run: Path) -> list[str]:
    sample = read_sample(run / "review_sample.json")
    assert sample is not None
    return sample.shuffle_ids()


def review(run: Path, ids: Iterable[str], reviewer: str = "ana", **changes: int | None) -> None:
    add_reviews(run, reviewer, {pair_id: int(int(pair_id[1:]) < 100) for pair_id in ids} | changes)


def certify(run: Path, method: Method = "exact", level: float = LEVEL) -> Guarantee:
    with load_run(run) as view:
        return certify_sample(read_reviewed_sample(view), level, method)


def test_an_exact_bound_needs_the_whole_sample_and_an_anytime_bound_does_not(run: Path) -> None:
    order = get_order(run)
    review(run, order[:-1])
    with pytest.raises(UsageError):
        certify(run)
    early = certify(run, "anytime")
    review(run, order[-1:])
    complete = certify(run)
    assert early.certificate.total.reviewed == complete.certificate.total.reviewed - 1 == 149
    assert complete.certificate.total.bound <= early.certificate.total.bound <= LEVEL * 400
    assert (early.exact, complete.exact) == (None, None)
    assert certify(run, "anytime").exact == complete.certificate.prefixes[-1]


def test_only_the_reviewed_beginning_of_the_order_counts(run: Path) -> None:
    order = get_order(run)
    review(run, [*order[:100], *order[101:]])
    assert sum(prefix.reviewed for prefix in certify(run, "anytime").certificate.prefixes[-1:]) == 100


@pytest.mark.parametrize(
    ("votes", "blind"), [([None], True), ([1], False), ([0, 1], True)], ids=["undecided", "not blind", "tied"]
)
def test_a_pair_without_a_verdict_makes_the_bound_worse(run: Path, votes: list[int | None], blind: bool) -> None:
    order = get_order(run)
    first = next(pair_id for pair_id in order if int(pair_id[1:]) < 100)
    for reviewer, vote in zip(("ana", "ben"), votes, strict=False):
        review(run, [pair_id for pair_id in order if pair_id != first], reviewer)
        add_reviews(run, reviewer, {first: vote}, blind=blind)
    worse = certify(run)
    assert (worse.certificate.total.reviewed, worse.certificate.total.wrong, worse.without_verdict) == (150, 1, 1)


def test_a_second_review_by_the_same_reviewer_does_not_count(run: Path) -> None:
    order = get_order(run)
    add_reviews(run, "ana", {order[0]: None})
    review(run, order)
    assert certify(run).certificate.total.wrong == 1


def edit_sample(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = run / "review_sample.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(seed=1),
        lambda document: document["strata"].reverse(),
        lambda document: document["strata"][0]["sampled"].pop(),
        lambda document: document.update(strata_sha256="0"),
        lambda document: document.update(draws=[]),
    ],
    ids=["seed", "order", "pair", "hash", "draws"],
)
def test_a_sample_that_was_edited_cannot_be_certified(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    review(run, get_order(run))
    certify(run)
    edit_sample(run, change)
    with pytest.raises(UsageError):
        certify(run)


def test_a_sample_that_was_deleted_after_reviews_still_counts_as_a_draw(run: Path) -> None:
    review(run, get_order(run)[:1])
    (run / "review_sample.json").unlink()
    draw(run, seed=5)
    review(run, get_order(run))
    assert certify(run).certificate.alpha == pytest.approx(0.025)


def test_the_same_draw_counts_once(run: Path) -> None:
    draw(run)
    review(run, get_order(run))
    assert certify(run).certificate.alpha == pytest.approx(0.05)


def test_a_second_reviewer_of_wrong_labels_only_does_not_count(run: Path) -> None:
    order = get_order(run)
    wrong = order[:10]
    review(run, order[10:])
    add_reviews(run, "ana", {pair_id: int(int(pair_id[1:]) >= 100) for pair_id in wrong})
    before = certify(run)
    for reviewer in ("ben", "cem"):
        review(run, wrong, reviewer)
    after = certify(run)
    assert (after.certificate, after.reviewers, after.ignored) == (before.certificate, ("ana",), ("ben", "cem"))
    for reviewer in ("ben", "cem"):
        review(run, order, reviewer)
    assert (certify(run).certificate.total.wrong, certify(run).ignored) == (0, ())


def test_reviewers_may_divide_the_sample(run: Path) -> None:
    order = get_order(run)
    review(run, order[:75])
    review(run, order[75:], "ben")
    assert certify(run).reviewers == ("ana", "ben")


def test_all_pairs_of_a_small_run_can_be_certified(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [annotate(f"p{number}", 1, "passed") for number in range(40)])
    draw(run)
    review(run, get_order(run))
    result = certify(run).certificate
    assert (result.strata, result.total.bound, result.total.size) == (1, 0, 40)


def test_a_relabelled_pair_outside_the_sample_is_noticed(run: Path) -> None:
    order = get_order(run)
    review(run, order)
    other = next(f"p{number}" for number in range(100, 400) if f"p{number}" not in order)
    lines = (run / "annotations.jsonl").read_text().replace(f'"id":"{other}"', f'"id":"{other}" ', 1)
    changed = next(line for line in lines.splitlines() if f'"id":"{other}" ' in line).replace('"label":0', '"label":1')
    with (run / "annotations.jsonl").open("a") as file:
        file.write(f"{changed}\n")
    with pytest.raises(UsageError):
        certify(run)


def test_another_level_is_another_test_and_needs_another_sample(run: Path) -> None:
    review(run, get_order(run))
    write_document(run / "certificate.json", certify(run))
    with pytest.raises(UsageError):
        certify(run, level=0.1)
    draw(run, 160)
    review(run, get_order(run))
    assert certify(run, level=0.1).certificate.alpha == pytest.approx(0.025)


def test_bounds_grow_if_reviewers_miss_errors(run: Path) -> None:
    review(run, get_order(run))
    result = certify(run)
    share = result.certificate.total.share
    assert result.if_missed == {m: pytest.approx(share / (1 - float(m))) for m in ("0.1", "0.2", "0.3")}


def test_reviewers_are_listed_and_their_majority_decides(run: Path) -> None:
    order = get_order(run)
    for reviewer in ("ana", "ben"):
        review(run, order, reviewer)
    add_reviews(run, "cem", dict.fromkeys(order))
    assert (certify(run).certificate.total.wrong, certify(run).reviewers) == (0, ("ana", "ben", "cem"))


def test_probabilities_need_the_whole_sample(run: Path) -> None:
    review(run, get_order(run)[:-1])
    with load_run(run) as view, pytest.raises(UsageError):
        calibrate_sample(read_reviewed_sample(view))
