"""What a builder may ask of the egress proxy: a tunnel, or a page of a plain index. Everything else is no request."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

Place = tuple[str, int]
"""A host, as `host_name` spells it, and a port."""

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_.-]{1,253}))(?::([0-9]{1,5}))?")
_PAGE = re.compile(r"http://([^/?#]*)(/[!-~]*)?", re.IGNORECASE)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
# what concerns one connection only, or says where a body ends: requests have none here
_OWN = {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "trailer", "upgrade"}
_BODY = {"content-length", "transfer-encoding"}


class RefusedRequest(Exception):
    """A request that is not carried out; `target` is what it was for, as far as that could be told."""

    def __init__(self, reason: str, target: str) -> None:
        self.target = "".join(character if character.isprintable() else "?" for character in target[:120])
        super().__init__(reason)


@dataclass(frozen=True)
class Request:
    """A request: a tunnel when `method` is CONNECT, else the page `path`. `headers` are lines to be passed on."""

    method: str
    place: Place
    path: str = ""
    headers: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The place as text."""
        return shown(self.place)


def shown(place: Place) -> str:
    """Return a place as `host:port`, as it stands in URLs."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_name(text: str) -> str:
    """Return the one spelling of a host: lower case, ASCII, no trailing dot, addresses in their short form.

    Raises:
        ValueError: it is none.
    """
    if ":" in text:
        return ipaddress.IPv6Address(text).compressed
    return (text if text.isascii() else text.encode("idna").decode("ascii")).lower().removesuffix(".")


def parse(head: bytes) -> Request:
    """Read a request's first line and headers, without the empty line behind them.

    Raises:
        RefusedRequest: it is malformed, or asks for something that is not passed on.
    """
    text = head.decode("latin-1")
    line, *headers = text.split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.partition(" ")
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise RefusedRequest("this is no HTTP request", line)
    passed = tuple(_passed_on(headers, target))
    if method == "CONNECT":
        return Request(method, _place(target, target, None))
    page = _PAGE.fullmatch(target)
    if method not in ("GET", "HEAD") or page is None:
        raise RefusedRequest("only CONNECT, and GET of http:// pages, are passed on", target)
    return Request(method, _place(page[1], target, 80), page[2] or "/", passed)


def _place(authority: str, target: str, port: int | None) -> Place:
    found = _AUTHORITY.fullmatch(authority)
    if found is None or (found[3] is None and port is None):
        raise RefusedRequest("the target is no host and port", target)
    try:
        place = host_name(found[1] or found[2]), int(found[3] or port or 0)
    except ValueError:
        raise RefusedRequest("the target is no host and port", target) from None
    if not 0 < place[1] < 1 << 16:
        raise RefusedRequest("the target is no host and port", target)
    return place


def _passed_on(lines: list[str], target: str) -> list[str]:
    passed = []
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RefusedRequest("a header is malformed", target)
        name = header[1].lower()
        if name in _BODY and header[2].strip() != "0":
            raise RefusedRequest("requests with a body are not passed on", target)
        if name not in _OWN | _BODY:
            passed.append(line)
    return passed
