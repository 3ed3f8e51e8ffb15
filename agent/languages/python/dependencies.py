"""Recognise failures of the environment: missing modules, other distributions or versions, and an older Python."""

from __future__ import annotations

import ast
import re

from agent.languages.base import Program
from agent.languages.python import python2
from agent.languages.python.cases import find_provided_modules, find_third_party_modules, is_third_party
from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.source import PYTHON_VERSION, find_imported_roots, parse
from agent.sandbox.base import Frame, ReportLine, RunResult
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, find_known_name, find_requirement, is_stdlib
from agent.types import Cause

PROGRAM_FILE = "program.py"
"""The program's file name in a sandbox and in traceback frames."""

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_OPTIONAL = re.compile(r"Missing optional dependency '([\w.-]+)'")
_CANNOT_IMPORT = re.compile(
    r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'"
)
NO_MODULE_ATTRIBUTE = re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'")
NO_ATTRIBUTE = re.compile(r"(?:type object )?'(?P<type>\w+)' (?:object )?has no attribute '(?P<name>\w+)'")
NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")
_NO_LIBRARY = re.compile(r"cannot open shared object file")
_IN_PROGRAM = re.compile(rf"\({re.escape(PROGRAM_FILE)}, line \d+\)$")
_DICTIONARIES = ("dict", "OrderedDict", "defaultdict", "Counter")
_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")


def find_missing_modules(program: Program, result: RunResult) -> tuple[str, ...]:
    """Return the missing modules and the program's other third-party modules, which share one environment.

    The result is empty if no module is missing.
    """
    records = [record for record in result.records if record.kind in ("load", "case")]
    module = program.options.get("module", "")
    missing = [name for record in records if (name := find_missing_module(record, module)) is not None]
    if not missing:
        return ()
    # Python names only the first part that it cannot find, such as `google` for `google.protobuf`
    imports = find_third_party_modules(parse(program.source, MAX_PROGRAM), optional=True)
    submodules = {name: [module for module in imports if module.startswith(f"{name}.")] for name in missing}
    modules = [module for name in missing for module in submodules[name] or [find_known_name(name)]]
    return tuple(dict.fromkeys((*modules, *program.imports)))


def judge_import(record: ReportLine, tree: ast.Module, module: str = "") -> Cause | None:
    """Return the cause of an import error, or None if the frames of the traceback determine it.

    Nothing can be added to the package of `module`, in which the snippet runs.
    """
    if not _is_import_error(record):
        return None
    message = record.message
    match = _NO_MODULE.match(message)
    if message.startswith("attempted relative import") or is_of_python2(record):
        return Cause.PROGRAM
    named = match or _CANNOT_IMPORT.search(message)
    if named and module and is_in_package(named[named.lastindex or 1], module):
        return Cause.CONTEXT
    # nothing is missing after `import os.nothing`
    is_wrong = match and is_stdlib(match[1]) and message.endswith("is not a package")
    if (match and not is_wrong) or find_missing_module(record) is not None or _NO_LIBRARY.search(message):
        return Cause.DEPENDENCY
    if match := _CANNOT_IMPORT.search(message):
        root = match["module"].partition(".")[0]
        if root in find_provided_modules(tree):
            return Cause.PROGRAM
        return Cause.DEPENDENCY if is_third_party(root) and root != "test_program" else None
    return None


def is_of_environment(record: ReportLine, frame: Frame, tree: ast.Module, module: str = "") -> bool:
    """Return whether an exception shows a fault of a library or an older Python. `frame` is the program's innermost.

    This is true for import errors that a library raises, for libraries that fail while they are imported, for names
    that third-party modules lack, and for syntax of the program that only this process's Python can parse. The package
    of `module` lacks nothing.
    """
    kind, is_in_library = get_kind(record), record.frames[-1] is not frame
    if kind in _SYNTAX_ERRORS and _IN_PROGRAM.search(record.message):
        return True
    if kind == "AttributeError" and (match := NO_MODULE_ATTRIBUTE.match(record.message)):
        root = match["module"].partition(".")[0]
        is_imported = bool(module) or any(root in find_imported_roots(node) for node in ast.walk(tree))
        if is_third_party(root) and is_imported and not is_in_package(match["module"], module):
            return True
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    if any(node.lineno <= frame.line <= (node.end_lineno or 0) for node in statements):
        return is_in_library or kind in _SYNTAX_ERRORS
    return is_in_library and _is_import_error(record)


def is_of_python2(record: ReportLine) -> bool:
    """Return whether an exception shows that Python 3 lacks a name, module, attribute or method of Python 2."""
    kind, message = get_kind(record), record.message
    if kind == "NameError":
        return (match := NOT_DEFINED.match(message)) is not None and match[1] in python2.NAMES
    if _is_import_error(record) and (match := _NO_MODULE.match(message)):
        return match[1].partition(".")[0] in PYTHON2_MODULES
    if match := NO_MODULE_ATTRIBUTE.match(message) or _CANNOT_IMPORT.search(message):
        return match["name"] in python2.ATTRIBUTES.get(match["module"], ())
    match = NO_ATTRIBUTE.match(message)
    return match is not None and match["type"] in _DICTIONARIES and match["name"] in python2.METHODS


def explain(record: ReportLine) -> str:
    """Return what the environment may lack, according to an exception, or an empty text."""
    match = _NO_MODULE.match(record.message)
    if match and _is_import_error(record) and is_stdlib(match[1]):
        return f"the sandbox's Python does not have the standard module {match[1]}"
    if get_kind(record) in _SYNTAX_ERRORS and _IN_PROGRAM.search(record.message):
        return f"Python {PYTHON_VERSION} parsed the code, but the sandbox's Python is older"
    match = _CANNOT_IMPORT.search(record.message) or NO_MODULE_ATTRIBUTE.match(record.message)
    name = find_known_name(match["module"]) if match else ""
    if name and is_third_party(name) and find_requirement(name) is None:
        return f"the package {name} is not in the import map and may be another project than the code expects"
    return ""


def get_kind(record: ReportLine) -> str:
    """Return the name of the exception's class."""
    return record.error_type.rpartition(".")[2]


def _is_import_error(record: ReportLine) -> bool:
    return get_kind(record) in ("ImportError", "ModuleNotFoundError")


def find_missing_module(record: ReportLine, module: str = "") -> str | None:
    """Return the missing third-party module that a record names, or None. The name may be dotted.

    Ignores the package of `module`, which is installed.
    """
    match = _NO_MODULE.match(record.message) or _OPTIONAL.search(record.message)
    if match is None or not _is_import_error(record) or is_in_package(match[1], module):
        return None
    return match[1] if is_third_party(match[1]) else None


def is_in_package(name: str, module: str) -> bool:
    """Return whether two dotted names belong to one package. Known parts of namespace packages are different."""
    return find_known_name(name) == find_known_name(module)
