"""Reads Python source that may be hostile: bounded in size and depth, and saying plainly what is wrong with it."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from agent.languages.python import python2

MAX_CHARACTERS = 100_000
"""Longer texts are not parsed: dense code of this size already takes 0.4 s and 60 MB."""

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
    """Find the errors that only the compiler sees, such as a `return` outside of a function.

    Raises:
        TooLarge: it is too deeply nested.
        Unparsable: it does not compile.
    """
    with _plain_errors():
        compile(tree, "<program>", "exec", dont_inherit=True)


def fragment_reason(code: str) -> str | None:
    """Say why parsable code compiles only inside a function or loop; None when it compiles as a module.

    Raises:
        TooLarge: it is too long or too deeply nested.
        Unparsable: it compiles nowhere.
    """
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
    older = python2.syntax(error)
    if older is not None:
        return f"Python 2 syntax: {older} ({message})"
    if isinstance(error, IndentationError) and not code[: _offset(code, error.lineno or 1)].strip():
        return f"it is indented as a whole ({message})"
    return message


def _offset(code: str, line: int) -> int:
    return sum(len(text) + 1 for text in code.split("\n")[: line - 1])


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
