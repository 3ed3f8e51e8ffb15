"""`agent runs verify` and `agent runs merge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from agent.cli import DONE, SOME_ERRORS
from agent.cli.progress import Steps
from agent.cli.text import Console, one_line, print_json, say
from agent.store.merge import merge
from agent.store.verify import Findings, Problem, verify
from agent.wording import counted

_MOST_PRINTED = 50
_ENDED = {"1": "match", "0": "no match", "undecided": "undecided", "error": "errors"}


def check(runs: Sequence[Path], *, as_json: bool) -> None:
    """Check runs, and print what was found; then leave, with exit code 1 where there is a problem.

    Raises:
        RunFolderError: one is no run at all.
    """
    found = []
    for path in runs:
        with Steps(Console(stderr=True)) as steps:
            found.append(verify(path, steps))
        if not as_json:
            _print(found[-1])
    if as_json:
        problems = [[asdict(problem) for problem in each.problems] for each in found]
        print_json({"runs": [{**vars(each), "problems": own} for each, own in zip(found, problems, strict=True)]})
    raise typer.Exit(SOME_ERRORS if any(each.problems for each in found) else DONE)


def _print(found: Findings) -> None:
    console, number = Console(), found.kinds.total()
    say(console, f"{found.run}: {counted(number, 'problem') if number else 'fine'}")
    for problem in found.problems[:_MOST_PRINTED]:
        say(console, f"  {_line(problem)}")
    if number > _MOST_PRINTED:
        say(console, f"  of {', '.join(f'{kind} {count:,}' for kind, count in found.kinds.items())} in all")
    rounds = "" if found.rounds <= 1 else f" in {found.rounds} rounds"
    missing = f", {found.missing:,} still to do" if found.missing else ""
    counts = " · ".join(f"{found.ended[each]:,} {name}" for each, name in _ENDED.items())
    annotations = counted(found.annotations, "annotation")
    say(console, f"  {counted(found.pairs, 'pair')}{rounds}, {annotations}{missing}: {counts}")
    if not found.closed:
        say(console, "  its last start is at work or was killed; the run's command goes on from there")


def _line(problem: Problem) -> str:
    place = problem.kind if problem.line is None else f"{problem.kind}:{problem.line}"
    pair = "" if problem.pair is None else f"pair {one_line(problem.pair, 60)!r}, round {problem.round or 0}: "
    return f"{place}: {pair}{one_line(problem.what, 300)}. {problem.remedy}"


def join(runs: Sequence[Path], out: Path, *, as_json: bool) -> None:
    """Join runs, and say what came of it; raises as `merge`."""
    console = Console(stderr=True)
    with Steps(console) as steps:
        merged = merge(runs, out, steps)
    for name in merged.left_out:
        say(console, f"left out: {name}, which is a sample of that run's pairs alone")
    if as_json:
        print_json(asdict(merged))
    else:
        what = f"{counted(merged.pairs, 'pair')}, {counted(merged.annotations, 'annotation')}"
        say(Console(), f"{merged.run}: {what} of {counted(len(runs), 'run')}")
