"""Recognise syntax of later versions of Python by the errors of the Python that runs this package."""

from __future__ import annotations

import re
import sys

_CONTEXT = 200  # characters, because patterns take quadratic time
_F_STRING = "nested quotes, backslashes or comments in an f-string"
_SYNTAX = tuple(
    (version, name, re.compile(pattern, re.IGNORECASE))
    for version, name, pattern in (
        ((3, 12), "type parameters", r"\b(?:def|class)\s+\w+\s*\0\["),
        ((3, 12), "type statement", r"(?:^|[;:\n])\s*type\s+\0\w+\s*[\[=]"),
        ((3, 12), _F_STRING, r"^f-string(?:: (?:expecting '}'|unmatched|expressions nested)| expression part cannot)"),
        ((3, 12), _F_STRING, r"""\b(?:f|rf|fr)(["'])(?:(?!\1).)*\{(?:(?!\1)[^}])*\1\\?\0"""),
        ((3, 12), _F_STRING, r"""^unterminated string.*\n.*\0(?:f|rf|fr)["'].*\{"""),
        ((3, 13), "defaults of type parameters", r"\b(?:def|class)\s+\w+\s*\0?\[[^\]]*="),
        # in Python 2, the second name is a variable, which usually starts with a lower-case letter
        ((3, 14), "except A, B", r"^multiple exception.*\n.*\0[\w.]+\s*,\s*(?:[\w.]+[,.].*|(?-i:[A-Z])\w*)\s*:"),
        ((3, 14), "template string", r"""(?<!\w)(?:t|rt|tr)\0["']"""),
    )
    if sys.version_info < version
)
"""Patterns for the message of an error, a newline, and the line with a null character at the error's position."""


def name_syntax(error: SyntaxError) -> str | None:
    """Return the newer syntax that may have caused an error, with the first version that has it, or None.

    This is a guess, because broken code may cause the same errors.
    """
    text, start = error.text or "", max(0, (error.offset or 1) - 1)
    marked = f"{error.msg}\n{text[max(0, start - _CONTEXT) : start]}\0{text[start : start + _CONTEXT]}"
    found = ((version, name) for version, name, pattern in _SYNTAX if pattern.search(marked))
    return next((f"{name} (Python {major}.{minor})" for (major, minor), name in found), None)
