"""Makes a page of links to the user's own files one that pip takes when it is to leave out what is newer.

pip asks an index when each file was uploaded, but exempts files of the machine it runs on. In a builder those come by
HTTP, so they are given a date that is earlier than any that is asked for.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
_LONG_AGO = "1970-01-01T00:00:00Z"


def dated(page: bytes) -> bytes:
    """Return an HTML page's links as a page of JSON (PEP 691), each file dated long ago."""
    links = _Links()
    links.feed(page.decode("utf-8", "replace"))
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "", "files": links.files}).encode()


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[dict[str, object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link."""
        given = dict(attrs)
        href = given.get("href")
        if tag != "a" or not href:
            return
        file: dict[str, object] = {"url": href, "hashes": {}, "upload-time": _LONG_AGO}
        file["filename"] = unquote(urlsplit(href).path.rpartition("/")[2])
        if given.get("data-requires-python"):
            file["requires-python"] = given["data-requires-python"]
        if "data-yanked" in given:
            file["yanked"] = given["data-yanked"] or True
        self.files.append(file)
