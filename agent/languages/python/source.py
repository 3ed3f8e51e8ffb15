"""Reads Python source that may be hostile: bounded in size and depth, and saying plainly what is wrong with it.

Syntax trees are walked without recursion: hostile code is nested as deep as the parser lets it.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TypeGuard

from agent.languages.python import python2

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MAX_CHARACTERS = 100_000
"""Longer texts are not parsed: dense code of this size already takes 0.4 s and 60 MB."""

MOST_LISTED = 10
"""Names that one sentence lists; a longer list helps nobody."""

_LONGEST_NAME = 60
_WARNING_FILTERS = threading.Lock()
_NEEDS_FUNCTION = re.compile(r"outside (async )?function|outside loop|not properly in loop")
_DEFINITION = re.compile(r"(async\s+def|def|class|import|from)\b|@")
_WORDS_OF_ONE_LINE = 8


class Unparsable(ValueError):
    """Source that is not Python of this version; `line` (1-based) is where, when known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(reason if line is None else f"{reason}, line {line}")


class TooLarge(Unparsable):
    """Source beyond what is read here; a Python may well run it."""


def normalise(text: str) -> str:
    """Return the text without byte-order mark and with `\\n` as its only newline. Idempotent."""
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def parse(code: str, limit: int = MAX_CHARACTERS) -> ast.Module:
    """Return the syntax tree of normalised source of at most `limit` characters.

    Raises:
        TooLarge: it is too long or too deeply nested.
        Unparsable: it is not Python.
    """
    if len(code) > limit:
        raise TooLarge(f"it has {len(code):,} characters; at most {limit:,} are read")
    with _plain_errors(code):
        return ast.parse(code)


def check_compiles(tree: ast.Module) -> None:
    """Raise `Unparsable` for what only the compiler refuses, such as a `return` outside of a function."""
    with _plain_errors():
        compile(tree, "<program>", "exec", dont_inherit=True)


def fragment_reason(code: str) -> str | None:
    """Say why code compiles only inside a function or loop; None when it does as a module; else raise `Unparsable`."""
    try:
        check_compiles(parse(code))
    except Unparsable as error:
        if not _NEEDS_FUNCTION.search(error.reason):
            raise
        check_compiles(_in_loop_in_function(parse(code).body))
        return error.reason
    return None


def _in_loop_in_function(statements: list[ast.stmt]) -> ast.Module:
    module = ast.parse("async def fragment():\n    while True:\n        pass")
    loop = next(node for node in ast.walk(module) if isinstance(node, ast.While))
    loop.body = statements
    return module


def newlines_lost(code: str) -> bool:
    """Say whether the code is one line that begins a definition or import and cannot be Python as one line."""
    text = code.strip()
    if "\n" in text or "\r" in text or not _DEFINITION.match(text) or len(text.split()) <= _WORDS_OF_ONE_LINE:
        return False
    try:
        with _quiet():
            ast.parse(text[:MAX_CHARACTERS])
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True
    return False


def syntax_reason(error: SyntaxError, code: str) -> str:
    """Say what is wrong with code, in terms of what may have happened to it where that is plain."""
    message = str(error.msg)
    if newlines_lost(code):
        return f"its newlines are lost ({message})"
    if older := python2.syntax(error):
        return f"Python 2 syntax: {older} ({message})"
    if isinstance(error, IndentationError) and not "".join(code.split("\n")[: (error.lineno or 1) - 1]).strip():
        return f"it is indented as a whole ({message})"
    return message


@contextmanager
def _quiet() -> Iterator[None]:
    # The filters belong to the whole process: two threads that swap them at once would leave them changed.
    with _WARNING_FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _plain_errors(code: str = "") -> Iterator[None]:
    try:
        with _quiet():
            yield
    except SyntaxError as error:
        raise Unparsable(syntax_reason(error, code), error.lineno) from error
    except UnicodeEncodeError as error:
        raise Unparsable("it holds lone surrogates, which no source file can hold") from error
    except (RecursionError, MemoryError) as error:
        # How deep is too deep depends on the version, and on how deep the caller stands.
        raise TooLarge("it is nested deeper than is read") from error
    except (ValueError, OverflowError) as error:
        raise Unparsable(str(error)) from error


def list_names(names: Iterable[str]) -> str:
    """Return names for a sentence, each in backticks. Beyond `MOST_LISTED`, only count them."""
    every = [f"`{name[:_LONGEST_NAME]}`" for name in names]
    more = len(every) - MOST_LISTED
    return ", ".join(every[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def start_line(node: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Say whether a node is a constant text or bytes."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def same_tree(left: object, right: object) -> bool:
    """Compare syntax trees as `ast.dump` would, at any depth."""
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif isinstance(one, ast.AST):
            pending.extend((getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
        elif one != other:
            return False
    return True


def walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes and all below them."""
    return chain.from_iterable(ast.walk(node) for node in nodes)


def walk_scope(nodes: Iterable[ast.AST], *, classes: bool = False) -> Iterator[ast.AST]:
    """Yield nodes of one scope, in order: functions (and classes, unless asked for) are yielded but not entered."""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(_of_this_scope(node, classes)))


def _of_this_scope(node: ast.AST, classes: bool) -> list[ast.AST]:
    if isinstance(node, Function):
        return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.ClassDef) and not classes:
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, ast.Lambda):
        return []
    return list(ast.iter_child_nodes(node))


def loaded(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs when these statements are loaded, compound ones taken apart; never what a main guard keeps."""
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


def yields(node: Function) -> bool:
    """Say whether a function is a generator."""
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in walk_scope(node.body, classes=True))


def is_main_guard(test: ast.expr) -> bool:
    """Say whether a condition keeps code from running where it is imported."""
    return any(isinstance(part, ast.Name) and part.id in ("__name__", "TYPE_CHECKING") for part in ast.walk(test))


def bindings(node: ast.AST) -> Iterator[str]:
    """Yield the names that a single node binds."""
    if isinstance(node, ast.Name):
        name = None if isinstance(node.ctx, ast.Load) else node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.alias):
        name = (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.MatchMapping):
        name = node.rest
    else:  # definitions, handlers of exceptions, patterns and type parameters
        name = getattr(node, "name", None)
    if isinstance(name, str):
        yield name


def names_bound(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return every name that is bound anywhere in the nodes, in whatever scope."""
    return frozenset(name for node in walk(nodes) for name in bindings(node))


def names_used(nodes: Iterable[ast.AST]) -> Mapping[str, None]:
    """Return the names that are read anywhere in the nodes, in order of first use, as keys."""
    read = [node for node in walk(nodes) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id: None for node in sorted(read, key=lambda node: (node.lineno, node.col_offset))}


def roots_imported(node: ast.AST) -> tuple[str, ...]:
    """Return the top-level modules that an import statement names; none for relative imports and other nodes."""
    if isinstance(node, ast.Import):
        return tuple(alias.name.partition(".")[0] for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return (node.module.partition(".")[0],)
    return ()


def last_name(node: ast.expr) -> str:
    """Return the last name of what is called or read: `c` of `a.b.c(d)`; empty where there is none."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
