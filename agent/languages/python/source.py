"""Parse Python source that may be hostile, with limits on size and depth and clear errors.

Syntax trees are walked without recursion, because hostile code can be nested as deeply as the parser
allows.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TypeGuard

from agent.languages.python import newer, python2

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
PYTHON_VERSION = "{}.{}".format(*sys.version_info)
"""The version of the Python that parses code."""

MAX_CHARACTERS = 100_000
"""Maximum length of code to parse, in characters. Parsing dense code of this length takes 0.4 s and 60 MB."""

MAX_PORTED = 3_000_000
"""Maximum number of characters to parse in all attempts to port code from Python 2. Takes 1 s, or 12 s if dense."""

MOST_LISTED = 10
"""Maximum number of names listed in one sentence."""

_LONGEST_NAME = 60
_WARNING_FILTERS = threading.Lock()
_NEEDS_FUNCTION = re.compile(r"outside (async )?function|outside loop|not properly in loop")
_DEFINITION = re.compile(r"(async\s+def|def|class|import|from)\b|@")
_WORDS_OF_ONE_LINE = 8


class Unparsable(ValueError):
    """Raised for source that this Python version cannot parse. `line` is the line of the error (1-based), if known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(reason if line is None else f"{reason}, line {line}")


class NewerSyntax(Unparsable):
    """Raised for source that a later Python version may be able to parse."""


class TooLarge(Unparsable):
    """Raised for source that exceeds the limits of this module. Python itself may be able to run the source."""


def normalise(text: str) -> str:
    """Remove a byte order mark and convert newlines to `\\n`. Idempotent."""
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def parse(code: str, limit: int = MAX_CHARACTERS) -> ast.Module:
    """Parse normalised source of at most `limit` characters.

    Raises:
        TooLarge: the source is too long or too deeply nested.
        Unparsable: the source is not valid Python.
    """
    if len(code) > limit:
        raise TooLarge(f"it has {len(code):,} characters; the limit is {limit:,}")
    with _translate_errors(code):
        return ast.parse(code)


