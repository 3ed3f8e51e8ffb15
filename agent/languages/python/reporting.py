"""Turns what a sandbox saw of a run into a report: how each case ended, how the run ended, and who failed.

That is the snippet, the program around it, or a dependency that is not there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent.languages.base import Program
from agent.languages.canonical import canonical
from agent.languages.python import python2
from agent.languages.python.cases import find_introspection, is_third_party, modules_provided
from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.inspection import acts_at_load
from agent.languages.python.source import Definition, names_bound, parse, start_line
from agent.sandbox.base import Frame, ReportLine, RunResult
from agent.sandbox.dependencies.imports import PYTHON2_MODULES
from agent.types import CaseOutcome, CaseResult, Cause, Status, TestReport

MAX_MESSAGE = 1_500
"""Characters of one case's message."""

PROGRAM_FILE = "program.py"
"""The name under which a sandbox runs the program, as frames give it."""

# modules of the standard library that wait for threads, tasks or what these leave in a queue
_WAITING = re.compile(r"/python3[^/]*/(?:(?:threading|queue|selectors)|(?:asyncio|concurrent/futures)/\w+)\.py$")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_OPTIONAL = re.compile(r"Missing optional dependency '([\w.-]+)'")
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_LIBRARY = re.compile(r"cannot open shared object file")
_NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")
_NO_ATTRIBUTE = re.compile(r"(?:type object )?'(\w+)' (?:object )?has no attribute '(\w+)'")
_NO_MODULE_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_BUILT_IN_CHANGED = re.compile(r"changed (?:builtins|unittest[\w.]*)\.(\w+)")

_SEVERITY = (CaseOutcome.PASSED, CaseOutcome.NOT_RUN, CaseOutcome.FAILED, CaseOutcome.ERROR)
_OF_SNIPPET = "snippet"
"""The name of a tamper record that is about the snippet's own names."""
_REPAIRABLE = (Cause.DEPENDENCY, Cause.PROGRAM)
_LIMITS = {
    "memory": "the memory limit was hit",
    "output": "the output limit was hit",
    "report": "it reported more than a test program does",
}


@dataclass(frozen=True)
class _Incident:
    """What went wrong outside of any one case; `replaced`: something else took the snippet's place."""

    status: Status
    cause: Cause
    message: str
    replaced: bool = False


def report(program: Program, result: RunResult) -> TestReport:
    """Read a run; `passed` needs every case of the program started and ended as passed, in a run that ended cleanly."""
    blame = Blame(program)
    started, ended = (_group_by_case(program.cases, result.records, kind) for kind in ("start", "case"))
    running = next((name for name in reversed(program.cases) if len(started[name]) > len(ended[name])), None)
    incident = _incident(program, result, blame, running, sum(map(len, ended.values())))
    if incident is not None and incident.replaced:
        cases = [CaseResult(name=name, outcome=CaseOutcome.NOT_EXERCISED) for name in program.cases]
    else:
        cases = [_case(program, blame, name, len(started[name]), ended[name], incident) for name in program.cases]
    status, cause = _verdict(cases, incident)
    message = incident.message if incident else ""
    if status is Status.ERROR and incident is None and cause is Cause.PROGRAM and not any(c.cause for c in cases):
        unrun = ", ".join(case.name for case in cases if case.outcome is CaseOutcome.NOT_RUN)
        message = f"these cases did not run: {unrun}"
    return TestReport(
        status=status,
        cause=cause,
        cases=tuple(cases),
        message=canonical(message, MAX_MESSAGE),
        introspection=find_introspection(blame.tree),
    )


def missing(program: Program, result: RunResult) -> tuple[str, ...]:
    """Return the modules the run lacked, with the program's other third-party ones: one environment for all."""
    records = [record for record in result.records if record.kind in ("load", "case")]
    lacking = dict.fromkeys(name for record in records if (name := missing_module(record)) is not None)
    return tuple(dict.fromkeys((*lacking, *program.imports))) if lacking else ()


def _group_by_case(cases: Sequence[str], records: Sequence[ReportLine], kind: str) -> dict[str, list[ReportLine]]:
    """Return the records of a kind by case; those of a parametrized case, `name[...]`, are together."""
    records = [record for record in records if record.kind == kind]
    return {name: [each for each in records if name in (each.name, each.name.partition("[")[0])] for name in cases}


