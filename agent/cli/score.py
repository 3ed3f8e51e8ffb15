"""`agent score`: prints scores against gold labels and the agreement between annotators, as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from agent.cli.progress import Steps
from agent.cli.text import Console, add_row, make_table, one_line, print_json, print_text
from agent.errors import UsageError
from agent.evaluation.breakdown import Breakdown, BreakdownGroup, Mistake
from agent.evaluation.estimates import ReviewChoice, RunEstimates
from agent.evaluation.measures import FORMULAS, Agreement, Confusion, Scores
from agent.evaluation.rouge import is_answers_file, score_answers
from agent.evaluation.scoring import AnnotatorReport, ScoreReport, build_report
from agent.evaluation.statistics import LEVEL, BootstrapSettings, Interval, format_interval, format_number
from agent.text import plural
from agent.views.comparison import build_group_row

TitledTable = tuple[str, Table]
LEGEND = "both: pairs that both annotators labelled; –: undefined, or the same in all bootstrap resamples"
_SHARES = frozenset(Confusion().proportions())


def run(
    labels: Sequence[Path],
    gold: Path | None,
    field_map: str | None,
    *,
    round: int | None,
    reviews: ReviewChoice,
    list_errors: bool,
    min_agreement: float | None,
    seed: int,
    resamples: int,
    as_json: bool,
) -> None:
    """Print the scores, the agreement and the breakdowns.

    Raises:
        UsageError: a file cannot be read, or there is nothing to compare.
    """
    settings = BootstrapSettings(seed=seed, resamples=resamples)
    if any(map(is_answers_file, labels)):
        if {gold, round, min_agreement} != {None} or list_errors or reviews != "blind":
            raise UsageError("--gold, --round, --reviews, --mistakes and --min-agreement require runs or labels.")
        _score_answers(labels, settings, as_json=as_json)
        return
    with Console(stderr=True).status("scoring"):
        score_report = build_report(
            labels,
            gold,
            mapping=field_map,
            round=round,
            reviews=reviews,
            list_errors=list_errors,
            min_agreement=min_agreement,
            settings=settings,
        )
    if as_json:
        print_json(score_report.model_dump(mode="json", by_alias=True))
        return
    console = Console()
    for title, table in make_tables(score_report):
        print_text(console, title, style="bold")
        console.print(table)
        console.print()
    print_text(console, LEGEND)
    for note in score_report.notes:
        print_text(console, f"note: {note}")
    for run in score_report.runs:
        if run.mistakes is not None:
            _print_mistakes(console, run.name, run.mistakes)


def _score_answers(paths: Sequence[Path], settings: BootstrapSettings, *, as_json: bool) -> None:
    for path in paths:
        if path.exists() and not is_answers_file(path):
            raise UsageError(f"{path}: contains no generated answers. Score it separately from files of answers.")
    with Steps(Console(stderr=True)) as steps:
        reports = [score_answers(path, settings, steps) for path in paths]
    if as_json:
        print_json({"answers": reports, "level": LEVEL})
        return
    for report in reports:
        table = make_table(f"{report['file']}: {', '.join(report['models'])}", "F1", f"over questions {LEVEL:.0%}")
        for measure, score in report["scores"].items():
            interval = score["interval"] and Interval(**score["interval"])
            add_row(table, measure, format_number(score["f1"]), format_interval(interval))
        Console().print(table)
        counts = ", ".join(f"{count:,} {one_line(status)}" for status, count in report["statuses"].items())
        print_text(Console(), f"questions by status: {counts}")


def _print_mistakes(console: Console, run: str, mistakes: Sequence[Mistake]) -> None:
    for gold, kind in ((0, "false match"), (1, "missed match")):
        listed = [mistake for mistake in mistakes if mistake.gold == gold]
        console.print()
        print_text(console, f"{run}: {plural(len(listed), kind, f'{kind}es')}", style="bold")
        for mistake in listed:
            print_text(console, f"{mistake.id}: {one_line(mistake.query)}")
            print_text(console, f"  {mistake.decided_by} · {mistake.test} · {mistake.reason}")


def make_tables(score_report: ScoreReport) -> Iterator[TitledTable]:
    """Yield a report's tables, each with its title."""
    for annotator in score_report.annotators:
        if annotator.scores is not None:
            yield _tabulate_scores(annotator, annotator.scores)
    for agreement in score_report.agreement:
        yield _tabulate_agreement(agreement)
    for run in score_report.runs:
        if run.breakdown is not None:
            yield from _tabulate_breakdown(run.name, run.breakdown)
        if run.estimates is not None:
            yield _tabulate_estimates(run.name, run.estimates, run.reviews)


