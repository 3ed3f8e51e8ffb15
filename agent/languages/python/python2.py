"""Features of Python 2 that Python 3 lacks: syntax, built-in names, dictionary methods and module attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
        "raise X, value": after.startswith(",") and before.lstrip().startswith("raise"),
        "backticks": after.startswith("`") and not after.startswith("```"),
        "<> operator": after.startswith("<>"),
        "long literal such as 10L": "literal" in message and _LONG.match(after) is not None,
        "ur'' literal": before[-2:].lower() == "ur" and after[:1] in ("'", '"'),
    }
    return next((name for name, present in signs.items() if present), None)
