"""Parses reports as a browser does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

_DOCUMENT = re.compile(r'<script type="application/json" id="document">(.*?)</script>', re.DOTALL)
_PIECE = re.compile(r'<script type="application/octet-stream" id="([a-z-]+)-(\d+)">([^<]*)</script>')


class ReportPage:
    """A report's text, its document, and the records of each kind of piece."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text("utf-8")
        self.document: dict[str, Any] = json.loads(_DOCUMENT.findall(self.text)[0])
        self.pieces: dict[str, list[list[Any]]] = {}
        for kind, _, piece in _PIECE.findall(self.text):
            self.pieces.setdefault(kind, []).append(json.loads(zlib.decompress(base64.b64decode(piece))))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        rows = (values for piece in self.pieces.get("rows", []) for values in piece)
        return [dict(zip(self.document["columns"], values, strict=True)) for values in rows]

    @property
    def stories(self) -> list[list[dict[str, Any]]]:
        """The stories, in the order of the rows."""
        return [story for piece in self.pieces.get("stories", []) for story in piece]

    def get_evidence(self, row: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return the evidence for a row's label, or None if the page does not contain it."""
        if row["evidence"] is None:
            return None
        kind, piece, place = row["evidence"]
        pieces = self.pieces.get(kind, [])
        steps: list[dict[str, Any]] | None = pieces[piece][place] if piece < len(pieces) else None
        return steps

    def get_figure(self, title: str) -> dict[str, Any]:
        """Return the figure with this title."""
        blocks = [block for section in self.document["sections"] for block in section["blocks"]]
        figure: dict[str, Any] = next(block for block in blocks if block["title"] == title)
        return figure

    @property
    def titles(self) -> list[str]:
        """The titles of the sections."""
        return [section["title"] for section in self.document["sections"]]
