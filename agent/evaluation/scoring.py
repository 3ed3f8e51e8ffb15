"""Everything that `agent score` reports: whose labels are scored, and what the reader has to know in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from agent.errors import InputError, UsageError
from agent.evaluation.breakdown import Breakdown, Calibration, break_down, calibrate
from agent.evaluation.estimates import MAJORITY, ReviewChoice, ReviewData, RunEstimates, estimate_run, read_review_data
from agent.evaluation.labels import Rater, RaterKind, read_gold, read_labels, take_majority
from agent.evaluation.measures import Agreement, Scores, measure_agreement, score
from agent.evaluation.statistics import DEFAULTS, BootstrapSettings
from agent.evaluation.tally import Tally, iterate_annotated_pairs, merge_rounds
from agent.store import files
from agent.store.run_view import RunView, get_criterion, load_run
from agent.types import Frozen
from agent.wording import plural

# what is read by the run's folder as a whole: labels, rounds and reviewers
_PARTS = frozenset({files.ANNOTATIONS, files.LABELS, files.REVIEWS})


@dataclass(frozen=True)
class RunSource:
    """A run's labels: of one round, or the majority of its `rounds` (of which a tie is None), by what criterion.

    `confidences` are those of the labels, as in `labels.jsonl`; `tally` counts the pairs, each as its rounds together.
    `rounds` are those whose labels these are, none where it is a single one.
    """

    annotator: Rater
    rounds: tuple[Rater, ...]
    confidences: Mapping[str, float]
    tally: Tally
    queries: Mapping[str, str]
    criterion: str
    reviewed: ReviewData

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.annotator.name


def read_run(
    path: Path | str,
    round: int | None = None,
    gold: Mapping[str, int] | None = None,
    review_choice: ReviewChoice = "blind",
    *,
    name: str | None = None,
) -> RunSource:
    """Read a run's labels: those of `round`, or the majority of all its rounds; the tally compares them with `gold`.

    `words` says which reviews of the run count. `name` is what the run is called, if not as its folder.

    Raises:
        RunFolderError: the folder is no run, or is damaged.
        UsageError: the run has no such round, or no annotations.
    """
    with load_run(path) as view:
        there = sorted({number for _, number in view.index.iterate_keys()})
        if not there:
            raise UsageError(f"{view.path}: has no annotations yet")
        if round is not None and round not in there:
            raise UsageError(f"{view.path}: has no round {round}; there is {', '.join(map(str, there))}")
        wanted = there if round is None else [round]
        return _read(view, wanted, gold, review_choice, name or view.path.resolve().name)


def _read(
    view: RunView, wanted: Sequence[int], gold: Mapping[str, int] | None, review_choice: ReviewChoice, name: str
) -> RunSource:
    tally, labels, confidences = Tally(), dict[str, int | None](), dict[str, float]()
    rounds: dict[int, dict[str, int | None]] = {number: {} for number in wanted}
    queries: dict[str, str] = {}
    for pair, every in iterate_annotated_pairs(view, gold=gold):
        seen = [each for each in every if each.annotation.round in rounds]
        if not seen:
            continue
        for each in seen:
            rounds[each.annotation.round][pair.id] = each.annotation.label
        whole = merge_rounds(seen)
        tally.add(whole)
        labels[pair.id], queries[pair.id] = whole.annotation.label, pair.query
        if whole.annotation.confidence is not None:
            confidences[pair.id] = whole.annotation.confidence
    several = rounds if len(rounds) > 1 else {}
    return RunSource(
        annotator=Rater(name, labels, "run"),
        rounds=tuple(Rater(f"{name} round {number}", of_round, "round") for number, of_round in several.items()),
        confidences=confidences,
        tally=tally,
        queries=queries,
        criterion=get_criterion(view.manifest),
        reviewed=read_review_data(view, review_choice),
    )


@dataclass
class LabelSources:
    """The sources in the order given; `queries` are those of their pairs, `differing` the pairs with two.

    `words` says which reviews of the runs count; `gold` are the labels that runs are compared with.
    """

    review_choice: ReviewChoice = "blind"
    gold: Mapping[str, int] | None = None
    runs: list[RunSource] = field(default_factory=list)
    files: list[Rater] = field(default_factory=list)
    queries: dict[str, str] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    paths: list[Path] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def add(self, path: Path, round: int | None) -> None:
        """Read a run's folder or a file of labels.

        Raises:
            UsageError: it cannot be read, or it was read before.
        """
        if any(path.resolve() == each.resolve() for each in self.paths):
            raise UsageError(f"{path}: is given twice: agreement with oneself says nothing, give it once")
        self.paths.append(path)
        if path.is_dir():
            name = self._unused(path.resolve().name, str(path))
            run = read_run(path, round, self.gold, self.review_choice, name=name)
            self._names.update(rater.name for rater in (run.annotator, *run.rounds))
            reviewers = tuple(self._named(each, name) for each in run.reviewed.reviewers)
            self.runs.append(replace(run, reviewed=replace(run.reviewed, reviewers=reviewers)))
            self.learn(run.queries)
            return
        if path.name in _PARTS and (path.parent / files.MANIFEST).is_file():
            raise InputError(f"is part of a run: give the run's folder, {path.parent}", path=path)
        annotators, queries = read_labels(path)
        self.files += [self._named(annotator, str(path)) for annotator in annotators]
        self.learn(queries)

    def learn(self, queries: Mapping[str, str]) -> None:
        """Take over queries; the first one of a pair stays."""
        for pair, query in queries.items():
            if self.queries.setdefault(pair, query) != query:
                self.differing.add(pair)

    def annotators(self) -> list[Rater]:
        """Return everybody, each run before its rounds and reviewers, and majorities after those they are of."""
        raters: list[Rater] = []
        for run in self.runs:
            raters += [run.annotator, *run.rounds]
            raters += _with_majority(run.reviewed.reviewers, self._unused(MAJORITY, run.name))
        return raters + _with_majority(self.files, self._unused("majority", "files"))

    def panels(self) -> list[tuple[str, Sequence[Rater]]]:
        """Return the groups within which agreement is of interest, each with a name."""
        people = [("annotators", self.files)] if self.runs else []
        everybody = [*(run.annotator for run in self.runs), *self.files]
        for run in self.runs:
            everybody += run.reviewed.reviewers
            people += [
                (f"rounds of {run.name}", list(run.rounds)),
                (f"reviewers of {run.name}", list(run.reviewed.reviewers)),
            ]
        panels = [("all", everybody), *people] if self.runs else [("annotators", everybody)]
        return [(name, members) for name, members in panels if len(members) > 1]

    def _named(self, annotator: Rater, source: str) -> Rater:
        name = self._unused(annotator.name, source)
        self._names.add(name)
        return replace(annotator, name=name)

    def _unused(self, name: str, source: str) -> str:
        if name in self._names:
            name = f"{name} ({source})"
        if name in self._names:
            raise InputError(f"two annotators are called {name[:80]!r}: is it given twice?")
        return name


def _with_majority(annotators: Sequence[Rater], name: str) -> list[Rater]:
    return [*annotators, *([take_majority(annotators, name)] if len(annotators) > 1 else [])]


FEW_PAIRS = 100
# Percentile intervals over few clusters are too narrow: Cameron, Gelbach and Miller, Rev. Econ. Stat. 90(3) (2008).
FEW_QUERIES = 30


class AnnotatorReport(Frozen):
    """One annotator: `pairs` they were given, of which `labelled` have a label; against gold where there is any."""

    name: str
    kind: RaterKind
    pairs: int
    labelled: int
    scores: Scores | None


class RunReport(Frozen):
    """What only a run can be asked; `errors` counts its pairs that ended in one, by type.

    `reviews` says which reviews count, `reviews_left_out` how many (of a pair by a reviewer) therefore do not.
    """

    name: str
    errors: dict[str, int]
    reviews: ReviewChoice = "blind"
    reviews_left_out: int = 0
    breakdown: Breakdown | None = None
    calibration: Calibration | None = None
    estimates: RunEstimates | None = None


class GoldReport(Frozen):
    """The gold file: `labels` are 0 or 1, `without_label` null."""

    path: str
    labels: int
    without_label: int


class ScoreReport(Frozen):
    """Scores, agreement and breakdowns; `notes` are warnings in words."""

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
    round: int | None = None,
    reviews: ReviewChoice = "blind",
    settings: BootstrapSettings = DEFAULTS,
) -> ScoreReport:
    """Score the labels of run folders and files against gold, or compare them with each other.

    `reviews` says which reviews of the runs count.

    Raises:
        UsageError: something cannot be read, or there is nothing to compare.
        ExtraMissing: NumPy is not installed.
    """
    read = None if gold is None else read_gold(gold)
    sources = LabelSources(reviews, None if read is None else read.labels)
    for path in labels:
        sources.add(path, round)
    if round is not None and not sources.runs:
        raise UsageError("--round chooses among the rounds of a run: give a run's folder")
    if read is not None:
        sources.learn(read.queries)
    annotators = tuple(_annotator(each, sources, settings) for each in sources.annotators())
    agreement = tuple(
        measure_agreement(members, sources.queries, settings, of=name) for name, members in sources.panels()
    )
    _check_comparable(annotators, agreement, gold, sources)
    runs = tuple(_run(run, sources, settings) for run in sources.runs)
    return ScoreReport(
        gold=None
        if read is None
        else GoldReport(path=str(gold), labels=len(read.labels), without_label=read.without_label),
        annotators=annotators,
        agreement=agreement,
        runs=runs,
        notes=tuple(notes_of(annotators, agreement, runs, sources, gold)),
    )


def _annotator(annotator: Rater, sources: LabelSources, settings: BootstrapSettings) -> AnnotatorReport:
    labels, gold = annotator.labels, sources.gold
    return AnnotatorReport(
        name=annotator.name,
        kind=annotator.kind,
        pairs=len(labels),
        labelled=sum(label is not None for label in labels.values()),
        scores=None if gold is None else score(labels, gold, sources.queries, settings),
    )


def _run(run: RunSource, sources: LabelSources, settings: BootstrapSettings) -> RunReport:
    labels, gold = run.annotator.labels, sources.gold
    return RunReport(
        name=run.name,
        errors=dict(run.tally.errors.most_common()),
        reviews=run.reviewed.review_choice,
        reviews_left_out=run.reviewed.left_out,
        breakdown=None if gold is None else break_down(run.tally),
        calibration=None if gold is None else calibrate(labels, run.confidences, gold, sources.queries, settings),
        estimates=estimate_run(labels, run.reviewed, settings),
    )


def _check_comparable(
    annotators: Sequence[AnnotatorReport], agreement: Sequence[Agreement], gold: Path | None, sources: LabelSources
) -> None:
    if gold is None and not agreement:
        left_out = sum(run.reviewed.left_out for run in sources.runs)
        seen = f"; {left_out} reviews are not blind, and left out (--reviews last counts them)" if left_out else ""
        raise UsageError(
            "one annotator and nothing to compare with: give --gold GOLD, or labels of others "
            f"(agent review adds yours){seen}"
        )
    if gold is not None and not any(each.scores and each.scores.pairs for each in annotators):
        raise UsageError(f"{gold}: none of its pairs is among those labelled: are these ids of one dataset?")


def notes_of(
    annotators: Sequence[AnnotatorReport],
    agreement: Sequence[Agreement],
    runs: Sequence[RunReport],
    sources: LabelSources,
    gold: Path | None,
) -> Iterator[str]:
    """Yield warnings: what was left out, what flatters, and how little there is to go by."""
    for run in sources.runs:
        if errors := run.tally.errors:
            listed = ", ".join(f"{count} {name}" for name, count in errors.most_common())
            pairs = plural(errors.total(), "pair")
            yield f"{run.name}: {pairs} ended in errors ({listed}), and counted as without a label"
        if run.criterion != "exact":
            criterion = run.criterion[:20]
            yield f"{run.name}: labels by the criterion {criterion!r}; gold and labels beside them should be by it, too"
    scored = {each.name: each.scores for each in annotators if each.scores is not None and each.kind != "round"}
    for name, scores in scored.items():
        if scores.gold_only:
            yield f"{name}: left out, as the labels lack them: {plural(scores.gold_only, 'pair')} of gold"
        if scores.predicted_only:
            yield f"{name}: left out, as gold lacks them: {plural(scores.predicted_only, 'pair')}"
    if gold is not None and any(path.resolve() == gold.resolve() for path in sources.paths):
        yield f"{gold} is both labels and gold: where gold was made from these labels, scores flatter them"
    # names are no two alike; a run stands for its rounds
    scored = {name: scores for name, scores in scored.items() if scores.pairs}
    yield from _few_pairs(scored, agreement)
    yield from _queries(scored, agreement)
    if sources.differing:
        pairs = plural(len(sources.differing), "pair")
        yield f"the query of {pairs} differs between files: are these ids of one dataset?"
    for run in sources.runs:
        yield from _reviews(run)
    for each in runs:
        if each.estimates is not None and each.estimates.ahead:
            count = each.estimates.ahead
            yield (
                f"{each.name}: {plural(count, 'pair')} of the sample {'was' if count == 1 else 'were'} reviewed in a "
                "queue ahead of the sample's order, and left out of the estimates: what a queue holds is not random. "
                "Go on with the sample (agent review without --queue): what it has passed counts"
            )


def _few_pairs(scored: Mapping[str, Scores], agreement: Sequence[Agreement]) -> Iterator[str]:
    counts = {name: scores.pairs for name, scores in scored.items()} or {
        f"agreement, {each.of}": each.comparable for each in agreement
    }
    few = [name for name, count in counts.items() if count < FEW_PAIRS]
    if not few:
        return
    name = min(few, key=lambda each: counts[each])
    example = ""
    if name in scored:
        accuracy, interval = scored[name].accuracy, scored[name].wilson["accuracy"]
        example = f": an accuracy of {accuracy:.3f} on so many may be {interval.low:.3f} to {interval.high:.3f}"
    more = len(few) - 1
    others = f"; so they are for {plural(more, 'other')}" if more else ""
    pairs = f"{plural(counts[name], 'pair')} {'is' if counts[name] == 1 else 'are'}"
    yield f"{name}: {pairs} too few for a claim{example}{others}"


def _queries(scored: Mapping[str, Scores], agreement: Sequence[Agreement]) -> Iterator[str]:
    queries = {name: scores.queries for name, scores in scored.items()}
    queries |= {f"agreement, {each.of}": each.queries for each in agreement}
    name = min(queries, key=lambda each: queries[each])
    if queries[name] < FEW_QUERIES:
        yield (
            f"{name}: with {plural(queries[name], 'query', 'queries')}, intervals over queries are too narrow: "
            f"{FEW_QUERIES} or more are needed"
        )
    unknown = {name: scores.without_query for name, scores in scored.items()}
    most = max(unknown, key=lambda each: unknown[each], default=None)
    if most is not None and unknown[most]:
        yield f"{most}: the query of {plural(unknown[most], 'pair')} is not known: each counts as a query of its own"


def _reviews(run: RunSource) -> Iterator[str]:
    reviewed = run.reviewed
    if reviewed.not_blind:
        yield f"{run.name}: {_reviews_given(reviewed.not_blind)} with the run's label in view, and count: that flatters"
    if reviewed.left_out:
        parts = {"corrections of blind ones": reviewed.corrections, "without a blind one": reviewed.never_blind}
        listed = ", ".join(f"{name}: {count}" for name, count in parts.items() if count)
        yield (
            f"{run.name}: {_reviews_given(reviewed.left_out)} with the run's label in view, and left out ({listed}); "
            "--reviews last counts each reviewer's last word"
        )
    if reviewed.is_stale:
        yield (
            f"{run.name}: the run is not what its sample was drawn from (pairs were added or labelled again): "
            "nothing is estimated from it; draw another (agent review --new-sample)"
        )


def _reviews_given(count: int) -> str:
    return f"{plural(count, 'review')} {'was' if count == 1 else 'were'} given"