def _tabulate_scores(annotator: AnnotatorReport, scores: Scores) -> TitledTable:
    c = scores.confusion
    kind = f"{annotator.kind} " if annotator.kind in ("run", "reviewer") else ""
    title = (
        f"{kind}{annotator.name}: {plural(scores.pairs, 'pair')}, {plural(scores.queries, 'query', 'queries')} · "
        f"{c.tp} tp · {c.fp} fp · {c.fn} fn · {c.tn} tn · {c.null_positive + c.null_negative} without a label"
    )
    table = make_table("", "value", f"Wilson {scores.level:.0%}", f"over queries {scores.level:.0%}")
    for name in FORMULAS:
        add_row(
            table,
            name.replace("_", " "),
            format_number(getattr(scores, name)),
            format_interval(scores.wilson.get(name)) if name in _SHARES else "",
            format_interval(scores.bootstrap[name]),
        )
    return title, table


def _tabulate_agreement(agreement: Agreement) -> TitledTable:
    title = (
        f"agreement, {agreement.of}: Krippendorff's alpha {format_number(agreement.alpha)} "
        f"({format_interval(agreement.alpha_interval)}) on {agreement.comparable:,} of "
        f"{plural(agreement.pairs, 'pair')}"
    )
    table = make_table("", "both", "agreement", "Cohen's κ", "over queries")
    for first, pairs in groupby(agreement.pairwise, key=lambda pair: pair.first):
        # two names side by side do not fit on a terminal
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


def _tabulate_breakdown(run: str, breakdown: Breakdown) -> Iterator[TitledTable]:
    for title, groups in (
        ("by deciding node and evidence", breakdown.evidence),
        ("by test and cause", breakdown.tests),
        ("by stand-ins", breakdown.stand_ins),
        ("labels compared with a test verdict of 0 or 1", breakdown.overrides),
    ):
        if groups:
            yield f"{run}: {title}", _tabulate_groups(groups)


def _tabulate_groups(groups: Sequence[BreakdownGroup]) -> Table:
    table = make_table("", "pairs", "accuracy", "Wilson", "tp", "fp", "fn", "tn", "null")
    for group in groups:
        add_row(table, *build_group_row(group))
    return table


def _tabulate_estimates(run: str, estimates: RunEstimates, reviews: ReviewChoice) -> TitledTable:
    e = estimates
    states = [f"{e.reviewed:,} reviewed{' blind' if reviews == 'blind' else ''}", f"{e.pending:,} pending"]
    if e.ahead:
        states.append(f"{e.ahead:,} excluded (first reviewed in a queue)")
    if e.tied:
        states.append(f"{e.tied:,} tied between reviewers")
    if e.undecided:
        possessive = "its" if e.undecided == 1 else "their"
        states.append(f"{e.undecided:,} undecided by {possessive} reviewer{'' if e.reviewers == 1 else 's'}")
    pairs = plural(e.run_pairs, "pair")
    scope = f"all {pairs}" if e.pairs == e.run_pairs else f"the {e.pairs:,} of {pairs} that have this round"
    title = f"{run}: estimates for {scope}, from {plural(e.sampled, 'sampled pair')} ({', '.join(states)})"
    table = make_table("", "estimate", f"{e.level:.0%} interval")
    for name, estimate in (("accuracy", e.accuracy), ("precision", e.precision), ("recall", e.recall)):
        add_row(table, name, format_number(estimate.value), format_interval(estimate.interval))
    for name, size in e.unseen.items():
        add_row(table, f"not yet reviewed: {plural(size, 'pair')} with {name}", "", "")
    return title, table
