"""Queues of pairs for review: doubtful pairs, or a random sample.

A run has at most one sample. Later sessions resume the sample until a new one is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import ValidationError

from agent.datasets.groups import EQUIVALENT, EquivalentRecord
from agent.errors import UsageError
from agent.retrieval.reviewed import shuffle
from agent.runs.store import files
from agent.runs.store.annotations import combine_rounds, get_status
from agent.runs.store.reviews import Review, lock_reviews, read_reviews
from agent.runs.store.run_view import RunView
from agent.runs.store.samples import ReviewSample, draw_sample, is_stale, read_sample, replace_sample
from agent.text import plural
from agent.types import GENERATED, Annotation

QueueKind = Literal["undecided", "disputed", "generated", "equivalents"]
KINDS: tuple[QueueKind, ...] = get_args(QueueKind)
DEFAULT_SIZE, DEFAULT_BY, DEFAULT_SEED = 100, ("decided_by", "label"), 0


@dataclass(frozen=True)
class QueueEntry:
    """A pair to review. `round` is the round whose evidence is shown. `why` contains the reasons for the review."""

    id: str
    round: int = 0
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Queue:
    """The pairs to review, in order. `sample` is the fingerprint of the sample that contains them, if any."""

    title: str
    entries: tuple[QueueEntry, ...]
    sample: str | None = None


def parse_kinds(names: Sequence[str]) -> tuple[QueueKind, ...]:
    """Return the kinds with these names, without duplicates.

    Raises:
        UsageError: a name is unknown.
    """
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise UsageError(f"unknown queue {unknown[0]!r}. Choose from {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(kind for name in names for kind in KINDS if kind == name))


def build_queue(
    kinds: Sequence[QueueKind],
    pairs: Iterable[Sequence[Annotation]],
    reviews: Iterable[Review],
    limit: int | None = None,
) -> Queue:
    """Return a queue of doubtful pairs of the given kinds, in the order of `kinds` and without duplicates.

    `pairs` contains one sequence per pair, with an annotation for each round. The `undecided` queue contains pairs
    without a label (undecided, tied over rounds, or failed). The `disputed` queue contains pairs whose label
    contradicts the test outcome, and pairs whose rounds or reviewers disagree. The `generated` queue contains the
    matches whose code a model wrote. The `equivalents` queue contains the pairs that `agent corpus equivalents`
    proposed. All queues keep the order of `pairs`.
    """
    review_labels: dict[str, set[int]] = {}
    for review in reviews:
        if review.label is not None:
            review_labels.setdefault(review.id, set()).add(review.label)
    doubts: dict[QueueKind, list[tuple[str, list[str]]]] = {kind: [] for kind in kinds}
    first_rounds: dict[str, int] = {}
    for rounds in pairs:
        pair_id = rounds[0].id
        for kind in kinds:
            reasons = _FINDERS[kind](rounds, review_labels.get(pair_id, set()))
            if reasons:
                doubts[kind].append((pair_id, reasons))
                first_rounds[pair_id] = rounds[0].round
    why: dict[str, list[str]] = {}
    for kind in kinds:
        for pair_id, reasons in doubts[kind]:
            why.setdefault(pair_id, []).extend(reasons)
    entries = tuple(QueueEntry(pair_id, first_rounds[pair_id], tuple(reasons)) for pair_id, reasons in why.items())
    chosen, pairs_found = entries[:limit], plural(len(entries), "pair")
    count = pairs_found if len(chosen) == len(entries) else f"the first {len(chosen):,} of {pairs_found}"
    return Queue(f"{' and '.join(kinds)}, {count}", chosen)


def _find_undecided(rounds: Sequence[Annotation], _review_labels: Set[int]) -> list[str]:
    reasons = {"error": ["the annotation failed"], "undecided": ["the pair is undecided"]}
    return reasons.get(combine_rounds(rounds[0].id, list(map(get_status, rounds))).status, [])


def _find_disputes(rounds: Sequence[Annotation], review_labels: Set[int]) -> list[str]:
    reasons = {
        "label and test outcome differ": any(annotation.against_test for annotation in rounds),
        "rounds disagree": {0, 1} <= {annotation.label for annotation in rounds},
        "reviewers disagree": {0, 1} <= review_labels,
    }
    return [reason for reason, applies in reasons.items() if applies]


def _find_generated(rounds: Sequence[Annotation], _review_labels: Set[int]) -> list[str]:
    label = combine_rounds(rounds[0].id, list(map(get_status, rounds))).label
    return ["the code is generated"] if label == 1 and rounds[0].meta.get("source") == GENERATED else []


def _find_equivalents(rounds: Sequence[Annotation], _review_labels: Set[int]) -> list[str]:
    try:
        record = EquivalentRecord.model_validate(rounds[0].meta.get(EQUIVALENT))
    except ValidationError:
        return []
    calls = [f"{call.input} gives {call.output}" for call in record.evidence]
    return [f"the code behaves like the relevant code {record.of}", *calls]


_FINDERS: Mapping[QueueKind, Callable[[Sequence[Annotation], Set[int]], list[str]]] = {
    "undecided": _find_undecided,
    "disputed": _find_disputes,
    "generated": _find_generated,
    "equivalents": _find_equivalents,
}
"""For each kind, a function that returns the reasons to review a pair. A pair without reasons is not in the queue."""


@dataclass(frozen=True)
class SampleRequest:
    """The options of a requested sample.

    If an option is None, the value from the run's existing sample is used, or the default if the run has no sample.
    """

    size: int | None = None
    by: tuple[str, ...] | None = None
    seed: int | None = None


def load_or_draw_sample(
    view: RunView, request: SampleRequest, annotations: Callable[[], Iterable[Annotation]], *, new: bool = False
) -> ReviewSample:
    """Return the run's sample. Draw and write a new sample if there is none, or if `new` is set.

    Raises:
        UsageError: the existing sample was drawn with other options, or before the run changed.
        StorageError: the sample cannot be written.
    """
    path = view.path / files.REVIEW_SAMPLE
    # The lock ensures that two reviewers who start at the same time get the same sample.
    with lock_reviews(view.path / files.REVIEWS):
        sample = None if new else read_sample(path)
        if sample is not None:
            _check_sample(sample, request, annotations, view)
            return sample
        size = DEFAULT_SIZE if request.size is None else request.size
        by = DEFAULT_BY if request.by is None else request.by
        seed = DEFAULT_SEED if request.seed is None else request.seed
        reviewed = {review.id for review in read_reviews(view.path / files.REVIEWS)}
        return replace_sample(path, draw_sample(annotations(), by, size, seed), reviewed)


def build_sample_queue(sample: ReviewSample, view: RunView) -> Queue:
    """Return the review queue for a sample, in random order."""
    entries = tuple(QueueEntry(pair_id, view.index.list_rounds(pair_id)[0]) for pair_id in sample.shuffle_ids())
    return Queue(describe_sample(sample), entries, sample.fingerprint)


def describe_sample(sample: ReviewSample) -> str:
    """Describe a sample in one line."""
    by = f"stratified by {', '.join(sample.by)}" if sample.by else "not stratified"
    return f"sample of {sample.size:,} from {plural(sample.population, 'pair')}, {by}, seed {sample.seed}"


def _check_sample(
    sample: ReviewSample, request: SampleRequest, annotations: Callable[[], Iterable[Annotation]], view: RunView
) -> None:
    differences = {
        f"--sample {request.size}": request.size is not None and min(request.size, sample.population) != sample.size,
        f"--stratify {','.join(request.by or ())}": request.by is not None and set(request.by) != set(sample.by),
        f"--seed {request.seed}": request.seed is not None and request.seed != sample.seed,
    }
    options = [option for option, differs in differences.items() if differs]
    redraw = "pass --new-sample to draw a new sample. Existing reviews are kept"
    if options:
        raise UsageError(
            f"{view.path}: cannot apply {' '.join(options)} to the existing {describe_sample(sample)}. "
            f"To resume this sample, omit {' '.join(options)}. Otherwise, {redraw}."
        )
    if is_stale(sample, annotations()):
        raise UsageError(
            f"{view.path}: the {describe_sample(sample)} no longer represents the run, because pairs have been "
            f"added or relabelled since it was drawn. Once the run is finished, {redraw}."
        )


def build_query_queue(pairs: Iterable[Sequence[Annotation]], count: int) -> Queue:
    """Return the queue of all pairs of the first `count` queries in random order. `pairs` is as in `build_queue`.

    Raises:
        UsageError: the run was not created by `agent retrieval judge`.
    """
    entries: dict[str, dict[str, QueueEntry]] = {}
    for pair, *_ in pairs:
        if "query_id" not in pair.meta:
            raise UsageError("--queries reviews only runs of `agent retrieval judge`, such as RUN/retrieval/judged.")
        entries.setdefault(str(pair.meta["query_id"]), {})[pair.id] = QueueEntry(pair.id, pair.round)
    queries = shuffle(entries)[:count]
    chosen = tuple(entries[query][pair_id] for query in queries for pair_id in shuffle(entries[query]))
    return Queue(f"{len(queries):,} of {len(entries):,} queries, {plural(len(chosen), 'pair')}", chosen, "queries")
