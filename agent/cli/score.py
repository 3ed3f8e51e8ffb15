"""`agent score`: what labels are worth, against gold and among annotators, as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from agent.cli.text import Console, add_row, headed, one_line, print_json, say
from agent.evaluation.breakdown import Breakdown, BreakdownGroup, Calibration
from agent.evaluation.estimates import ReviewChoice, RunEstimates
from agent.evaluation.measures import FORMULAS, Agreement, Confusion, Scores
from agent.evaluation.scoring import AnnotatorReport, ScoreReport, build_report
from agent.evaluation.statistics import BootstrapSettings, format_interval, format_number
from agent.wording import plural

Titled = tuple[str, Table]
LEGEND = "both: pairs that both labelled; –: undefined, or the same in every resample of the queries"
_SHARES = frozenset(Confusion().proportions())


def run(
    labels: Sequence[Path],
    gold: Path | None,
    *,
    round: int | None,
    reviews: ReviewChoice,
    seed: int,
    resamples: int,
    as_json: bool,
) -> None:
    """Print scores, agreement and breakdowns.

    Raises:
        UsageError: something cannot be read, or there is nothing to compare.
    """
    settings = BootstrapSettings(seed=seed, resamples=resamples)
    with Console(stderr=True).status("scoring"):
        scored = build_report(labels, gold, round=round, reviews=reviews, settings=settings)
    if as_json:
        print_json(scored.model_dump(mode="json", by_alias=True))
        return
    console = Console()
    for title, table in tables(scored):
        say(console, title, style="bold")
        console.print(table)
        console.print()
    say(console, LEGEND)
    for note in scored.notes:
        say(console, f"note: {note}")


def tables(report: ScoreReport) -> Iterator[Titled]:
    """Yield a report's tables, each with its title."""
    for annotator in report.annotators:
        if annotator.scores is not None:
            yield _scores(annotator, annotator.scores)
    for agreement in report.agreement:
        yield _agreement(agreement)
    for run in report.runs:
        if run.breakdown is not None:
            yield from _breakdown(run.name, run.breakdown)
        if run.calibration is not None:
            yield _calibration(run.name, run.calibration)
        if run.estimates is not None:
            yield _estimates(run.name, run.estimates, run.reviews)


def _scores(annotator: AnnotatorReport, scores: Scores) -> Titled:
    c = scores.confusion
    kind = f"{annotator.kind} " if annotator.kind in ("run", "reviewer") else ""
    title = (
        f"{kind}{annotator.name}: {plural(scores.pairs, 'pair')} of {plural(scores.queries, 'query', 'queries')} · "
        f"{c.tp} tp · {c.fp} fp · {c.fn} fn · {c.tn} tn · {c.null_positive + c.null_negative} without a label"
    )
    table = headed("", "value", f"Wilson {scores.level:.0%}", f"over queries {scores.level:.0%}")
    for name in FORMULAS:
        add_row(
            table,
            name.replace("_", " "),
            format_number(getattr(scores, name)),
            format_interval(scores.wilson.get(name)) if name in _SHARES else "",
            format_interval(scores.bootstrap[name]),
        )
    return title, table


def _agreement(agreement: Agreement) -> Titled:
    title = (
        f"agreement, {agreement.of}: Krippendorff's alpha {format_number(agreement.alpha)} "
        f"({format_interval(agreement.alpha_interval)}) on {agreement.comparable:,} of "
        f"{plural(agreement.pairs, 'pair')}"
    )
    table = headed("", "both", "alike", "Cohen's κ", "over queries")
    for first, pairs in groupby(agreement.pairwise, key=lambda pair: pair.first):
        # each name on a line of its own: two beside each other do not fit on a terminal
        table.add_row(Text(one_line(first)))
        for pair in pairs:
            add_row(
                table,
                f"– {pair.second}",
                f"{pair.both}",
                format_number(pair.agreement),
                format_number(pair.kappa),
                format_interval(pair.kappa_interval),
            )
    return title, table


def _breakdown(run: str, breakdown: Breakdown) -> Iterator[Titled]:
    for title, groups in (
        ("by what decided", breakdown.decided_by),
        ("by test and cause", breakdown.tests),
        ("by stand-ins", breakdown.stand_ins),
        ("labels beside a test that says 0 or 1", breakdown.overrides),
    ):
        if groups:
            yield f"{run}: {title}", _groups(groups)


def _groups(groups: Sequence[BreakdownGroup]) -> Table:
    table = headed("", "pairs", "accuracy", "Wilson", "tp", "fp", "fn", "tn", "null")
    for group in groups:
        c = group.confusion
        counts = (c.tp, c.fp, c.fn, c.tn, c.null_positive + c.null_negative)
        add_row(
            table,
            group.name,
            f"{group.pairs}",
            format_number(group.accuracy),
            format_interval(group.interval),
            *map(str, counts),
        )
    return table


def _calibration(run: str, calibration: Calibration) -> Titled:
    title = (
        f"{run}: confidence of {plural(calibration.labels, 'label')} · Brier score {format_number(calibration.brier)} "
        f"({format_interval(calibration.brier_interval)} over queries) · "
        f"expected calibration error {format_number(calibration.ece)} ({plural(len(calibration.table), 'bin')})"
    )
    table = headed("confidence", "labels", "mean confidence", "accuracy", "Wilson")
    for each in calibration.table:
        if each.count:
            add_row(
                table,
                each.name,
                f"{each.count}",
                format_number(each.confidence),
                format_number(each.accuracy),
                format_interval(each.interval),
            )
    return title, table


def _estimates(run: str, estimates: RunEstimates, words: ReviewChoice) -> Titled:
    e = estimates
    states = [f"{e.reviewed:,} reviewed{' blind' if words == 'blind' else ''}", f"{e.pending:,} not yet"]
    if e.ahead:
        states.append(f"{e.ahead:,} ahead")
    if e.tied:
        states.append(f"{e.tied:,} on which reviewers are divided")
    if e.undecided:
        whose = "its" if e.undecided == 1 else "their"
        states.append(f"{e.undecided:,} undecided by {whose} reviewer{'' if e.reviewers == 1 else 's'}")
    pairs = plural(e.run_pairs, "pair")
    whole = f"all {pairs}" if e.pairs == e.run_pairs else f"the {e.pairs:,} of {pairs} that have the round"
    title = f"{run}: estimates for {whole}, from {e.sampled:,} sampled ({', '.join(states)})"
    table = headed("", "estimate", f"{e.level:.0%} interval")
    for name, estimate in (("accuracy", e.accuracy), ("precision", e.precision), ("recall", e.recall)):
        add_row(table, name, format_number(estimate.value), format_interval(estimate.interval))
    for name, size in e.unseen.items():
        add_row(table, f"no review yet of {plural(size, 'pair')} with {name}", "", "")
    return title, table
