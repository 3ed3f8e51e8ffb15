"""`agent score`: prints scores against gold labels and the agreement between annotators, as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.cli.progress import Steps
from agent.cli.text import Console, one_line, print_figures, print_json, print_table, print_text
from agent.errors import UsageError
from agent.evaluation.breakdown import Mistake
from agent.evaluation.estimates import ReviewChoice
from agent.evaluation.rouge import is_answers_file, score_answers
from agent.evaluation.scoring import build_report
from agent.evaluation.statistics import LEVEL, BootstrapSettings, Interval
from agent.text import build_table, plural
from agent.views.comparison import build_score_figures


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
    print_figures(console, build_score_figures(score_report))
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
        columns = f"{report['file']}: {', '.join(report['models'])}", "F1", f"over questions {LEVEL:.0%}"
        rows = [
            (measure, score["f1"], score["interval"] and Interval(**score["interval"]))
            for measure, score in report["scores"].items()
        ]
        print_table(Console(), build_table(columns, rows))
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
