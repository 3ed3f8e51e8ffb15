"""Features of Python 2 that Python 3 lacks: syntax, built-in names, dictionary methods and module attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

NAMES: Mapping[str, str] = {
    "apply": "def apply(f, args=(), kwargs={}): return f(*args, **kwargs)",
    "basestring": "basestring = str",
    "buffer": "buffer = memoryview",
    "cmp": "def cmp(a, b): return (a > b) - (a < b)",
    "coerce": "a function",
    "execfile": "a function",
    "file": "file = open",
    "intern": "from sys import intern",
    "long": "long = int",
    "raw_input": "raw_input = input",
    "reduce": "from functools import reduce",
    "reload": "from importlib import reload",
    "unichr": "unichr = chr",
    "unicode": "unicode = str",
    "xrange": "xrange = range",
    "StandardError": "StandardError = Exception",
}
"""Python 2's built-in names, with statements that define them in a test program."""

METHODS = frozenset({"has_key", "iteritems", "iterkeys", "itervalues", "viewitems", "viewkeys", "viewvalues"})
"""Methods of dictionaries in Python 2. A test program can define them in a subclass of `dict`."""

ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "itertools": frozenset({"ifilter", "ifilterfalse", "imap", "izip", "izip_longest"}),
    "os": frozenset({"getcwdu", "popen2", "popen3"}),
    "string": frozenset(
        {"atof", "atoi", "join", "joinfields", "letters", "lower", "lowercase", "maketrans", "replace", "split",
         "strip", "upper", "uppercase", "zfill"}
    ),
    "sys": frozenset({"exc_clear", "maxint", "setdefaultencoding"}),
    "types": frozenset(
        {"BooleanType", "ClassType", "DictType", "FileType", "FloatType", "InstanceType", "IntType", "ListType",
         "LongType", "ObjectType", "StringType", "StringTypes", "TupleType", "TypeType", "UnicodeType"}
    ),
    "urllib": frozenset({"quote", "quote_plus", "unquote", "unquote_plus", "urlencode", "urlopen", "urlretrieve"}),
}  # fmt: skip
"""Attributes that only Python 2 has, keyed by module. Python 3 still has the modules, so a program can set them."""

_BY_MESSAGE = (
    ("Missing parentheses in call to 'print'", "print statement"),
    ("Missing parentheses in call to 'exec'", "exec statement"),
    ("multiple exception types must be parenthesized", "except X, e"),
    ("leading zeros in decimal integer literals", "octal literal such as 0777"),
    ("parameters cannot be parenthesized", "tuple parameter"),
    ("inconsistent use of tabs and spaces", "tabs mixed with spaces"),
)
_PORTS: Mapping[str, Callable[[str, str, str], str]] = {
    "print statement": lambda before, at, after: f"{before}{at[:5]}({at[5:]}){after}",
    "exec statement": lambda before, at, after: f"{before}{at[:4]}({at[4:]}){after}",
    "except X, e": lambda before, at, after: f"{before}({at}){after}",
    "octal literal such as 0777": lambda before, at, after: before + (at + after).lstrip("0"),
    "tuple parameter": lambda before, at, after: before + at[1:-1] + after,
    "tabs mixed with spaces": lambda before, at, after: (before + at + after).expandtabs(),
    "raise X, value": lambda before, _, after: f"{before};{after}",
    "backticks": lambda before, _, after: f"{before}({after.replace('`', ')', 1)}",
    "<> operator": lambda before, _, after: f"{before}!={after}",
    "long literal such as 10L": lambda before, at, after: before + re.sub("[lL]", "", at + after, count=1),
    "ur'' literal": lambda before, at, after: before[:-2] + before[-1] + at + after,
}
"""Functions that replace one construct, keyed by its name, given the text before, at and after the error."""

_RAISE = re.compile(r"(^|[;:])\s*raise\b[^;]*$")
_LONG = re.compile(r"[0-9a-fA-F]*[lL]\b")


def name_syntax(error: SyntaxError) -> str | None:
    """Return the name of the Python 2 syntax that caused an error, or None."""
    message = str(error.msg)
    for part, name in _BY_MESSAGE:
        if part in message:
            return name
    if not message.startswith("invalid") or not error.text or not error.offset:
        return None
    before, after = error.text[: error.offset - 1], error.text[error.offset - 1 :]
    signs = {
        "raise X, value": after.startswith(",") and _RAISE.search(before) is not None,
        "backticks": after.startswith("`") and not after.startswith("```"),
        "<> operator": after.startswith("<>"),
        "long literal such as 10L": "literal" in message and _LONG.match(after) is not None,
        "ur'' literal": before[-2:].lower() == "ur" and after[:1] in ("'", '"'),
    }
    return next((name for name, present in signs.items() if present), None)


def port_syntax(code: str, error: SyntaxError) -> str | None:
    """Replace the Python 2 construct that caused an error. Returns None if there is no such construct.

    The result has the syntax of Python 3, but not always the meaning of the original.
    """
    name = name_syntax(error)
    if name is None:
        return None
    start = _find_position(code, error.lineno, error.offset)
    end = max(start, _find_position(code, error.end_lineno, error.end_offset))
    return _PORTS[name](code[:start], code[start:end], code[end:])


def _find_position(code: str, line: int | None, column: int | None) -> int:
    return sum(len(text) + 1 for text in code.split("\n")[: (line or 1) - 1]) + (column or 1) - 1
