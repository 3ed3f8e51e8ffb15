"""Determine the cause of a failure: the snippet, the program around it, or something that cannot run here."""

from __future__ import annotations

import re

from agent.languages.base import Program
from agent.languages.javascript.insertion import Placement
from agent.languages.javascript.inspection import MEMBERS, find_introspection, find_members
from agent.languages.javascript.syntax import find_bindings, walk, walk_outside_functions
from agent.languages.javascript.tables import BROWSER, NEWER, WORKING
from agent.languages.reporting import Blame
from agent.sandbox.base import ReportLine, RunResult
from agent.types import Cause

_NO_MODULE = re.compile(r"Cannot find (?:module|package) '([^']+)'")
_NOT_DEFINED = re.compile(r"([\w$]+) is not defined")
_NOT_CALLABLE = re.compile(
    r"(?:\(intermediate value\)\.?|([\w$]+)\.)(?:[\w$]+\.)*?([\w$]+) is not (?:a function|a constructor)"
)
_CANNOT_RUN = re.compile(
    r"No such built-in module|Could not locate the bindings|invalid ELF|/[^/\s]+\.node\b|strip-only mode"
    r"|Unknown file extension"
)
_REPEATED = re.compile(r"Identifier '([^']+)' has already been declared")
_OF_PLACE = re.compile(
    r"has already been declared|Private (?:field|name)|'super'|Illegal (?:return|break|continue)|await is only valid"
    r"|[Ss]trict mode|outside a module|does not provide an export|Function statements require a function name"
)
"""Syntax errors that depend on where the snippet stands."""


class JavaScriptBlame(Blame):
    """Determines the causes of the failures of a program in Node."""

    file = "program.js"

    def __init__(self, program: Program, placement: Placement) -> None:
        super().__init__(program)
        self.placement = placement

    def judge_record(self, record: ReportLine) -> Cause:
        message = record.message
        if _CANNOT_RUN.search(message):
            return Cause.DEPENDENCY
        if (match := _NO_MODULE.search(message)) is not None:
            return Cause.PROGRAM if is_path(match[1]) else Cause.DEPENDENCY
        if record.error_type == "ReferenceError" and (match := _NOT_DEFINED.match(message)) is not None:
            return self._judge_name(match[1], record)
        is_snippet = self.judge_frames(record.frames) is Cause.SNIPPET
        if not is_snippet:
            # a thrown value that is no error does not show where it comes from
            may_throw = any(node.type == "throw_statement" for node in walk(self.placement.nodes))
            return Cause.SNIPPET if record.error_type == "thrown value" and may_throw else Cause.PROGRAM
        if record.error_type == "SyntaxError" and record.kind == "load":
            if (match := _REPEATED.search(message)) is not None and self.placement.is_at_top:
                return Cause.PROGRAM if match[1] in self.placement.find_surrounding_names() else Cause.SNIPPET
            return Cause.PROGRAM if _OF_PLACE.search(message) else Cause.DEPENDENCY
        if record.error_type == "TypeError" and (match := _NOT_CALLABLE.match(message)) is not None:
            return self._judge_method(match[1] or "", match[2])
        return Cause.SNIPPET

    def does_work_at_load(self) -> bool:
        return any(part.type in WORKING for part in walk_outside_functions(self.placement.nodes))

    def find_introspection(self) -> tuple[str, ...]:
        """Return the names in the program through which code can reach the runner or change its verdicts."""
        return find_introspection(self.placement)

    def _judge_name(self, name: str, record: ReportLine) -> Cause:
        if self.judge_frames(record.frames) is not Cause.SNIPPET:
            return Cause.PROGRAM
        if name in BROWSER or name in NEWER:
            return Cause.DEPENDENCY
        bound = find_bindings(self.placement.nodes, nested=True)
        return Cause.SNIPPET if name in bound else Cause.PROGRAM

    def _judge_method(self, owner: str, name: str) -> Cause:
        """Return the cause if an object lacks a method: the program if it provides a stand-in without that method."""
        if name in NEWER:
            return Cause.DEPENDENCY
        is_member = any(node.type in MEMBERS for node in self.placement.nodes)
        is_stand_in = owner in self._program.stand_ins or (owner == "this" and is_member)
        return Cause.PROGRAM if is_stand_in and name not in find_members(self.placement.nodes) else Cause.SNIPPET


def is_path(name: str) -> bool:
    """Return whether an import names a file, and not a package."""
    return name.startswith((".", "/", "file:", "#"))


def find_missing_packages(result: RunResult) -> tuple[str, ...]:
    """Return the packages that could not be found in a run."""
    records = (record for record in result.records if record.kind in ("load", "case"))
    names = [match[1] for record in records if (match := _NO_MODULE.search(record.message))]
    return tuple(dict.fromkeys(get_package(name) for name in names if not is_path(name)))


def get_package(name: str) -> str:
    """Return the package of an import, such as `lodash` for `lodash/fp`."""
    parts = name.split("/")
    return "/".join(parts[: 2 if name.startswith("@") else 1])
