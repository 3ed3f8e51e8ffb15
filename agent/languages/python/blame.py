"""Says who failed: the snippet, the program around it, or a dependency that is not there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from agent.languages.base import Program
from agent.languages.python import python2
from agent.languages.python.imports import is_third_party, modules_provided
from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.inspection import acts_at_load
from agent.languages.python.source import parse
from agent.languages.python.tree import Definition, is_within, names_bound, start_line
from agent.sandbox.base import Frame, Record
from agent.sandbox.dependencies.imports import PYTHON2_MODULES
from agent.types import Cause

PROGRAM_FILE = "program.py"
"""The name under which a sandbox runs the program, as frames give it."""

# modules of the standard library that wait for threads, tasks or what these leave in a queue
_WAITING = re.compile(r"/python3[^/]*/(?:(?:threading|queue|selectors)|(?:asyncio|concurrent/futures)/\w+)\.py$")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_OPTIONAL = re.compile(r"Missing optional dependency '([\w.-]+)'")
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_NO_LIBRARY = re.compile(r"cannot open shared object file")
_NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")
_NO_ATTRIBUTE = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_NO_CLASS_ATTRIBUTE = re.compile(r"type object '(\w+)' has no attribute '(\w+)'")
_NO_MODULE_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_BUILT_IN_CHANGED = re.compile(r"changed (?:builtins|unittest[\w.]*)\.(\w+)")


def missing_module(record: Record) -> str | None:
    """Return the top-level module outside of the standard library that a record says is not installed."""
    if not _is_import_error(record):
        return None
    match = _NO_MODULE.match(record.message) or _OPTIONAL.search(record.message)
    if match is None:
        return None
    root = match[1].partition(".")[0]
    return root if root and is_third_party(root) else None


class Blame:
    """Judges the failures of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def of(self, record: Record) -> Cause:
        """Return the cause of an exception raised in a case, or while the program was loaded."""
        if _is_import_error(record):
            cause = self._of_import(record)
            if cause is not None:
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
        """Return the cause when nothing tells where a run stopped.

        A case that ran, or had run, was about the snippet. While loading it is the program's doing, unless the snippet
        acts when it is loaded.
        """
        return Cause.SNIPPET if running is not None or ended or self._snippet_acts_at_load else Cause.PROGRAM

    def of_tampering(self, message: str) -> Cause:
        """Return the cause of changed built-ins: the program's own lines, where they name what was changed."""
        match = _BUILT_IN_CHANGED.search(message)
        name = match[1] if match else None
        own = self._own_lines
        patched = name and re.search(
            rf"(?:builtins|unittest)[\w.]*\.{name}\s*=[^=]|setattr\([^)]*['\"]{name}['\"]", own
        )
        return Cause.PROGRAM if patched else Cause.SNIPPET

    def is_snippets(self, line: int) -> bool:
        """Say whether a line of the program is the snippet's."""
        return self._program.first_line <= line <= self._program.last_line

    def _of_import(self, record: Record) -> Cause | None:
        message = record.message
        if missing_module(record) is not None or _NO_LIBRARY.search(message):
            return Cause.DEPENDENCY
        if (match := _NO_MODULE.match(message)) and match[1].partition(".")[0] in PYTHON2_MODULES:
            return Cause.PROGRAM
        if message.startswith("attempted relative import"):
            return Cause.PROGRAM
        if match := _CANNOT_IMPORT.search(message):
            name, module = match[1], match[2]
            root = module.partition(".")[0]
            if root in self._provided or name in python2.ATTRIBUTES.get(module, ()):
                return Cause.PROGRAM
            return Cause.DEPENDENCY if is_third_party(root) and root != "test_program" else None
        return None

    def _lacks_scaffolding(self, record: Record) -> bool:
        """Say whether the snippet needed what the program should have set up around it."""
        kind, message = _kind(record), record.message
        if self.of_frames(record.frames) is not Cause.SNIPPET:
            return False
        if kind == "NameError":
            match = _NOT_DEFINED.match(message)
            return match is not None and match[1] not in self._bound_by_snippet
        if kind != "AttributeError":
            return False
        if match := _NO_MODULE_ATTRIBUTE.match(message):
            return match[2] in python2.ATTRIBUTES.get(match[1], ()) or match[1].partition(".")[0] in self._provided
        if match := _NO_CLASS_ATTRIBUTE.match(message) or _NO_ATTRIBUTE.match(message):
            if match[2] in python2.METHODS and match[1] in ("dict", "OrderedDict", "defaultdict", "Counter"):
                return True
            return match[1] in self._stand_ins and match[2] not in self._attributes_of_snippet
        return False

    @cached_property
    def _snippet(self) -> tuple[ast.AST, ...]:
        program = self._program
        inside = (node for node in ast.walk(self._tree) if is_within(node, program.first_line, program.last_line))
        return tuple(inside)

    @cached_property
    def _bound_by_snippet(self) -> frozenset[str]:
        return names_bound(self._snippet)

    @cached_property
    def _attributes_of_snippet(self) -> frozenset[str]:
        attributes = (node for node in self._snippet if isinstance(node, ast.Attribute))
        stored = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
        return frozenset(stored | {node.name for node in self._snippet if isinstance(node, Definition)})

    @cached_property
    def _stand_ins(self) -> frozenset[str]:
        classes = (node for node in ast.walk(self._tree) if isinstance(node, ast.ClassDef))
        return frozenset(node.name for node in classes if not self.is_snippets(node.lineno))

    @cached_property
    def _provided(self) -> frozenset[str]:
        return modules_provided(self._tree)

    @cached_property
    def _snippet_acts_at_load(self) -> bool:
        return acts_at_load([node for node in self._tree.body if self.is_snippets(start_line(node))])

    @cached_property
    def _own_lines(self) -> str:
        lines = self._program.source.split("\n")
        return "\n".join(lines[: self._program.first_line - 1] + lines[self._program.last_line :])

    @cached_property
    def _tree(self) -> ast.Module:
        return parse(self._program.source, MAX_PROGRAM)


def innermost(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the program."""
    return next((frame for frame in reversed(frames) if frame.file == PROGRAM_FILE), None)


def _kind(record: Record) -> str:
    return record.error_type.rpartition(".")[2]


def _is_import_error(record: Record) -> bool:
    return _kind(record) in ("ImportError", "ModuleNotFoundError")
