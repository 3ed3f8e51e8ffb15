"""Turns what a sandbox saw of a run into a report: how each case ended, how the run ended, and who failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.languages.base import Program
from agent.languages.canonical import canonical
from agent.languages.python.blame import Blame, innermost, missing_module
from agent.sandbox.base import Frame, Record, RunResult
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

MAX_MESSAGE = 1_500
"""Characters of one case's message."""

_SEVERITY = (CaseOutcome.PASSED, CaseOutcome.NOT_RUN, CaseOutcome.FAILED, CaseOutcome.ERROR)
_REPAIRABLE = (Cause.DEPENDENCY, Cause.PROGRAM)
_LIMITS = {
    "memory": "the memory limit was hit",
    "output": "the output limit was hit",
    "report": "it reported more than a test program does",
}


@dataclass(frozen=True)
class _Incident:
    """What went wrong outside of any one case."""

    status: Status
    cause: Cause
    message: str


@dataclass
class _Tally:
    """The records of one case."""

    started: int = 0
    ended: list[Record] = field(default_factory=list)


def report(program: Program, result: RunResult) -> TestReport:
    """Read a run; `passed` needs every case of the program started and ended as passed, in a run that ended cleanly."""
    blame = Blame(program)
    tallies = _tally(program.cases, result.records)
    running = next((name for name, tally in reversed(tallies.items()) if tally.started > len(tally.ended)), None)
    incident = _incident(program, result, blame, running, sum(len(tally.ended) for tally in tallies.values()))
    cases = tuple(_case(program, blame, name, tally, incident) for name, tally in tallies.items())
    status, cause = _verdict(cases, incident)
    message = incident.message if incident else ""
    if status is Status.ERROR and incident is None and cause is Cause.PROGRAM and not any(c.cause for c in cases):
        unrun = ", ".join(case.name for case in cases if case.outcome is CaseOutcome.NOT_RUN)
        message = f"these cases did not run: {unrun}"
    return TestReport(status=status, cause=cause, cases=cases, message=canonical(message, MAX_MESSAGE))


def missing(program: Program, result: RunResult) -> tuple[str, ...]:
    """Return the modules the run lacked, with the program's other third-party ones: one environment for all."""
    records = [record for record in result.records if record.kind in ("load", "case")]
    lacking = dict.fromkeys(name for record in records if (name := missing_module(record)) is not None)
    return tuple(dict.fromkeys((*lacking, *program.imports))) if lacking else ()


def _tally(cases: Sequence[str], records: Sequence[Record]) -> dict[str, _Tally]:
    tallies = {name: _Tally() for name in cases}
    for record in records:
        tally = tallies.get(record.name) or tallies.get(record.name.partition("[")[0])
        if tally is not None and record.kind == "start":
            tally.started += 1
        elif tally is not None and record.kind == "case":
            tally.ended.append(record)
    return tallies


def _incident(program: Program, result: RunResult, blame: Blame, running: str | None, ended: int) -> _Incident | None:
    load = next((record for record in result.records if record.kind == "load"), None)
    tamper = next((record for record in result.records if record.kind == "tamper"), None)
    where = f"while {running} ran" if running else "after the last case" if ended else "before the first case"
    silent = blame.of_silence(running, ended)
    if load is not None:
        message = f"the program could not be loaded: {_told(program, blame, load)}"
        return _Incident(Status.ERROR, blame.of(load), message)
    if result.timed_out:
        hang = blame.hanging(result.hang, result.hang_beside)
        cause = blame.of_frames(hang) or silent
        return _Incident(Status.TIMEOUT, cause, f"the time limit passed {where}{_place(program, blame, hang)}")
    if tamper is not None:
        return _Incident(
            Status.ERROR, blame.of_tampering(tamper.message), f"the test was interfered with: {tamper.message}"
        )
    if result.limit is not None:
        return _Incident(Status.ERROR, silent, f"{_LIMITS.get(result.limit, result.limit)} {where}")
    if not result.clean:
        how = f"by signal {result.signal}" if result.signal is not None else f"with exit code {result.exit_code}"
        return _Incident(Status.ERROR, silent, f"the process ended {how} {where}, not through its end")
    return None


def _case(program: Program, blame: Blame, name: str, tally: _Tally, incident: _Incident | None) -> CaseResult:
    found = [_ended(program, blame, name, record) for record in tally.ended]
    if tally.started > len(tally.ended):
        cause = incident.cause if incident is not None else Cause.SNIPPET
        message = incident.message if incident is not None else "the case began and did not end"
        found.append(_result(name, CaseOutcome.ERROR, message, cause))
    elif tally.started < len(tally.ended):
        found.append(_result(name, CaseOutcome.ERROR, "the case ended without having begun", Cause.SNIPPET))
    if not found:
        return CaseResult(name=name, outcome=CaseOutcome.NOT_RUN)
    return max(found, key=lambda case: (case.cause in _REPAIRABLE, _SEVERITY.index(case.outcome)))


def _ended(program: Program, blame: Blame, name: str, record: Record) -> CaseResult:
    if record.outcome == "passed":
        return CaseResult(name=name, outcome=CaseOutcome.PASSED)
    if record.outcome == "skipped":
        return _result(name, CaseOutcome.NOT_RUN, f"skipped: {record.message}", None)
    told = _told(program, blame, record)
    asserted = record.outcome == "failed" or record.error_type == "AssertionError"
    if asserted and blame.of_frames(record.frames) is not Cause.SNIPPET:
        return _result(name, CaseOutcome.FAILED, told, Cause.SNIPPET)
    return _result(name, CaseOutcome.ERROR, told, blame.of(record))


def _result(name: str, outcome: CaseOutcome, message: str, cause: Cause | None) -> CaseResult:
    return CaseResult(name=name, outcome=outcome, message=canonical(message, MAX_MESSAGE), cause=cause)


def _told(program: Program, blame: Blame, record: Record) -> str:
    kind = record.error_type or "an error"
    text = f"{kind}: {record.message}" if record.message else kind
    return text + _place(program, blame, record.frames)


def _place(program: Program, blame: Blame, frames: Sequence[Frame]) -> str:
    """Word where the innermost line of the program stands, and show it: a bare assert says nothing else."""
    frame = innermost(frames)
    lines = program.source.split("\n")
    if frame is None or not 0 < frame.line <= len(lines):
        return ""
    whose, line = "program", frame.line
    if blame.is_snippets(frame.line):
        whose, line = "snippet", frame.line - program.first_line + 1
    return f" ({whose} line {line}: `{lines[frame.line - 1].strip()[:200]}`)"


def _verdict(cases: Sequence[CaseResult], incident: _Incident | None) -> tuple[Status, Cause | None]:
    """Weigh the cases: what can be repaired first, then time, failures, errors; `passed` is what is left."""
    causes = {case.cause for case in cases}
    timed_out = incident is not None and incident.status is Status.TIMEOUT
    if incident is not None and not timed_out:
        causes.add(incident.cause)
    for cause in _REPAIRABLE:
        if cause in causes and not (timed_out and incident and cause is incident.cause):
            return Status.ERROR, cause
    if incident is not None and timed_out:
        return Status.TIMEOUT, incident.cause
    outcomes = {case.outcome for case in cases}
    if CaseOutcome.FAILED in outcomes:
        return Status.FAILED, Cause.SNIPPET
    if CaseOutcome.ERROR in outcomes or incident is not None:
        return Status.ERROR, Cause.SNIPPET
    if CaseOutcome.NOT_RUN in outcomes or not cases:
        return Status.ERROR, Cause.PROGRAM
    return Status.PASSED, None
