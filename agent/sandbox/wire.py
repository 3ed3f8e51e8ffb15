"""The bytes between a sandbox's supervisor and the host: frames of packed fields, and the harness's report in them.

Everything read here is hostile until it is parsed: sizes are checked before anything is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agent.sandbox.base import Frame, Record

MAX_FRAME = 1 << 20
MAX_REQUEST = 64 << 20
_HEADER = 5
_FIXED = 6
_LINE = re.compile(r"\d{1,9}", re.ASCII)


class MalformedFrame(ValueError):
    """The bytes are not what a supervisor sends."""


def pack(fields: Iterable[str]) -> bytes:
    """Return fields one after another, each behind its length (4 bytes, big endian)."""
    encoded = (field.encode("utf-8", "surrogatepass") for field in fields)
    return b"".join(len(data).to_bytes(4, "big") + data for data in encoded)


def unpack(payload: bytes) -> list[str]:
    """Return packed fields, undecodable bytes replaced.

    Raises:
        MalformedFrame: a length points beyond the payload.
    """
    fields, at = [], 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        if at + 4 > len(payload) or end > len(payload):
            raise MalformedFrame("a field is longer than its frame")
        fields.append(payload[at + 4 : end].decode("utf-8", "replace"))
        at = end
    return fields


def frame(kind: bytes, payload: bytes) -> bytes:
    """Return a frame: a type byte, the payload's length, the payload."""
    return kind + len(payload).to_bytes(4, "big") + payload


class FrameReader:
    """Takes frames out of a stream of bytes that come in chunks of any size."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames that are complete, as type and payload.

        Raises:
            MalformedFrame: a frame says it is longer than any may be.
        """
        self._data += data
        while len(self._data) >= _HEADER:
            size = int.from_bytes(self._data[1:_HEADER], "big")
            if size > MAX_FRAME:
                raise MalformedFrame(f"a frame of {size} bytes")
            if len(self._data) < _HEADER + size:
                return
            kind, payload = bytes(self._data[:1]), bytes(self._data[_HEADER : _HEADER + size])
            del self._data[: _HEADER + size]
            yield kind, payload


def read_report(data: bytes, nonce: str, *, cut: bool = False) -> tuple[Record, ...]:
    """Return the records of a harness's report; what is not signed with the run's nonce is tampering.

    `cut` says that the report may end within a record: its writer was killed, or it was too long to be relayed.
    """
    records, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if cut and (at + 4 > len(data) or end > len(data)):
            break
        try:
            if end > len(data):
                raise MalformedFrame("the report ends within a record")
            records.append(_record(unpack(data[at + 4 : end]), nonce))
        except MalformedFrame as error:
            records.append(Record("tamper", message=f"not a report of this run's harness: {error}"))
            break
        at = end
    return tuple(records)


def _record(fields: list[str], nonce: str) -> Record:
    if len(fields) < _FIXED or fields[0] != nonce:
        raise MalformedFrame("a record without the run's nonce")
    _, kind, name, outcome, error_type, message, *rest = fields
    lines = [int(line) if _LINE.fullmatch(line) else 0 for line in rest[1::3]]
    frames = tuple(Frame(*parts) for parts in zip(rest[::3], lines, rest[2::3], strict=False))
    return Record(kind, name, outcome, error_type, message, frames)
