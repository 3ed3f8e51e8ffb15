"""`agent runs`: lists, checks and merges runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.progress import Steps
from agent.cli.summary import format_cost
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.errors import AgentError, UsageError
from agent.retrieval.folder import is_retrieval_folder
from agent.runs.store import files
from agent.runs.store.merge import merge
from agent.runs.store.run_view import RunView, get_variant_and_model, load_run
from agent.runs.store.verify import Findings, Problem, verify
from agent.text import build_table, plural

_MAX_PRINTED = 50
_RUN_FILES = (files.MANIFEST, files.ANNOTATIONS)
_COLUMNS = ("run", "state", "1", "0", "undecided", "no intent", "errors", "cost", "variant", "model", "last change")


def list_runs(folder: Path, *, as_json: bool) -> None:
    """Print a row for each run in a folder. Also find runs one level deeper, such as the runs of an ablation.

    Raises:
        UsageError: the folder does not exist.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder. Pass the folder that contains your runs.")
    rows = [_read_row(path) for path in _find_runs(folder)]
    if as_json:
        print_json({"folder": str(folder), "runs": rows})
        return
    if not rows:
        print_text(Console(), f"{folder}: no runs")
        return
    table = build_table(_COLUMNS, map(_format_cells, rows), left={*_COLUMNS} - {*_COLUMNS[2:7]})
    print_table(Console(piped_width=160), table)
    for row in rows:
        if row["state"] == "damaged":
            print_text(Console(), f"\n{row['problem']}")


def _find_runs(folder: Path) -> Iterator[Path]:
    for name in _RUN_FILES:
        if (folder / name).exists():
            yield folder
            return
    paths = {
        file.parent for pattern in ("*", "*/*") for name in _RUN_FILES for file in folder.glob(f"{pattern}/{name}")
    }
    # a killed merge leaves a hidden folder
    yield from sorted(path for path in paths if not is_retrieval_folder(path) and not path.name.startswith("."))


def _read_row(path: Path) -> dict[str, Any]:
    times = [file.stat().st_mtime for name in _RUN_FILES if (file := path / name).exists()]
    last_change = datetime.fromtimestamp(max(times)).astimezone().isoformat(timespec="seconds")
    row: dict[str, Any] = {"run": str(path), "last_change": last_change}
    try:
        with load_run(path) as view:
            return {**row, **_read_run(view)}
    except (AgentError, OSError) as error:
        return {**row, "state": "damaged", "problem": str(error)}


def _read_run(view: RunView) -> dict[str, Any]:
    statuses = Counter(label.status for label in view.index.iterate_labels())
    done, rounds = len(view.index), max(view.index.round_count, 1)
    total = rounds * sum(1 for _ in view.pairs())
    variant, model = get_variant_and_model(view.manifest)
    return {
        "state": "finished" if done >= total else "unfinished",
        "annotated": done,
        "annotations": total,
        "rounds": rounds,
        "labels": {"1": statuses["1"], "0": statuses["0"], "null": statuses.total() - statuses["1"] - statuses["0"]},
        "undecided": statuses["undecided"],
        "no_intent": statuses["no_intent"],
        "errors": statuses["error"],
        "cost_usd": view.spent_usd(),
        "variant": variant,
        "model": model,
    }


def _format_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    changed = row["last_change"][:16].replace("T", " ")
    if row["state"] == "damaged":
        return (row["run"], "damaged", *[""] * 8, changed)
    state = "finished" if row["state"] == "finished" else f"unfinished, {row['annotated']:,} of {row['annotations']:,}"
    counts = (row["labels"]["1"], row["labels"]["0"], row["undecided"], row["no_intent"], row["errors"])
    return (row["run"], state, *counts, format_cost(row["cost_usd"]), row["variant"], row["model"], changed)


def verify_runs(runs: Sequence[Path], *, as_json: bool) -> None:
    """Check runs and print the findings. Exit with code 1 if a run has problems.

    Raises:
        RunFolderError: a folder is not a run.
    """
    results = []
    for path in runs:
        with Steps(Console(stderr=True)) as steps:
            results.append(verify(path, steps))
        if not as_json:
            _print_findings(results[-1])
    if as_json:
        print_json({"runs": [asdict(findings) for findings in results]})
    raise typer.Exit(SOME_ERRORS if any(findings.problems for findings in results) else DONE)


def _print_findings(findings: Findings) -> None:
    console, number = Console(), sum(findings.counts.values())
    print_text(console, f"{findings.run}: {plural(number, 'problem') if number else 'no problems'}")
    for problem in findings.problems[:_MAX_PRINTED]:
        print_text(console, f"  {_format_problem(problem)}")
    if number > _MAX_PRINTED:
        print_text(
            console,
            "  … and others. Problems by file: "
            + ", ".join(f"{file} {count:,}" for file, count in findings.counts.items()),
        )
    missing = f", {findings.missing:,} missing" if findings.missing else ""
    print_text(console, f"  {plural(findings.pairs, 'pair')}, {plural(findings.annotations, 'annotation')}{missing}")
    if findings.closed is False:
        print_text(console, "  The last session is still running or was killed. To resume the run, repeat its command.")


def _format_problem(problem: Problem) -> str:
    place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    number = "" if problem.round is None else f", round {problem.round}"
    pair = "" if problem.pair is None else f"pair '{one_line(problem.pair, 60)}'{number}: "
    return f"{place}: {pair}{one_line(problem.what, 300).rstrip('.')}. {problem.remedy}"


def merge_runs(runs: Sequence[Path], out: Path, *, as_json: bool) -> None:
    """Merge runs and print the result. Errors from `merge` are passed on."""
    console = Console(stderr=True)
    with Steps(console) as steps:
        result = merge(runs, out, steps)
    if result.left_out:
        print_text(console, f"not merged: {', '.join(result.left_out)}")
    if as_json:
        print_json(asdict(result))
    else:
        counts = f"{plural(result.pairs, 'pair')}, {plural(result.annotations, 'annotation')}"
        print_text(Console(), f"{result.run}: {counts} from {plural(len(runs), 'run')}")
