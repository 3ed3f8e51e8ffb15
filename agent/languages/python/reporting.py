"""Determine the cause of a Python program's failure: the snippet, the program around it, or a missing dependency."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from agent.languages.base import Program
from agent.languages.python import dependencies
from agent.languages.python.cases import find_introspection, find_provided_modules
from agent.languages.python.dependencies import NO_ATTRIBUTE, NO_MODULE_ATTRIBUTE, NOT_DEFINED, PROGRAM_FILE
from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.inspection import does_work_at_load
from agent.languages.python.source import Definition, find_bound_names, get_start_line, parse
from agent.languages.reporting import OF_CONTEXT, Blame
from agent.sandbox.base import Frame, ReportLine
from agent.types import Cause

# standard library modules that wait for threads, tasks or queues
_WAITING = re.compile(r"/python3[^/]*/(?:(?:threading|queue|selectors)|(?:asyncio|concurrent/futures)/\w+)\.py$")
_BUILT_IN_CHANGED = re.compile(r"changed (?:builtins|unittest[\w.]*)\.(\w+)")


class PythonBlame(Blame):
    """Determines the causes of a Python program's failures."""

    file = PROGRAM_FILE

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.module = program.options.get("module", "")

    def does_work_at_load(self) -> bool:
        """Return whether loading the snippet does more than define, import and assign."""
        return does_work_at_load(node for node in self.tree.body if self.is_snippet_line(get_start_line(node)))

    def explain(self, record: ReportLine) -> str:
        """Return what the environment may lack, according to an exception, or an empty text."""
        return dependencies.explain(record)

    def find_introspection(self) -> tuple[str, ...]:
        """Return the names in the program through which code can reach the test harness."""
        return find_introspection(self.tree)

    def judge_record(self, record: ReportLine) -> Cause:
        """Return the cause of an exception that was raised in a case or while the program was loaded."""
        cause = dependencies.judge_import(record, self.tree, self.module)
        if record.kind == "load" and record.name == OF_CONTEXT:
            is_missing = cause is Cause.DEPENDENCY and dependencies.find_missing_module(record, self.module) is not None
            return Cause.DEPENDENCY if is_missing else Cause.CONTEXT
        frame = self.find_innermost(record.frames)
        if frame is None or not self.is_snippet_line(frame.line):
            return Cause.PROGRAM if cause in (None, Cause.CONTEXT) else cause
        if self.module and dependencies.is_of_python2(record):
            return Cause.CONTEXT
        if cause is not None:
            return cause
        if self._lacks_scaffolding(record):
            return Cause.PROGRAM
        is_of_environment = dependencies.is_of_environment(record, frame, self.tree, self.module)
        return Cause.DEPENDENCY if is_of_environment else Cause.SNIPPET

    def choose_stack(self, main: Sequence[Frame], beside: Iterable[Sequence[Frame]]) -> Sequence[Frame]:
        """Return the stack that explains a hang.

        This is the main thread's stack, unless that thread only waits and another thread is running the snippet.
        """
        if not main or not _WAITING.search(main[-1].file):
            return main
        return next((stack for stack in beside if self.judge_frames(stack) is Cause.SNIPPET), main)

    def judge_tampering(self, message: str) -> Cause:
        """Return the cause if built-ins were changed.

        The cause is the program if its own lines make the change, and otherwise the snippet.
        """
        lines = self._program.source.split("\n")
        program_lines = "\n".join(lines[: self._program.first_line - 1] + lines[self._program.last_line :])
        match = _BUILT_IN_CHANGED.search(message)
        change = match and rf"(?:builtins|unittest)[\w.]*\.{match[1]}\s*=[^=]|setattr\([^)]*['\"]{match[1]}['\"]"
        return Cause.PROGRAM if change and re.search(change, program_lines) else Cause.SNIPPET

    def is_of_module(self, record: ReportLine) -> bool:
        """Return whether code of the snippet's module, apart from the snippet, raised an exception."""
        module = self.module.replace(".", "/")
        file = record.frames[-1].file if record.frames else ""
        return bool(module) and file.endswith((f"/{module}.py", f"/{module}/__init__.py"))

    def _lacks_scaffolding(self, record: ReportLine) -> bool:
        """Return whether the snippet failed because the program did not set up what the snippet needs.

        In its own module, a snippet needs only the objects that the program passes.
        """
        kind, message = dependencies.get_kind(record), record.message
        if kind == "NameError":
            match = None if self.module else NOT_DEFINED.match(message)
            return match is not None and match[1] not in find_bound_names(self._snippet)
        if kind != "AttributeError":
            return False
        if dependencies.is_of_python2(record):
            return True
        if match := NO_MODULE_ATTRIBUTE.match(message):
            return match[1].partition(".")[0] in find_provided_modules(self.tree)
        if match := NO_ATTRIBUTE.match(message):
            return match[1] in self._find_stand_ins() and match[2] not in self._find_snippet_attributes()
        return False

    @cached_property
    def _snippet(self) -> tuple[ast.AST, ...]:
        return tuple(node for node in ast.walk(self.tree) if self.is_snippet_line(getattr(node, "lineno", 0)))

    def _find_snippet_attributes(self) -> set[str]:
        attributes = (node for node in self._snippet if isinstance(node, ast.Attribute))
        assigned = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
        return assigned | {node.name for node in self._snippet if isinstance(node, Definition)}

    def _find_stand_ins(self) -> set[str]:
        return {
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ClassDef) and not self.is_snippet_line(node.lineno)
        }

    @cached_property
    def tree(self) -> ast.Module:
        """The program's syntax tree."""
        return parse(self._program.source, MAX_PROGRAM)
