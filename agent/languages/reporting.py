"""Build the test report of a run: the outcome of each case, the status of the run, and the cause of a failure.

The cause is the snippet, the program around it, or a missing dependency.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.languages.base import Program
from agent.languages.canonical import canonicalise
from agent.sandbox.base import Frame, ReportLine, RunResult
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

MAX_MESSAGE = 1_500
"""Maximum length of a case's message, in characters."""

_SEVERITY = (CaseOutcome.PASSED, CaseOutcome.NOT_RUN, CaseOutcome.FAILED, CaseOutcome.ERROR)
_OF_SNIPPET = "snippet"
"""The name of tamper records about the snippet's own functions and classes."""
OF_CONTEXT = "context"
"""The name of load records about the import of the snippet's module."""
_OF_SQL = "sql"
"""The name of load records about features that the database engine lacks."""
_NO_EVIDENCE = (Cause.CONTEXT, Cause.DEPENDENCY, Cause.PROGRAM)
"""Causes that excuse the snippet, in order of precedence."""
_LIMITS = {
    "time": "the time limit was reached",
    "memory": "the memory limit was reached",
    "output": "the output limit was reached",
    "report": "the limit on reported results was reached",
}


@dataclass(frozen=True)
class _Incident:
    """A problem outside any single case. `replaced` is true if the program replaced the snippet."""

    status: Status
    cause: Cause
    message: str
    replaced: bool = False


def build_report(program: Program, result: RunResult, blame: Blame) -> TestReport:
    """Build the report of a run. `blame` determines the causes of failures.

    The status is `passed` only after a clean exit in which every case started and passed.
    """
    starts, ends = (_group_by_case(program.cases, result.records, kind) for kind in ("start", "case"))
    running = next((name for name in reversed(program.cases) if len(starts[name]) > len(ends[name])), None)
    incident = _find_incident(program, result, blame, running, sum(map(len, ends.values())))
    if incident is not None and incident.replaced:
        cases = [CaseResult(name=name, outcome=CaseOutcome.NOT_EXERCISED) for name in program.cases]
    else:
        cases = [_build_case(program, blame, name, len(starts[name]), ends[name], incident) for name in program.cases]
        cases = _apply_entries(cases, result.records)
    status, cause = _decide_verdict(cases, incident)
    message = incident.message if incident else ""
    if status is Status.ERROR and incident is None and cause is Cause.PROGRAM and not any(c.cause for c in cases):
        unrun = ", ".join(case.name for case in cases if case.outcome is not CaseOutcome.PASSED)
        message = f"these cases did not run: {unrun}"
    return TestReport(
        status=status,
        cause=cause,
        cases=tuple(cases),
        message=canonicalise(message, MAX_MESSAGE),
        introspection=tuple(sorted({*blame.find_introspection(), *program.introspection})),
    )


def _group_by_case(cases: Sequence[str], records: Sequence[ReportLine], kind: str) -> dict[str, list[ReportLine]]:
    """Group the records of one kind by case. All variants of a parametrized case (`name[...]`) form one group."""
    records = [record for record in records if record.kind == kind]
    return {
        name: [record for record in records if name in (record.name, record.name.partition("[")[0])] for name in cases
    }


def _find_incident(
    program: Program, result: RunResult, blame: Blame, running: str | None, ends: int
) -> _Incident | None:
    load = next((record for record in result.records if record.kind == "load"), None)
    # other tampering comes first, because it is more informative: the snippet may have caused it
    tampering = (record for record in result.records if record.kind == "tamper")
    tamper = min(tampering, key=lambda record: record.name == _OF_SNIPPET, default=None)
    position = f"while {running} ran" if running else "after the last case" if ends else "before the first case"
    silent = blame.judge_silence(running, ends)
    if load is not None:
        return _Incident(Status.ERROR, blame.judge_record(load), _describe_load(program, blame, load))
    if blame.module and all(record.kind != "context" for record in result.records):
        ending = _LIMITS.get("time" if result.timed_out else result.limit or "", "the process ended")
        return _Incident(Status.ERROR, Cause.CONTEXT, f"{ending} while the snippet's module was imported")
    if result.timed_out:
        hang = blame.choose_stack(result.hang, result.hang_beside)
        cause = blame.judge_frames(hang) or silent
        return _Incident(
            Status.TIMEOUT, cause, f"the time limit was reached {position}{_describe_location(program, blame, hang)}"
        )
    if tamper is not None:
        replaced = tamper.name == _OF_SNIPPET
        cause = Cause.PROGRAM if replaced else blame.judge_tampering(tamper.message)
        return _Incident(Status.ERROR, cause, f"the test was tampered with: {tamper.message}", replaced)
    if result.limit is not None:
        return _Incident(Status.ERROR, silent, f"{_LIMITS.get(result.limit, result.limit)} {position}")
    if not result.clean:
        ending = (
            f"was killed by signal {result.signal}"
            if result.signal is not None
            else f"exited with exit code {result.exit_code}"
        )
        return _Incident(Status.ERROR, silent, f"the process {ending} {position} instead of running to completion")
    return None