def parse_ported(code: str, limit: int = MAX_CHARACTERS) -> ast.Module:
    """Parse code as Python 3, as it is or after a mechanical port of Python 2 syntax.

    Use the tree only for checks and statistics, because the port can change the meaning of the code.

    Raises:
        TooLarge: the code exceeds `limit` characters or is too deeply nested, or the port exceeds `MAX_PORTED`.
        Unparsable: the code is not valid Python.
    """
    text = normalise(code)
    for _ in range(1 + MAX_PORTED // (len(text) + 1)):
        try:
            return parse(text, limit)
        except Unparsable as error:
            cause = error.__cause__
            ported = python2.port_syntax(text, cause) if isinstance(cause, SyntaxError) else None
            if ported is None or ported == text:
                raise
            text = ported
    raise TooLarge("it contains too much Python 2 syntax")


def check_compiles(tree: ast.Module) -> None:
    """Raise `Unparsable` for errors that only the compiler detects, such as a `return` outside a function."""
    with _translate_errors():
        compile(tree, "<program>", "exec", dont_inherit=True)


def find_fragment_reason(code: str) -> str | None:
    """Return why code compiles only inside a function or loop, or None if the code compiles as a module.

    Raises:
        Unparsable: the code does not compile in either case.
    """
    try:
        check_compiles(parse(code))
    except Unparsable as error:
        if not _NEEDS_FUNCTION.search(error.reason):
            raise
        check_compiles(_wrap_in_loop(parse(code).body))
        return error.reason
    return None


def _wrap_in_loop(statements: list[ast.stmt]) -> ast.Module:
    module = ast.parse("async def fragment():\n    while True:\n        pass")
    loop = next(node for node in ast.walk(module) if isinstance(node, ast.While))
    loop.body = statements
    return module


def has_lost_newlines(code: str) -> bool:
    """Return whether the code is one line that starts with a definition or import and cannot be parsed."""
    text = code.strip()
    if "\n" in text or "\r" in text or not _DEFINITION.match(text) or len(text.split()) <= _WORDS_OF_ONE_LINE:
        return False
    try:
        with _suppress_warnings():
            ast.parse(text[:MAX_CHARACTERS])
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True
    return False


def describe_syntax_error(error: SyntaxError, code: str) -> str:
    """Describe a syntax error by its likely cause, if there is an obvious one."""
    message = str(error.msg)
    if has_lost_newlines(code):
        return f"its newlines are missing ({message})"
    if older := python2.name_syntax(error):
        return f"Python 2 syntax: {older} ({message})"
    if isinstance(error, IndentationError) and not "".join(code.split("\n")[: (error.lineno or 1) - 1]).strip():
        return f"all lines are indented ({message})"
    return message


@contextmanager
def _suppress_warnings() -> Iterator[None]:
    # Warning filters are process-wide: two threads that change them at once would corrupt them.
    with _WARNING_FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _translate_errors(code: str = "") -> Iterator[None]:
    try:
        with _suppress_warnings():
            yield
    except SyntaxError as error:
        if later := newer.name_syntax(error):
            raise NewerSyntax(f"it may need a later Python: {later} ({error.msg})", error.lineno) from error
        raise Unparsable(describe_syntax_error(error, code), error.lineno) from error
    except UnicodeEncodeError as error:
        raise Unparsable("it contains lone surrogates, which source files cannot contain") from error
    except (RecursionError, MemoryError) as error:
        # The maximum depth depends on the Python version and on the depth of the caller's stack.
        raise TooLarge("it is nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise Unparsable(str(error)) from error


def list_names(names: Iterable[str]) -> str:
    """Format names for a sentence, in backticks.

    Only the first `MOST_LISTED` names are listed; the others are counted.
    """
    quoted = [f"`{name[:_LONGEST_NAME]}`" for name in names]
    more = len(quoted) - MOST_LISTED
    return ", ".join(quoted[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def get_start_line(node: ast.stmt) -> int:
    """Return the first line of a statement, including decorators."""
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def is_text_constant(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Return whether a node is a constant of type `str` or `bytes`."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def is_same_tree(left: object, right: object) -> bool:
    """Return whether two syntax trees are equal. Works at any depth, unlike a comparison of `ast.dump` output."""
    pending = [(left, right)]
    while pending:
        first, second = pending.pop()
        if first is second:  # This is frequent: the parser shares names, None and contexts between trees.
            continue
        if type(first) is not type(second):
            return False
        if isinstance(first, ast.AST):
            pending += [(getattr(first, name, None), getattr(second, name, None)) for name in first._fields]
        elif isinstance(first, list) and isinstance(second, list):
            if len(first) != len(second):
                return False
            pending += zip(first, second, strict=True)
        elif first != second:
            return False
    return True


def walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Iterate over nodes and all their descendants."""
    return chain.from_iterable(ast.walk(node) for node in nodes)


def walk_scope(nodes: Iterable[ast.AST], *, classes: bool = False) -> Iterator[ast.AST]:
    """Iterate over the nodes of one scope in order.

    Never enters function bodies. Enters class bodies only if `classes` is true.
    """
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(_get_scope_children(node, classes)))


def _get_scope_children(node: ast.AST, classes: bool) -> list[ast.AST]:
    if isinstance(node, Function):
        return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.ClassDef) and not classes:
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, ast.Lambda):
        return []
    return list(ast.iter_child_nodes(node))


def iterate_loaded(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over statements that run at load time. Enters `if`, `try` and `with` statements, but not main guards."""
    pending = list(statements)[::-1]
    while pending:
        node = pending.pop()
        inner: list[ast.stmt] = []
        if isinstance(node, ast.If):
            inner = node.orelse if is_main_guard(node.test) else [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.TryStar):
            handlers = [part for handler in node.handlers for part in handler.body]
            inner = [*node.body, *handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.With):
            inner = node.body
        else:
            yield node
        pending.extend(reversed(inner))


def is_generator(node: Function) -> bool:
    """Return whether a function is a generator."""
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in walk_scope(node.body, classes=True))


def is_main_guard(test: ast.expr) -> bool:
    """Return whether a condition prevents code from running on import."""
    return any(isinstance(part, ast.Name) and part.id in ("__name__", "TYPE_CHECKING") for part in ast.walk(test))


def iterate_bindings(node: ast.AST) -> Iterator[str]:
    """Iterate over the names that a single node binds."""
    if isinstance(node, ast.Name):
        name = None if isinstance(node.ctx, ast.Load) else node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.alias):
        name = (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.MatchMapping):
        name = node.rest
    else:  # definitions, exception handlers, patterns and type parameters
        name = getattr(node, "name", None)
    if isinstance(name, str):
        yield name


def find_bound_names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return all names bound in the nodes, in any scope."""
    return frozenset(name for node in walk(nodes) for name in iterate_bindings(node))


def find_used_names(nodes: Iterable[ast.AST]) -> Mapping[str, None]:
    """Return all names that the nodes read, as keys in order of first use."""
    read = [node for node in walk(nodes) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id: None for node in sorted(read, key=lambda node: (node.lineno, node.col_offset))}


def find_imported_names(node: ast.AST) -> tuple[str, ...]:
    """Return the dotted names that an import statement, or a call of `import_module` or `__import__`, imports.

    For `from a import b`, the name is `a.b`, because `b` may be a module. Returns an empty tuple for relative imports,
    computed names and other nodes.
    """
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return tuple(f"{node.module}.{alias.name}" for alias in node.names)
    if isinstance(node, ast.Call) and get_last_name(node.func) in ("import_module", "__import__"):
        return tuple(part.value for part in node.args[:1] if isinstance(part, ast.Constant) and type(part.value) is str)
    return ()


def find_imported_roots(node: ast.AST) -> tuple[str, ...]:
    """Return the top-level modules of the names that `find_imported_names` returns."""
    return tuple(dict.fromkeys(name.partition(".")[0] for name in find_imported_names(node)))


def get_last_name(node: ast.expr) -> str:
    """Return the last name of a call or attribute, such as `c` for `a.b.c(d)`, or an empty string if there is none."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
