"""Writes the page: one HTML file with its styles, scripts and data in it, which asks for nothing else.

Text of models and datasets is in the page as JSON or as compressed JSON only; scripts put it on the screen as text. The
content security policy names the scripts and styles by their hashes and allows no connection at all; trusted types
forbid the scripts to write markup (browsers that know them: Chromium).
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from agent.datasets.encoding import dumps

ASSETS = Path(__file__).resolve().parent / "assets/report"
_SCRIPTS = ("dom.js", "data.js", "charts.js", "figures.js", "filters.js", "table.js", "story.js", "main.js")
# Of the empty style element that the charting library fills by rules.
_EMPTY = ""
_UNSAFE = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def embedded(value: Any) -> str:
    """Return a value as JSON that can stand in a script element, whatever is in it."""
    return dumps(value).decode("utf-8").translate(_UNSAFE)


def head(title: str, document: Mapping[str, Any], rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yield the page up to what is read first: its frame, the figures' data, the rows, and the page's own script."""
    frame = Template(_asset("report.html"))
    yield frame.substitute(
        title=html.escape("".join(each if each.isprintable() else "\ufffd" for each in title)),
        policy=html.escape(_policy()),
        style=_asset("report.css"),
    )
    yield f'<script type="application/json" id="document">{embedded(document)}</script>\n'
    yield from map(_tag, rows)
    yield f"<script>{_script()}</script>\n"


def tail(pieces: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yield the rest, which is read while the table is there already: the charting library, stories, evidence."""
    yield f"<script>{_asset('plotly-basic.min.js')}</script>\n"
    yield from map(_tag, pieces)
    yield "</body>\n</html>\n"


def _tag(piece: tuple[str, str]) -> str:
    name, content = piece
    return f'<script type="application/octet-stream" id="{name}">{content}</script>\n'


def _policy() -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(_script())} {_hash(_asset('plotly-basic.min.js'))}",
            f"style-src {_hash(_asset('report.css'))} {_hash(_EMPTY)}",
            f"style-src-elem {_hash(_asset('report.css'))} {_hash(_EMPTY)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _script() -> str:
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