def _describe_load(program: Program, blame: Blame, load: ReportLine) -> str:
    if load.name == _OF_SQL:
        return _describe(program, blame, load)
    if load.name != OF_CONTEXT:
        return f"the program could not be loaded: {_describe(program, blame, load)}"
    if load.error_type == "ContextError":
        return load.message
    return f"the snippet's module could not be imported: {_describe(program, blame, load)}"


def _build_case(
    program: Program, blame: Blame, name: str, starts: int, ends: list[ReportLine], incident: _Incident | None
) -> CaseResult:
    results = [_judge_record(program, blame, name, record) for record in ends]
    if starts > len(ends):
        incident = incident or _Incident(Status.ERROR, Cause.SNIPPET, "the case started but did not finish")
        results.append(_build_result(name, CaseOutcome.ERROR, incident.message, incident.cause))
    elif starts < len(ends):
        results.append(
            _build_result(name, CaseOutcome.ERROR, "the case finished without having started", Cause.SNIPPET)
        )
    elif not starts:
        return CaseResult(name=name, outcome=CaseOutcome.NOT_RUN)
    return max(results, key=lambda case: (case.cause in _NO_EVIDENCE, _SEVERITY.index(case.outcome)))


def _apply_entries(cases: list[CaseResult], records: Sequence[ReportLine]) -> list[CaseResult]:
    """In a sentinel run that records entries, return `error` for cases that entered the snippet, else `not_exercised`.

    If the program entered the snippet while it was loaded, cases that did not run are unchanged.
    """
    if all(record.kind != "sentinel" for record in records):
        return cases
    entered = {record.name for record in records if record.kind == "entered"}

    def apply(case: CaseResult) -> CaseResult:
        if case.outcome is CaseOutcome.NOT_RUN and "" in entered:
            return case
        if case.name not in entered:
            return CaseResult(name=case.name, outcome=CaseOutcome.NOT_EXERCISED)
        return _build_result(case.name, CaseOutcome.ERROR, "it entered the snippet, which raised", Cause.SNIPPET)

    return list(map(apply, cases))


def _judge_record(program: Program, blame: Blame, name: str, record: ReportLine) -> CaseResult:
    if record.outcome == "passed":
        return CaseResult(name=name, outcome=CaseOutcome.PASSED)
    if record.outcome == "skipped":
        return _build_result(name, CaseOutcome.NOT_RUN, f"skipped: {record.message}", None)
    message = _describe(program, blame, record)
    asserted = record.outcome == "failed" or record.error_type == "AssertionError"
    if asserted and blame.judge_frames(record.frames) is not Cause.SNIPPET and not blame.is_of_module(record):
        return _build_result(name, CaseOutcome.FAILED, message, Cause.SNIPPET)
    return _build_result(name, CaseOutcome.ERROR, message, blame.judge_record(record))


def _build_result(name: str, outcome: CaseOutcome, message: str, cause: Cause | None) -> CaseResult:
    return CaseResult(name=name, outcome=outcome, message=canonicalise(message, MAX_MESSAGE), cause=cause)


def _describe(program: Program, blame: Blame, record: ReportLine) -> str:
    kind = record.error_type or "an error"
    text = f"{kind}: {record.message}" if record.message else kind
    text += _describe_location(program, blame, record.frames)
    hint = blame.explain(record)
    return f"{text}; {hint}" if hint and blame.judge_record(record) is Cause.DEPENDENCY else text


