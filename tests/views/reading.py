"""Reads a report again, as a browser would."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

_DOCUMENT = re.compile(r'<script type="application/json" id="document">(.*?)</script>', re.DOTALL)
_PIECE = re.compile(r'<script type="application/octet-stream" id="([a-z-]+)-(\d+)">([^<]*)</script>')


class Read:
    """A report's text, its document, and the records of each kind of piece."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text("utf-8")
        self.document: dict[str, Any] = json.loads(_DOCUMENT.findall(self.text)[0])
        self.pieces: dict[str, list[list[Any]]] = {}
        for kind, _, packed in _PIECE.findall(self.text):
            self.pieces.setdefault(kind, []).append(json.loads(zlib.decompress(base64.b64decode(packed))))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        listed = (values for piece in self.pieces.get("rows", []) for values in piece)
        return [dict(zip(self.document["columns"], values, strict=True)) for values in listed]

    @property
    def stories(self) -> list[list[dict[str, Any]]]:
        """The stories, in the order of the rows."""
        return [story for piece in self.pieces.get("stories", []) for story in piece]

    def evidence(self, row: dict[str, Any]) -> list[dict[str, Any]] | None:
        """What led to a row's label, None when it is not in the page."""
        if row["evidence"] is None:
            return None
        kind, piece, place = row["evidence"]
        pieces = self.pieces.get(kind, [])
        found: list[dict[str, Any]] | None = pieces[piece][place] if piece < len(pieces) else None
        return found

    def block(self, title: str) -> dict[str, Any]:
        """The figure of this title."""
        blocks = [block for section in self.document["sections"] for block in section["blocks"]]
        found: dict[str, Any] = next(block for block in blocks if block["title"] == title)
        return found

    @property
    def titles(self) -> list[str]:
        """The titles of the sections."""
        return [section["title"] for section in self.document["sections"]]
