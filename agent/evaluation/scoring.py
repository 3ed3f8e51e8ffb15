"""Builds the report that `agent score` prints, from run folders and label files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from agent.datasets.fields import FieldMap, Fields
from agent.errors import InputError, UsageError
from agent.evaluation.breakdown import Breakdown, Mistake, break_down, find_mistake
from agent.evaluation.estimates import MAJORITY, ReviewChoice, ReviewData, RunEstimates, estimate_run, read_review_data
from agent.evaluation.labels import Rater, RaterKind, compute_majority, read_gold, read_labels
from agent.evaluation.measures import Agreement, Scores, measure_agreement, score
from agent.evaluation.statistics import DEFAULTS, BootstrapSettings
from agent.evaluation.tally import Tally, iterate_annotated_pairs, merge_rounds
from agent.runs.store import files
from agent.runs.store.annotations import compute_vote_share
from agent.runs.store.run_view import RunView, get_criterion, load_run
from agent.text import plural
from agent.types import Frozen

# files in a run folder that cannot be passed as files of labels
_RUN_FILES = frozenset({files.ANNOTATIONS, files.LABELS, files.REVIEWS})


@dataclass(frozen=True)
class RunSource:
    """The labels of a run, either from one round or from the majority of its rounds. A tie has the label None.

    `rounds` contains the labels of each round. It is empty if there is only one round. `vote_shares` contains the vote
    share of each pair (`compute_vote_share`). `tally` merges the rounds of a pair and counts the pair once.
    """

    annotator: Rater
    rounds: tuple[Rater, ...]
    vote_shares: Mapping[str, float]
    tally: Tally
    mistakes: tuple[Mistake, ...]
    queries: Mapping[str, str]
    criterion: str
    review_data: ReviewData

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.annotator.name

    def select_rounds(self, min_agreement: float) -> list[Rater]:
        """Return the rounds without the pairs whose vote share is below `min_agreement`."""
        return [
            replace(
                rater,
                labels={pair: label for pair, label in rater.labels.items() if self.vote_shares[pair] >= min_agreement},
            )
            for rater in self.rounds
        ]


def read_run(
    path: Path | str,
    round: int | None = None,
    gold: Mapping[str, int] | None = None,
    review_choice: ReviewChoice = "blind",
    *,
    name: str | None = None,
) -> RunSource:
    """Read the labels of a run, either from one `round` or, by default, from the majority of all rounds.

    The tally compares the labels with `gold`. `review_choice` selects the reviews to include. `name` defaults to the
    name of the folder.

    Raises:
        RunFolderError: the folder is not a run folder, or it is damaged.
        UsageError: the run has no annotations, or the round does not exist.
    """
    with load_run(path) as view:
        rounds = sorted({number for _, number in view.index.iterate_keys()})
        if not rounds:
            raise UsageError(f"{view.path}: the run has no annotations yet")
        if round is not None and round not in rounds:
            raise UsageError(f"{view.path}: round {round} does not exist. Choose from {', '.join(map(str, rounds))}.")
        return _read_rounds(
            view, rounds if round is None else [round], gold, review_choice, name or view.path.resolve().name
        )


def _read_rounds(
    view: RunView, numbers: Sequence[int], gold: Mapping[str, int] | None, review_choice: ReviewChoice, name: str
) -> RunSource:
    tally, labels = Tally(), dict[str, int | None]()
    vote_shares = dict[str, float]()
    mistakes: list[Mistake] = []
    rounds: dict[int, dict[str, int | None]] = {number: {} for number in numbers}
    queries: dict[str, str] = {}
    for pair, all_rounds in iterate_annotated_pairs(view, gold=gold):
        observations = [observation for observation in all_rounds if observation.annotation.round in rounds]
        if not observations:
            continue
        for observation in observations:
            rounds[observation.annotation.round][pair.id] = observation.annotation.label
        vote_shares[pair.id] = compute_vote_share([observation.label for observation in observations], len(numbers))
        merged = merge_rounds(observations)
        tally.add(merged)
        labels[pair.id], queries[pair.id] = merged.annotation.label, pair.query
        if (mistake := find_mistake(pair, merged)) is not None:
            mistakes.append(mistake)
    return RunSource(
        annotator=Rater(name, labels, "run"),
        rounds=tuple(
            Rater(f"{name} round {number}", round_labels, "round")
            for number, round_labels in rounds.items()
            if len(rounds) > 1
        ),
        vote_shares=vote_shares,
        tally=tally,
        mistakes=tuple(sorted(mistakes, key=lambda mistake: mistake.gold)),
        queries=queries,
        criterion=get_criterion(view.manifest),
        review_data=read_review_data(view, review_choice),
    )


@dataclass
class LabelSources:
    """Runs and label files, in the order in which they were added.

    `review_choice` selects the reviews to include. `gold` contains the gold labels for the runs' tallies. `fields` has
    the names of fields in label files. `queries` contains the queries of all pairs. `differing` contains the pairs
    whose query differs between sources.
    """

    review_choice: ReviewChoice = "blind"
    gold: Mapping[str, int] | None = None
    fields: Fields = field(default_factory=Fields)
    runs: list[RunSource] = field(default_factory=list)
    files: list[Rater] = field(default_factory=list)
    queries: dict[str, str] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    paths: list[Path] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def add(self, path: Path, round: int | None) -> None:
        """Read a run folder or a file of labels.

        Raises:
            UsageError: the source cannot be read, or has already been added.
        """
        if any(path.resolve() == known.resolve() for known in self.paths):
            raise UsageError(f"{path}: these labels are passed twice. Pass them only once.")
        self.paths.append(path)
        if path.is_dir():
            name = self._make_unique(path.resolve().name, str(path))
            run = read_run(path, round, self.gold, self.review_choice, name=name)
            self._names.update(rater.name for rater in (run.annotator, *run.rounds))
            reviewers = tuple(self._register(reviewer, name) for reviewer in run.review_data.reviewers)
            self.runs.append(replace(run, review_data=replace(run.review_data, reviewers=reviewers)))
            self.add_queries(run.queries)
            return
        if path.name in _RUN_FILES and (path.parent / files.MANIFEST).is_file():
            raise InputError(f"is part of a run. Pass the run folder {path.parent} instead.", path=path)
        annotators, queries = read_labels(path, self.fields)
        self.files += [self._register(annotator, str(path)) for annotator in annotators]
        self.add_queries(queries)

    def add_queries(self, queries: Mapping[str, str]) -> None:
        """Add queries, keyed by pair id. If a pair already has a query, keep the existing query."""
        for pair, query in queries.items():
            if self.queries.setdefault(pair, query) != query:
                self.differing.add(pair)

    def list_raters(self) -> list[Rater]:
        """Return all raters. The raters from runs come before the raters from files.

        Each run is followed by its rounds, its reviewers and the majority of its reviewers. The raters from files are
        followed by their majority.
        """
        raters: list[Rater] = []
        for run in self.runs:
            raters += [run.annotator, *run.rounds]
            raters += _append_majority(run.review_data.reviewers, self._make_unique(MAJORITY, run.name))
        return raters + _append_majority(self.files, self._make_unique("majority", "files"))

    def list_panels(self, min_agreement: float | None = None) -> list[tuple[str, Sequence[Rater]]]:
        """Return the named groups of raters whose agreement is measured.

        With `min_agreement`, the rounds of each run are also measured on the pairs with at least this vote share.
        """
        groups = [("annotators", self.files)] if self.runs else []
        all_raters = [*(run.annotator for run in self.runs), *self.files]
        for run in self.runs:
            all_raters += run.review_data.reviewers
            groups.append((f"rounds of {run.name}", list(run.rounds)))
            if min_agreement is not None:
                name = f"rounds of {run.name}, pairs with an agreement of at least {min_agreement:g}"
                groups.append((name, run.select_rounds(min_agreement)))
            groups.append((f"reviewers of {run.name}", list(run.review_data.reviewers)))
        panels = [("all", all_raters), *groups] if self.runs else [("annotators", all_raters)]
        return [(name, members) for name, members in panels if len(members) > 1]

    def _register(self, annotator: Rater, source: str) -> Rater:
        name = self._make_unique(annotator.name, source)
        self._names.add(name)
        return replace(annotator, name=name)

    def _make_unique(self, name: str, source: str) -> str:
        if name in self._names:
            name = f"{name} ({source})"
        if name in self._names:
            raise InputError(f"two annotators are named {name[:80]!r}. Pass each source once.")
        return name


def _append_majority(annotators: Sequence[Rater], name: str) -> list[Rater]:
    return [*annotators, *([compute_majority(annotators, name)] if len(annotators) > 1 else [])]


FEW_PAIRS = 100
# With fewer clusters, percentile intervals are too narrow (Cameron, Gelbach and Miller, Rev. Econ. Stat. 90(3) (2008)).
FEW_QUERIES = 30


class AnnotatorReport(Frozen):
    """Results for one annotator. `scores` is None if there are no gold labels."""

    name: str
    kind: RaterKind
    pairs: int
    labelled: int
    scores: Scores | None


class RunReport(Frozen):
    """Results that exist only for runs. `errors` counts failed pairs by error type.

    `no_intent` counts pairs whose query has no search intent. `reviews` states which reviews are included.
    `reviews_left_out` is the number of excluded reviews.
    """

    name: str
    errors: dict[str, int]
    no_intent: int = 0
    reviews: ReviewChoice = "blind"
    reviews_left_out: int = 0
    breakdown: Breakdown | None = None
    mistakes: tuple[Mistake, ...] | None = None
    estimates: RunEstimates | None = None


class GoldReport(Frozen):
    """The number of labels in the gold file. `labels` counts labels of 0 or 1. `without_label` counts null labels."""

    path: str
    labels: int
    without_label: int


class ScoreReport(Frozen):
    """Scores, agreement, results for runs, and warnings (`notes`)."""

    schema_version: int = Field(default=1, serialization_alias="schema")
    gold: GoldReport | None
    annotators: tuple[AnnotatorReport, ...]
    agreement: tuple[Agreement, ...]
    runs: tuple[RunReport, ...]
    notes: tuple[str, ...]


def build_report(
    labels: Sequence[Path],
    gold: Path | None,
    *,
    mapping: FieldMap = None,
    round: int | None = None,
    reviews: ReviewChoice = "blind",
    list_errors: bool = False,
    min_agreement: float | None = None,
    settings: BootstrapSettings = DEFAULTS,
) -> ScoreReport:
    """Score the labels of run folders and files against gold labels, and measure agreement.

    `mapping` has the names of fields in files of labels. Files without these fields may have the usual names.
    `reviews` selects the reviews to include. `list_errors` adds the mistakes of each run. `min_agreement` adds the
    agreement between the rounds of the pairs that have at least this vote share.

    Raises:
        UsageError: a source cannot be read, or there is nothing to compare.
        ExtraMissing: NumPy is not installed.
    """
    fields = Fields(mapping, optional=True)
    gold_labels = None if gold is None else read_gold(gold, fields)
    sources = LabelSources(reviews, None if gold_labels is None else gold_labels.labels, fields)
    for path in labels:
        sources.add(path, round)
    fields.check_mapping()
    if round is not None and not sources.runs:
        raise UsageError("--round requires a run folder. Pass a run folder or omit --round.")
    if min_agreement is not None and round is not None:
        raise UsageError("--min-agreement compares rounds, and --round reads one of them. Omit one of the two options.")
    if min_agreement is not None and not any(run.rounds for run in sources.runs):
        raise UsageError("--min-agreement requires a run with several rounds. Annotate the pairs with --rounds 3.")
    if list_errors and (gold is None or not sources.runs):
        raise UsageError(
            "--mistakes compares a run with gold labels. Pass a run folder and --gold GOLD, or omit --mistakes."
        )
    if gold_labels is not None:
        sources.add_queries(gold_labels.queries)
    annotators = tuple(_report_annotator(rater, sources, settings) for rater in sources.list_raters())
    agreement = tuple(
        measure_agreement(members, sources.queries, settings, of=name)
        for name, members in sources.list_panels(min_agreement)
    )
    _check_comparable(annotators, agreement, gold, sources)
    runs = tuple(_report_run(run, sources, settings, list_errors) for run in sources.runs)
    return ScoreReport(
        gold=None
        if gold_labels is None
        else GoldReport(path=str(gold), labels=len(gold_labels.labels), without_label=gold_labels.without_label),
        annotators=annotators,
        agreement=agreement,
        runs=runs,
        notes=tuple(_iterate_notes(annotators, agreement, runs, sources, gold)),
    )


def _report_annotator(annotator: Rater, sources: LabelSources, settings: BootstrapSettings) -> AnnotatorReport:
    labels, gold = annotator.labels, sources.gold
    return AnnotatorReport(
        name=annotator.name,
        kind=annotator.kind,
        pairs=len(labels),
        labelled=sum(label is not None for label in labels.values()),
        scores=None if gold is None else score(labels, gold, sources.queries, settings),
    )


def _report_run(run: RunSource, sources: LabelSources, settings: BootstrapSettings, list_errors: bool) -> RunReport:
    labels, gold = run.annotator.labels, sources.gold
    return RunReport(
        name=run.name,
        errors=dict(run.tally.errors.most_common()),
        no_intent=run.tally.labels["no_intent"],
        reviews=run.review_data.review_choice,
        reviews_left_out=run.review_data.left_out,
        breakdown=None if gold is None else break_down(run.tally),
        mistakes=run.mistakes if list_errors else None,
        estimates=estimate_run(labels, run.review_data, settings),
    )


def _check_comparable(
    annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement], gold: Path | None, sources: LabelSources
) -> None:
    if gold is None and not agreement:
        left_out = sum(run.review_data.left_out for run in sources.runs)
        hint = (
            f" This comparison excludes {plural(left_out, 'review')} in which the reviewer saw the run's label. "
            "Pass --reviews last to include such reviews."
            if left_out
            else ""
        )
        raise UsageError(
            "there is only one annotator. Pass --gold GOLD or labels from other annotators, or review the run with "
            f"`agent review`.{hint}"
        )
    if gold is not None and not any(annotator.scores and annotator.scores.pairs for annotator in annotators):
        raise UsageError(
            f"{gold}: no pair in this file has a label to score. Check that the ids belong to the same dataset."
        )


def _iterate_notes(
    annotators: Sequence[AnnotatorReport],
    agreement: Sequence[Agreement],
    runs: Sequence[RunReport],
    sources: LabelSources,
    gold: Path | None,
) -> Iterator[str]:
    """Iterate over warnings about excluded pairs, biased scores and small samples."""
    for run in sources.runs:
        yield from _warn_labels(run)
    scores_by_name = {
        annotator.name: annotator.scores
        for annotator in annotators
        if annotator.scores is not None and annotator.kind != "round"
    }
    for name, scores in scores_by_name.items():
        if scores.gold_only:
            yield f"{name}: scores exclude {plural(scores.gold_only, 'pair')} found only in the gold file"
        if scores.predicted_only:
            yield f"{name}: scores exclude {plural(scores.predicted_only, 'pair')} without a gold label"
    if gold is not None and any(path.resolve() == gold.resolve() for path in sources.paths):
        yield (
            f"{gold} is used both as labels and as gold labels. Scores are inflated if the gold labels were derived "
            "from these labels."
        )
    scores_by_name = {name: scores for name, scores in scores_by_name.items() if scores.pairs}
    yield from _warn_few_pairs(scores_by_name, agreement)
    yield from _warn_queries(scores_by_name, agreement)
    if sources.differing:
        pairs = plural(len(sources.differing), "pair")
        yield f"the sources contain different queries for {pairs}. Check that the ids belong to the same dataset."
    for run in sources.runs:
        yield from _warn_reviews(run)
    for report in runs:
        if report.estimates is not None and report.estimates.ahead:
            count = report.estimates.ahead
            verb, them = ("was", "it") if count == 1 else ("were", "them")
            yield (
                f"{report.name}: {plural(count, 'pair')} in the sample {verb} reviewed in a queue before the review of "
                f"the sample reached {them}. Estimates exclude such pairs, because a queue is not a random sample. "
                "Continue with the sample (`agent review` without --queue) to include them."
            )


def _warn_labels(run: RunSource) -> Iterator[str]:
    if errors := run.tally.errors:
        listed = ", ".join(f"{count} {name}" for name, count in errors.most_common())
        pairs = plural(errors.total(), "pair")
        yield f"{run.name}: {pairs} failed ({listed}). Failed pairs are treated as unlabelled."
    if count := run.tally.labels["no_intent"]:
        pairs = plural(count, "pair")
        yield f"{run.name}: {pairs} without search intent in the query. These pairs are treated as unlabelled."
    if run.criterion != "exact":
        criterion = run.criterion[:20]
        yield f"{run.name}: labels use the {criterion!r} criterion. All other labels should use the same criterion."


def _warn_few_pairs(scores_by_name: Mapping[str, Scores], agreement: Sequence[Agreement]) -> Iterator[str]:
    counts = {name: scores.pairs for name, scores in scores_by_name.items()} or {
        f"agreement, {panel.of}": panel.comparable for panel in agreement
    }
    few = [name for name, count in counts.items() if count < FEW_PAIRS]
    if not few:
        return
    name = min(few, key=counts.__getitem__)
    example = ""
    if name in scores_by_name:
        accuracy, interval = scores_by_name[name].accuracy, scores_by_name[name].wilson["accuracy"]
        example = f" (accuracy {accuracy:.3f}, 95% interval {interval.low:.3f} to {interval.high:.3f})"
    more = len(few) - 1
    others = f" (and {more:,} more)" if more else ""
    pairs = f"{plural(counts[name], 'pair')} {'is' if counts[name] == 1 else 'are'}"
    yield f"{name}{others}: {pairs} too few for reliable conclusions{example}"


def _warn_queries(scores_by_name: Mapping[str, Scores], agreement: Sequence[Agreement]) -> Iterator[str]:
    queries = {name: scores.queries for name, scores in scores_by_name.items()}
    queries |= {f"agreement, {panel.of}": panel.queries for panel in agreement}
    name = min(queries, key=queries.__getitem__)
    if queries[name] < FEW_QUERIES:
        yield (
            f"{name}: bootstrap intervals from only {plural(queries[name], 'query', 'queries')} are too narrow. "
            f"Use at least {FEW_QUERIES} queries."
        )
    unknown = {name: scores.without_query for name, scores in scores_by_name.items()}
    most = max(unknown, key=unknown.__getitem__, default=None)
    if most is not None and unknown[most]:
        pairs = plural(unknown[most], "pair")
        yield f"{most}: the query is unknown for {pairs}. Each pair without a query is its own cluster."


def _warn_reviews(run: RunSource) -> Iterator[str]:
    data = run.review_data
    if data.not_blind:
        reviews = plural(data.not_blind, "review")
        yield f"{run.name}: includes {reviews} in which the reviewer saw the label, which biases estimates upwards"
    if data.left_out:
        parts = {"corrections of blind reviews": data.corrections, "no blind review": data.never_blind}
        listed = ", ".join(f"{name}: {count}" for name, count in parts.items() if count)
        yield (
            f"{run.name}: excludes {plural(data.left_out, 'review')} in which the reviewer saw the run's label "
            f"({listed}). Pass --reviews last to use each reviewer's last review."
        )
    if data.is_stale:
        yield (
            f"{run.name}: no estimates, because pairs were added or labelled again since the sample was drawn. Draw "
            "a new sample with `agent review --new-sample`."
        )