def _describe_location(program: Program, blame: Blame, frames: Sequence[Frame]) -> str:
    """Describe and quote the program's innermost traceback line, because a bare assert has no other message."""
    frame = blame.find_innermost(frames)
    lines = program.source.split("\n")
    if frame is None or not 0 < frame.line <= len(lines):
        return ""
    part, line = "program", frame.line
    if blame.is_snippet_line(frame.line):
        part, line = "snippet", frame.line - program.first_line + 1
    return f" ({part} line {line}: `{lines[frame.line - 1].strip()[:200]}`)"


def _decide_verdict(cases: Sequence[CaseResult], incident: _Incident | None) -> tuple[Status, Cause | None]:
    """Return the status and cause.

    Order of precedence: causes that excuse the snippet, time limit, failures, errors, passes.
    """
    causes = {case.cause for case in cases}
    timed_out = incident is not None and incident.status is Status.TIMEOUT
    if incident is not None and not timed_out:
        causes.add(incident.cause)
    for cause in _NO_EVIDENCE:
        if cause in causes and not (timed_out and incident and cause is incident.cause):
            return Status.ERROR, cause
    if incident is not None and timed_out:
        return Status.TIMEOUT, incident.cause
    outcomes = {case.outcome for case in cases}
    if CaseOutcome.FAILED in outcomes:
        return Status.FAILED, Cause.SNIPPET
    if CaseOutcome.ERROR in outcomes or incident is not None:
        return Status.ERROR, Cause.SNIPPET if incident is None else incident.cause
    if outcomes != {CaseOutcome.PASSED}:
        return Status.ERROR, Cause.PROGRAM
    return Status.PASSED, None


class Blame(ABC):
    """Determines the causes of a program's failures. `file` is the program's file name in traceback frames.

    `module` is the module that the program runs in, or empty.
    """

    file: str
    module: str = ""

    def __init__(self, program: Program) -> None:
        self._program = program

    @abstractmethod
    def judge_record(self, record: ReportLine) -> Cause:
        """Return the cause of an exception that was raised in a case or while the program was loaded."""

    def does_work_at_load(self) -> bool:
        """Return whether loading the snippet does more than define, import and assign."""
        return True

    def judge_frames(self, frames: Sequence[Frame]) -> Cause | None:
        """Return the cause according to the innermost frame of the program, or None if there is no such frame."""
        frame = self.find_innermost(frames)
        if frame is None:
            return None
        return Cause.SNIPPET if self.is_snippet_line(frame.line) else Cause.PROGRAM

    def choose_stack(self, main: Sequence[Frame], beside: Iterable[Sequence[Frame]]) -> Sequence[Frame]:  # noqa: ARG002
        """Return the stack that explains a hang."""
        return main

    def judge_silence(self, running: str | None, ends: int) -> Cause:
        """Return the cause if nothing shows where a run stopped.

        The cause is the snippet if a case was running or had finished. During loading, the cause is the program, unless
        the snippet does work at load time.
        """
        if running is not None or ends:
            return Cause.SNIPPET
        return Cause.SNIPPET if self.does_work_at_load() else Cause.PROGRAM

    def judge_tampering(self, message: str) -> Cause:  # noqa: ARG002
        """Return the cause if something that decides verdicts was changed."""
        return Cause.SNIPPET

    def is_of_module(self, record: ReportLine) -> bool:  # noqa: ARG002
        """Return whether code of the snippet's module, apart from the snippet, raised an exception."""
        return False

    def explain(self, record: ReportLine) -> str:  # noqa: ARG002
        """Return what the environment may lack, according to an exception, or an empty text."""
        return ""

    def find_introspection(self) -> tuple[str, ...]:
        """Return the names in the program through which code can reach the test harness."""
        return ()

    def is_snippet_line(self, line: int) -> bool:
        """Return whether a line of the program belongs to the snippet."""
        return self._program.first_line <= line <= self._program.last_line

    def find_innermost(self, frames: Sequence[Frame]) -> Frame | None:
        """Return the innermost frame of the program."""
        return next((frame for frame in reversed(frames) if frame.file == self.file), None)
