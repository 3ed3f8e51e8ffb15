"""Assembles pages: the report as one self-contained HTML file, and the parts of the review page.

Text from models and datasets is embedded only as JSON, and scripts display it as plain text. The report's content
security policy lists the hashes of the page's scripts and styles, and it allows no connections. In browsers that
support Trusted Types (such as Chromium), scripts cannot write markup.
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
_CHART_LIBRARY = "plotly-basic.min.js"
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
# Plotly creates an empty style element and adds rules to it, so the policy allows empty styles.
_EMPTY_STYLE = ""
_UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def embed_json(value: Any) -> str:
    """Return a value as JSON that is safe inside a script element."""
    return dumps(value).decode("utf-8").translate(_UNSAFE)


def render_head(title: str, document: Mapping[str, Any], rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Iterate over the parts that the browser needs first: the HTML frame, figures, rows and the page's own scripts."""
    yield Template(_load_asset("report.html")).substitute(
        title=html.escape("".join(character if character.isprintable() else "\ufffd" for character in title)),
        policy=html.escape(_build_policy()),
        style=_load_style("report.css"),
    )
    yield f'<script type="application/json" id="document">{embed_json(document)}</script>\n'
    yield from map(_render_piece, rows)
    yield f"<script>{_join_scripts(_REPORT_SCRIPTS)}</script>\n"


def render_tail(pieces: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Iterate over the other parts, which load while the table is already visible: Plotly, stories and evidence."""
    yield f"<script>{_load_asset(_CHART_LIBRARY)}</script>\n"
    yield from map(_render_piece, pieces)
    yield "</body>\n</html>\n"


def load_review_parts() -> dict[str, tuple[str, str]]:
    """Map the name of each part of the review page to the part's media type and content."""
    return {
        "": ("text/html", _load_asset("review.html")),
        "review.css": ("text/css", _load_style("review.css")),
        "review.js": ("text/javascript", _join_scripts(_REVIEW_SCRIPTS)),
    }


def _render_piece(piece: tuple[str, str]) -> str:
    name, content = piece
    return f'<script type="application/octet-stream" id="{name}">{content}</script>\n'


def _build_policy() -> str:
    style = f"{_hash_text(_load_style('report.css'))} {_hash_text(_EMPTY_STYLE)}"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_text(_join_scripts(_REPORT_SCRIPTS))} {_hash_text(_load_asset(_CHART_LIBRARY))}",
            f"style-src {style}",
            f"style-src-elem {style}",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        )
    )


def _hash_text(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _join_scripts(names: tuple[str, ...]) -> str:
    parts = "\n".join(_load_asset(name) for name in names)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _load_style(name: str) -> str:
    return _load_asset("base.css") + _load_asset(name)


@cache
def _load_asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
