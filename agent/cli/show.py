"""`agent show`: one pair's story, or a run's summary."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from agent.cli.summary import Tally, as_json, as_table, money
from agent.cli.text import plain
from agent.errors import UsageError
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Evidence, Exchange, Execution, TestReport


def run(folder: Path, pair_id: str | None, *, prompts: bool, as_json: bool) -> None:
    """Print what a run holds.

    Raises:
        UsageError: the folder is no run, or holds no such pair.
    """
    with load_run(folder) as view:
        if pair_id is None:
            _show_run(view, as_json)
            return
        annotation = view.annotation(pair_id)
        if annotation is None:
            raise UsageError(f"{folder} has no annotation of a pair with the id {pair_id!r}")
        evidence = view.evidence(pair_id, annotation.round)
    if as_json:
        told = {
            "annotation": annotation.model_dump(mode="json", by_alias=True),
            "evidence": None if evidence is None else evidence.model_dump(mode="json"),
        }
        typer.echo(json.dumps(told))
    else:
        _Story(Console(soft_wrap=True)).tell(annotation, evidence, prompts=prompts)


def _show_run(view: RunView, machine: bool) -> None:
    tally = Tally()
    for annotation in view.annotations():
        tally.add(annotation)
    if machine:
        typer.echo(json.dumps({**as_json(tally.summary()), "manifest": view.manifest}))
    else:
        Console().print(as_table(tally.summary()))


class _Story:
    def __init__(self, console: Console) -> None:
        self._console = console

    def tell(self, annotation: Annotation, evidence: Evidence | None, *, prompts: bool) -> None:
        """Print a pair from query to label."""
        if evidence is not None:
            self._section("query", evidence.pair.query)
            self._section("code", evidence.pair.code)
            for exchange in evidence.exchanges:
                self._exchange(exchange, prompts)
            for number, execution in enumerate(evidence.executions, 1):
                self._execution(number, execution)
            for run in evidence.commands:
                self._section(f"command, {run.outcome}", f"$ {run.command}\n{run.output.rstrip()}".rstrip())
        elif annotation.test is not None:
            self._section("test", _cases(annotation.test))
        self._label(annotation)

    def _exchange(self, exchange: Exchange, prompts: bool) -> None:
        paid = "from the cache" if exchange.cached else money(exchange.usage.cost_usd)
        title = f"{exchange.role}: reply of {exchange.model or 'the model'}, {paid}"
        if prompts:
            for message in exchange.messages:
                self._section(f"{exchange.role}: {message['role']}", message["content"])
        self._section(title, exchange.reply)
        if exchange.problem:
            self._section(f"{exchange.role}: asked again, because", exchange.problem)

    def _execution(self, number: int, execution: Execution) -> None:
        self._section(f"program of execution {number}", execution.source)
        lines = [_cases(execution.report)]
        if execution.installed:
            lines.append(f"with {', '.join(execution.installed)}")
        lines += [
            f"--- {name}\n{text.rstrip()}"
            for name, text in (("stdout", execution.stdout), ("stderr", execution.stderr))
            if text.strip()
        ]
        self._section(f"execution {number}, {execution.seconds:.2f} s", "\n".join(lines))

    def _label(self, annotation: Annotation) -> None:
        if annotation.error is not None:
            self._section("no label", f"{annotation.error.type}: {annotation.error.message}")
            return
        label = "undecided" if annotation.label is None else str(annotation.label)
        by = f", decided by {annotation.decided_by}" if annotation.decided_by else ""
        self._section(f"label {label}{by}", annotation.reason)

    def _section(self, title: str, text: str) -> None:
        self._console.print(f"── {plain(title)}", style="bold", markup=False, highlight=False)
        self._console.print(plain(text.rstrip("\n")) + "\n", markup=False, highlight=False)


def _cases(report: TestReport) -> str:
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    lines = [f"{report.status.value}{cause}"]
    if report.message:
        lines.append(report.message)
    for case in report.cases:
        lines.append(f"  {case.outcome.value:<8} {case.name}" + (f"   {case.message}" if case.message else ""))
    return "\n".join(lines)
