"""Answers a builder's requests for wheels of the user's own folders: an index or a heap of wheels on this machine."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from agent.sandbox.dependencies.dated_pages import JSON_TYPE, dated

FOLDER_HOST = "folders-of-this-machine.invalid"
"""The name under which builders ask for files of the user's folders; it is resolved nowhere."""

_CHUNK = 1 << 16
_WHEELS = (".whl", ".whl.metadata")
_PAGES = (".html",)
_NOT_FOUND = "404 Not Found"


class FolderPages:
    """Shows wheels and pages below some folders: a file as it is, a folder by its `index.html` or as a list of links.

    Below `heaps` it shows wheels alone. Paths are those of this machine, so that relative links from an index to a
    folder next to it hold. `with_dates` is for a pip that is told to leave out what is newer.
    """

    def __init__(self, roots: Iterable[Path], heaps: Iterable[Path] = (), *, with_dates: bool = False) -> None:
        self._roots = tuple(roots)
        self._heaps = tuple(heaps)
        self._with_dates = with_dates

    async def answer(self, method: str, path: str) -> AsyncIterator[bytes]:
        """Yield a whole HTTP response, after which the connection is to be closed."""
        found = await asyncio.to_thread(self._find, path)
        if found is None:
            yield _head(_NOT_FOUND, "text/plain", 0)
            return
        if self._with_dates and isinstance(found, Path) and found.suffix == ".html":
            found = await asyncio.to_thread(found.read_bytes)
        if isinstance(found, bytes):
            found, kind = (dated(found), JSON_TYPE) if self._with_dates else (found, "text/html")
            yield _head("200 OK", kind, len(found))
            if method == "GET":
                yield found
            return
        size = (await asyncio.to_thread(found.stat)).st_size
        yield _head("200 OK", "text/html" if found.suffix == ".html" else "application/octet-stream", size)
        if method == "GET":
            with found.open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    yield chunk

    def _find(self, path: str) -> Path | bytes | None:
        """Return the file that is asked for, the page that lists a folder, or None. Blocks."""
        place = Path(unquote(path.partition("?")[0]))
        if "\0" in str(place) or ".." in place.parts:
            return None
        try:
            if place.is_dir():
                if not _below(place, self._roots):
                    return None
                index = place / "index.html"
                if not index.is_file():
                    return _listing(place)
                place = index
            shown = (*_PAGES, *_WHEELS) if _below(place, self._roots) else _WHEELS
            # a link may have any name
            named = place.name.endswith(shown) and place.resolve().name.endswith(shown)
            return place if named and place.is_file() and _below(place, (*self._roots, *self._heaps)) else None
        except (OSError, RuntimeError):  # links in a circle
            return None


def _below(place: Path, roots: Iterable[Path]) -> bool:
    """Say whether a place is below one of these folders, by its name and in truth: a link may lead anywhere."""
    real = place.resolve()
    return any(place.is_relative_to(root) and real.is_relative_to(root.resolve()) for root in roots)


def _listing(folder: Path) -> bytes:
    entries = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    links = "".join(f'<a href="{html.escape(quote(name))}">{html.escape(name)}</a>\n' for name in entries)
    return f"<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n".encode()


def _head(status: str, kind: str, size: int) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {size}", "Connection: close")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"