def _incident(program: Program, result: RunResult, blame: Blame, running: str | None, ended: int) -> _Incident | None:
    load = next((record for record in result.records if record.kind == "load"), None)
    # other tampering says more: it may be the snippet's
    tampering = (record for record in result.records if record.kind == "tamper")
    tamper = min(tampering, key=lambda record: record.name == _OF_SNIPPET, default=None)
    where = f"while {running} ran" if running else "after the last case" if ended else "before the first case"
    silent = blame.of_silence(running, ended)
    if load is not None:
        return _Incident(
            Status.ERROR, blame.of(load), f"the program could not be loaded: {_describe(program, blame, load)}"
        )
    if result.timed_out:
        hang = blame.hanging(result.hang, result.hang_beside)
        cause = blame.of_frames(hang) or silent
        return _Incident(Status.TIMEOUT, cause, f"the time limit passed {where}{_place(program, blame, hang)}")
    if tamper is not None:
        replaced = tamper.name == _OF_SNIPPET
        cause = Cause.PROGRAM if replaced else blame.of_tampering(tamper.message)
        return _Incident(Status.ERROR, cause, f"the test was interfered with: {tamper.message}", replaced)
    if result.limit is not None:
        return _Incident(Status.ERROR, silent, f"{_LIMITS.get(result.limit, result.limit)} {where}")
    if not result.clean:
        how = f"by signal {result.signal}" if result.signal is not None else f"with exit code {result.exit_code}"
        return _Incident(Status.ERROR, silent, f"the process ended {how} {where}, not through its end")
    return None


def _case(
    program: Program, blame: Blame, name: str, started: int, ended: list[ReportLine], incident: _Incident | None
) -> CaseResult:
    results = [_judge(program, blame, name, record) for record in ended]
    if started > len(ended):
        incident = incident or _Incident(Status.ERROR, Cause.SNIPPET, "the case began and did not end")
        results.append(_result(name, CaseOutcome.ERROR, incident.message, incident.cause))
    elif started < len(ended):
        results.append(_result(name, CaseOutcome.ERROR, "the case ended without having begun", Cause.SNIPPET))
    elif not started:
        return CaseResult(name=name, outcome=CaseOutcome.NOT_RUN)
    return max(results, key=lambda case: (case.cause in _REPAIRABLE, _SEVERITY.index(case.outcome)))


def _judge(program: Program, blame: Blame, name: str, record: ReportLine) -> CaseResult:
    if record.outcome == "passed":
        return CaseResult(name=name, outcome=CaseOutcome.PASSED)
    if record.outcome == "skipped":
        return _result(name, CaseOutcome.NOT_RUN, f"skipped: {record.message}", None)
    message = _describe(program, blame, record)
    asserted = record.outcome == "failed" or record.error_type == "AssertionError"
    if asserted and blame.of_frames(record.frames) is not Cause.SNIPPET:
        return _result(name, CaseOutcome.FAILED, message, Cause.SNIPPET)
    return _result(name, CaseOutcome.ERROR, message, blame.of(record))


def _result(name: str, outcome: CaseOutcome, message: str, cause: Cause | None) -> CaseResult:
    return CaseResult(name=name, outcome=outcome, message=canonical(message, MAX_MESSAGE), cause=cause)


def _describe(program: Program, blame: Blame, record: ReportLine) -> str:
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


def missing_module(record: ReportLine) -> str | None:
    """Return the top-level module outside of the standard library that a record says is not installed."""
    match = _NO_MODULE.match(record.message) or _OPTIONAL.search(record.message)
    root = match[1].partition(".")[0] if match and _is_import_error(record) else ""
    return root if root and is_third_party(root) else None


