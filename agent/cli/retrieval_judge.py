"""Implements `agent retrieval judge`: judges search results with the annotator and prints how the metrics change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from agent.cli.annotate import annotate_pairs, read_run
from agent.cli.estimate import report_estimate
from agent.cli.exit_codes import DONE
from agent.cli.options import PoolOptions
from agent.cli.progress import Steps
from agent.cli.retrieval_score import print_notes
from agent.cli.summary import describe_no_intent
from agent.cli.text import Console, print_json, print_table, print_text
from agent.errors import RunFolderError, UsageError
from agent.evaluation.forecast import forecast_run
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.folder import JUDGED, POOL, RetrievalFolder, open_for_writing
from agent.retrieval.judging import (
    AnnotatorJudgements,
    JudgingPool,
    Labels,
    collect_pool,
    merge_grades,
    read_annotator_judgements,
    read_labels,
    write_judgements,
)
from agent.retrieval.results import RetrievalScores
from agent.retrieval.scores import score_folder
from agent.text import build_table, plural


def run(
    folder: Path, depth: int, proposed: Path | None, without: tuple[str, ...], options: PoolOptions, *, dry_run: bool
) -> None:
    """Pool unjudged search results, annotate them, write the judgements, and print how the metrics change.

    A dry run only prints an estimate.

    Raises:
        UsageError: the options or input are invalid, a folder is damaged or in use, or earlier judgements used other
            settings.
        typer.Exit: the command finished or stopped. The exit codes are the same as for `agent annotate`.
    """
    console = Console(stderr=True)
    with open_for_writing(folder) as retrieval:
        if not retrieval.rankings:
            raise UsageError(f"{folder} has no rankings. Create them with: agent retrieval run BENCHMARK -o {folder}")
        pool = collect_pool(retrieval, retrieval.reopen_benchmark(), depth, proposed)
        if pool.new and not dry_run:
            pool.write(folder / POOL)
    print_text(console, f"{plural(pool.pairs, 'pair')} in {folder / POOL}, {len(pool.new):,} of them new")
    judge_options = replace(options, out=folder / JUDGED)
    if dry_run:
        _estimate(folder, pool, without, judge_options, console)
        return
    try:
        code = DONE
        if pool.pairs:
            dataset, spec, out = read_run([folder / POOL], without, judge_options, console)
            code = annotate_pairs(dataset, spec, out, judge_options, console, prints_json=False)
    except RunFolderError as error:
        # the original message suggests an option that this command does not have
        raise RunFolderError(f"{error}\nTo use other settings, first move {folder / JUDGED} elsewhere.") from error
    with open_for_writing(folder) as retrieval, Steps(console) as steps:
        benchmark_labels, annotator = read_labels(retrieval, "benchmark"), read_annotator_judgements(retrieval)
        if annotator != AnnotatorJudgements():
            write_judgements(retrieval, annotator)
        all_labels = benchmark_labels._replace(
            judge="labels", grades=merge_grades(benchmark_labels.grades, annotator.grades)
        )
        before, after = (_score(retrieval, labels, steps) for labels in (benchmark_labels, all_labels))
    document = _build_document(pool.pairs, annotator, before, after)
    if options.as_json:
        print_json({"folder": str(folder), **document})
    else:
        _print(document)
    print_notes(retrieval)
    raise typer.Exit(code)


def _estimate(
    folder: Path, pool: JudgingPool, without: tuple[str, ...], options: PoolOptions, console: Console
) -> None:
    estimate = None
    with TemporaryDirectory() as temporary:
        if pool.pairs:
            pairs = Path(temporary) / POOL
            pool.write(pairs)
            # an estimate calls no model and needs no API key
            dataset, spec, out = read_run([pairs], without, options, console, api_key="none")
            estimate = forecast_run(dataset[: options.limit], spec, out)
    sizes = {"folder": str(folder), "pool": pool.pairs, "new": len(pool.new)}
    report_estimate(estimate, folder / JUDGED, as_json=options.as_json, **sizes)


def _score(folder: RetrievalFolder, labels: Labels, steps: Steps) -> RetrievalScores | None:
    """Score the rankings with the given labels. Return None if no query has a relevant snippet."""
    if not any(grade > 0 for grades in labels.grades.values() for grade in grades.values()):
        return None
    # the intervals are not printed, so one resample is enough
    return score_folder(folder, labels, settings=BootstrapSettings(resamples=1), progress=steps).scores


def _build_document(
    pairs: int, annotator: AnnotatorJudgements, before: RetrievalScores | None, after: RetrievalScores | None
) -> dict[str, Any]:
    """Build the JSON output: the number of judgements by outcome, and each searcher's metrics before and after."""
    judgements = {name: value for name, value in vars(annotator).items() if name not in ("grades", "reviewed")}
    judged = sum(judgements[name] for name in ("relevant", "irrelevant", "undecided", "no_intent", "errors"))
    queries = {"before": before.scored if before else 0, "after": after.scored if after else 0}
    # judgements are never removed, so a query that was averaged before is still averaged afterwards
    queries["gained"] = queries["after"] - queries["before"]
    changes: dict[str, dict[str, dict[str, float | None]]] = {}
    for when, scores in (("before", before), ("after", after)):
        for searcher in scores.searchers if scores else ():
            for metric, value in searcher.values.items():
                means = changes.setdefault(searcher.searcher, {}).setdefault(metric, {"before": None, "after": None})
                means[when] = value.mean
    judgements["reviewed"] = len(annotator.reviewed)
    return {"pool": pairs, **judgements, "pending": pairs - judged, "queries": queries, "searchers": changes}


def _print(document: Mapping[str, Any]) -> None:
    console, queries = Console(), document["queries"]
    print_text(console, "")
    for searcher, metrics in document["searchers"].items():
        rows = []
        for metric, means in metrics.items():
            before, after = means["before"], means["after"]
            change = None if before is None or after is None else f"{after - before:+.3f}"
            rows.append((metric, before, after, change))
        print_table(console, build_table((searcher, "before", "after", "change"), rows))
        print_text(console, "")
    judged = f"{document['relevant']:,} relevant, {document['irrelevant']:,} not relevant"
    others = (
        f"{document['undecided']:,} undecided, {plural(document['errors'], 'error')}, {document['pending']:,} pending"
        + describe_no_intent(document)
    )
    print_text(console, f"judged by {document['judge']}: {judged}; not judged: {others}")
    print_text(
        console,
        f"averaged over queries with a relevant snippet: {queries['before']:,} before, {queries['after']:,} after "
        f"({queries['gained']:,} added)",
    )
