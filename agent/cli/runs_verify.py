"""`agent runs verify`: says whether runs are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from agent.cli import DONE, SOME_ERRORS
from agent.cli.progress import Steps
from agent.cli.text import Console, one_line, print_json, say
from agent.store.verify import Findings, Problem, verify
from agent.wording import counted

_MOST_PRINTED = 50


def run(runs: Sequence[Path], *, as_json: bool) -> None:
    """Check runs, and print what was found.

    Raises:
        RunFolderError: one is no run at all.
        typer.Exit: with code 1 where there is a problem.
    """
    console = Console(stderr=True)
    found = []
    for path in runs:
        with Steps(console) as steps:
            found.append(verify(path, steps))
        if not as_json:
            _print(found[-1])
    if as_json:
        print_json({"runs": [_document(each) for each in found]})
    raise typer.Exit(SOME_ERRORS if any(each.kinds for each in found) else DONE)


def _document(found: Findings) -> dict[str, Any]:
    problems = [asdict(problem) for problem in found.problems]
    return {**vars(found), "problems": problems, "state": _state(found), "fine": not found.kinds}


def _state(found: Findings) -> str:
    if found.missing:
        return "unfinished"
    return "finished" if found.closed else "not closed"


def _print(found: Findings) -> None:
    console = Console()
    problems = counted(found.kinds.total(), "problem")
    say(console, f"{found.run}: {problems if found.kinds else 'fine'}")
    for problem in found.problems[:_MOST_PRINTED]:
        say(console, f"  {_line(problem)}")
    if found.kinds.total() > _MOST_PRINTED:
        kinds = ", ".join(f"{kind}: {count:,}" for kind, count in found.kinds.items())
        say(console, f"  and {found.kinds.total() - _MOST_PRINTED:,} more ({kinds})")
    rounds = "" if found.rounds == 1 else f" in {found.rounds} rounds"
    missing = f", {found.missing:,} still to do" if found.missing else ""
    names = {"1": "match", "0": "no match", "undecided": "undecided", "error": "errors"}
    counts = " · ".join(f"{found.ended[each]:,} {name}" for each, name in names.items())
    annotations = counted(found.annotations, "annotation")
    say(console, f"  {counted(found.pairs, 'pair')}{rounds}, {annotations}{missing}: {counts}")
    if not found.closed:
        say(console, "  its last start is at work or was killed; the run's command goes on from there")


def _line(problem: Problem) -> str:
    place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    number = f" (round {problem.round})" if problem.round else ""
    pair = "" if problem.pair is None else f"pair {one_line(problem.pair, 60)!r}{number}: "
    return f"{place}: {pair}{one_line(problem.what, 300)}. {problem.remedy}"
