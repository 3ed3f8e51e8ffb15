"""One line for each pair of a small run: the path it took."""

from __future__ import annotations

from collections.abc import Set

from rich.table import Table
from rich.text import Text

from agent.cli.text import one_line, plain
from agent.history import History
from agent.store.run_view import RunView
from agent.types import Annotation, Cause, Status
from agent.wording import counted

MOST_PAIRS = 40


def table(view: RunView, wanted: Set[tuple[str, int]]) -> Table:
    """Return these pairs and rounds of a run with label, who decided and path."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    rounds = any(number for _, number in wanted)
    for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "path"):
        found.add_column(column, no_wrap=column != "path")
    for annotation in view.annotations():
        if (annotation.id, annotation.round) not in wanted:
            continue
        label = "error" if annotation.error else "-" if annotation.label is None else str(annotation.label)
        path = " → ".join(steps(annotation, view.evidence(annotation.id, annotation.round)))
        pair = (one_line(annotation.id, 30), *([str(annotation.round)] if rounds else ()))
        found.add_row(*map(Text, (*pair, label, one_line(annotation.decided_by or "-", 30), plain(path))))
    return found


def steps(annotation: Annotation, evidence: History | None) -> list[str]:
    """Return what happened to a pair, in order."""
    told = []
    if annotation.screen_verdict is not None:
        told.append(f"screened {annotation.screen_verdict.value}")
    asked_again = sum(evidence.asked_again()) if evidence else 0
    if asked_again:
        told.append(f"asked again {asked_again}×")
    told += _repairs(annotation, evidence)
    if annotation.test is not None:
        told.append(_test(annotation))
    if annotation.error is not None:
        told.append(f"{one_line(annotation.error.type, 40)}: {one_line(annotation.error.message, 80)}")
    return told


def _repairs(annotation: Annotation, evidence: History | None) -> list[str]:
    commands = evidence.commands if evidence else ()
    if annotation.repairs:
        refused = sum(command.outcome == "refused" for command in commands)
        done = ", ".join(
            one_line(command.command, 60) for command in commands if command.outcome in ("installed", "ran")
        )
        done = done or "program corrected"
        return [f"repaired ({done}{f'; {refused} refused' if refused else ''})"]
    if evidence is None or not any(exchange.role == "repair" for exchange in evidence.exchanges):
        return []
    # an error may have come in the middle of a repair, or long after one was given up
    given_up = annotation.error is None or any(visit.outcome == "given_up" for visit in evidence.visits)
    return ["repair given up"] if given_up else []


def _test(annotation: Annotation) -> str:
    test = annotation.test
    assert test is not None
    if not test.cases and test.cause is Cause.SNIPPET:
        return "does not parse"
    of = counted(len(test.cases), "case")
    cases = f"{test.passed} of {of} passed"
    if test.vacuous:
        return f"test {test.outcome}"
    if test.status is Status.PASSED:
        return f"test passed, {of}"
    if test.cause is Cause.FLAKY:
        return f"test flaky, {cases}"
    cause = "" if test.cause is None else f" by the {test.cause.value}"
    return f"test {test.status.value}{cause}, {cases}"
