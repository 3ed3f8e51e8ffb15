"""Puts pages together: the report as one HTML file that asks for nothing else, and the parts of the review page.

Text of models and datasets is in a page as JSON only; scripts put it on the screen as text. The report's content
security policy names its scripts and styles by their hashes and allows no connection at all; trusted types forbid the
scripts to write markup (browsers that know them: Chromium).
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

ASSETS = Path(__file__).resolve().parent / "assets"
_LIBRARY = "plotly-basic.min.js"
_REPORT_SCRIPTS = (
    "dom.js",
    "story.js",
    "report_data.js",
    "report_charts.js",
    "report_table.js",
    "report_view.js",
    "report.js",
)
_REVIEW_SCRIPTS = ("dom.js", "story.js", "review_drafts.js", "review.js")
# Of the empty style element that the charting library fills by rules.
_EMPTY = ""
_UNSAFE = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def embedded(value: Any) -> str:
    """Return a value as JSON that can stand in a script element, whatever is in it."""
    return dumps(value).decode("utf-8").translate(_UNSAFE)


def head(title: str, document: Mapping[str, Any], rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yield the report up to what is read first: its frame, the figures' data, the rows, and the page's own script."""
    yield Template(_asset("report.html")).substitute(
        title=html.escape("".join(each if each.isprintable() else "\ufffd" for each in title)),
        policy=html.escape(_policy()),
        style=_style("report.css"),
    )
    yield f'<script type="application/json" id="document">{embedded(document)}</script>\n'
    yield from map(_tag, rows)
    yield f"<script>{_script(_REPORT_SCRIPTS)}</script>\n"


def tail(pieces: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yield the rest, which is read while the table is there already: the charting library, stories, evidence."""
    yield f"<script>{_asset(_LIBRARY)}</script>\n"
    yield from map(_tag, pieces)
    yield "</body>\n</html>\n"


def review_parts() -> dict[str, tuple[str, str]]:
    """Return the parts of the review page by their names: media type and content."""
    return {
        "": ("text/html", _asset("review.html")),
        "review.css": ("text/css", _style("review.css")),
        "review.js": ("text/javascript", _script(_REVIEW_SCRIPTS)),
    }


def _tag(piece: tuple[str, str]) -> str:
    name, content = piece
    return f'<script type="application/octet-stream" id="{name}">{content}</script>\n'


def _policy() -> str:
    style = f"{_hash(_style('report.css'))} {_hash(_EMPTY)}"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(_script(_REPORT_SCRIPTS))} {_hash(_asset(_LIBRARY))}",
            f"style-src {style}",
            f"style-src-elem {style}",
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
def _script(names: tuple[str, ...]) -> str:
    parts = "\n".join(_asset(name) for name in names)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _style(name: str) -> str:
    return _asset("base.css") + _asset(name)


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