class Blame:
    """Judges the failures of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def of(self, record: ReportLine) -> Cause:
        """Return the cause of an exception raised in a case, or while the program was loaded."""
        if _is_import_error(record) and (cause := self._of_import(record)) is not None:
            return cause
        if self._lacks_scaffolding(record):
            return Cause.PROGRAM
        return self.of_frames(record.frames) or Cause.PROGRAM

    def of_frames(self, frames: Sequence[Frame]) -> Cause | None:
        """Return whose the innermost line is; None when no frame is of the program."""
        frame = innermost(frames)
        if frame is None:
            return None
        return Cause.SNIPPET if self.is_snippets(frame.line) else Cause.PROGRAM

    def hanging(self, main: Sequence[Frame], beside: Iterable[Sequence[Frame]]) -> Sequence[Frame]:
        """Return the stack that a hang goes by.

        It is the main thread's, unless that only waits for others, and another one stands in the snippet's lines.
        """
        if not main or not _WAITING.search(main[-1].file):
            return main
        return next((stack for stack in beside if self.of_frames(stack) is Cause.SNIPPET), main)

    def of_silence(self, running: str | None, ended: int) -> Cause:
        """Return the cause when nothing shows where a run stopped.

        A case that ran, or had run, was about the snippet. While loading it is the program's doing, unless the snippet
        acts when it is loaded.
        """
        if running is not None or ended:
            return Cause.SNIPPET
        acts = acts_at_load(node for node in self.tree.body if self.is_snippets(start_line(node)))
        return Cause.SNIPPET if acts else Cause.PROGRAM

    def of_tampering(self, message: str) -> Cause:
        """Return the cause of changed built-ins: the program's own lines, where they name what was changed."""
        lines = self._program.source.split("\n")
        own = "\n".join(lines[: self._program.first_line - 1] + lines[self._program.last_line :])
        match = _BUILT_IN_CHANGED.search(message)
        change = match and rf"(?:builtins|unittest)[\w.]*\.{match[1]}\s*=[^=]|setattr\([^)]*['\"]{match[1]}['\"]"
        return Cause.PROGRAM if change and re.search(change, own) else Cause.SNIPPET

    def is_snippets(self, line: int) -> bool:
        """Say whether a line of the program is the snippet's."""
        return self._program.first_line <= line <= self._program.last_line

    def _of_import(self, record: ReportLine) -> Cause | None:
        message = record.message
        if missing_module(record) is not None or _NO_LIBRARY.search(message):
            return Cause.DEPENDENCY
        match = _NO_MODULE.match(message)
        if message.startswith("attempted relative import") or (match and match[1].partition(".")[0] in PYTHON2_MODULES):
            return Cause.PROGRAM
        if match := _CANNOT_IMPORT.search(message):
            name, module = match[1], match[2]
            root = module.partition(".")[0]
            if root in modules_provided(self.tree) or name in python2.ATTRIBUTES.get(module, ()):
                return Cause.PROGRAM
            return Cause.DEPENDENCY if is_third_party(root) and root != "test_program" else None
        return None

    def _lacks_scaffolding(self, record: ReportLine) -> bool:
        """Say whether the snippet needed what the program should have set up around it."""
        kind, message = _kind(record), record.message
        if self.of_frames(record.frames) is not Cause.SNIPPET:
            return False
        if kind == "NameError":
            match = _NOT_DEFINED.match(message)
            return match is not None and match[1] not in names_bound(self._snippet)
        if kind != "AttributeError":
            return False
        if match := _NO_MODULE_ATTRIBUTE.match(message):
            provided = match[1].partition(".")[0] in modules_provided(self.tree)
            return provided or match[2] in python2.ATTRIBUTES.get(match[1], ())
        if match := _NO_ATTRIBUTE.match(message):
            if match[2] in python2.METHODS and match[1] in ("dict", "OrderedDict", "defaultdict", "Counter"):
                return True
            return match[1] in self._stand_ins() and match[2] not in self._attributes_of_snippet()
        return False

    @cached_property
    def _snippet(self) -> tuple[ast.AST, ...]:
        return tuple(node for node in ast.walk(self.tree) if self.is_snippets(getattr(node, "lineno", 0)))

    def _attributes_of_snippet(self) -> set[str]:
        """Return the attributes that the snippet assigns, and the names that it defines."""
        attributes = (node for node in self._snippet if isinstance(node, ast.Attribute))
        stored = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
        return stored | {node.name for node in self._snippet if isinstance(node, Definition)}

    def _stand_ins(self) -> set[str]:
        """Return the classes that the program defines around the snippet."""
        return {
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef) and not self.is_snippets(node.lineno)
        }

    @cached_property
    def tree(self) -> ast.Module:
        """The program's syntax tree."""
        return parse(self._program.source, MAX_PROGRAM)


def innermost(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the program."""
    return next((frame for frame in reversed(frames) if frame.file == PROGRAM_FILE), None)


def _kind(record: ReportLine) -> str:
    return record.error_type.rpartition(".")[2]


def _is_import_error(record: ReportLine) -> bool:
    return _kind(record) in ("ImportError", "ModuleNotFoundError")
