"""Reads of a wheel what the host must know of it; nothing of it is believed, and little of it is held at once."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.errors import DependencyUnavailable

_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_METADATA_LIMIT = 4 << 20
_DIRECTORY_LIMIT = 8 << 20
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError, OverflowError),
)


@dataclass(frozen=True)
class Room:
    """What the wheels of one environment may take once they are installed: bytes, and files with their folders.

    `memory` (bytes) is for each process that downloads or installs them.
    """

    size: int = 4 << 30
    files: int = 200_000
    memory: int = 2 << 30


ROOM = Room()
"""Room enough for the largest sets of scientific packages."""


class _Careful(io.FileIO):
    """A file of which no more than a zip's directory may be is read at once, whatever the zip says of its length."""

    def read(self, size: int | None = -1) -> bytes:
        """Read so many bytes, or what is left.

        Raises:
            BadZipFile: that is more than any wheel's directory takes.
        """
        wanted = -1 if size is None else size
        data = super().read(_DIRECTORY_LIMIT + 1 if wanted < 0 else min(wanted, _DIRECTORY_LIMIT + 1))
        if len(data) > _DIRECTORY_LIMIT:
            raise zipfile.BadZipFile("its directory is too large")
        return data


def metadata(wheel: Path) -> str:
    """Return the text of a wheel's METADATA.

    Raises:
        DependencyUnavailable: the wheel is damaged, or its metadata is not what packers make.
    """
    with _opened(wheel) as archive:
        found = [entry for entry in archive.infolist() if _METADATA.fullmatch(entry.filename)]
        if len(found) != 1 or max(found[0].file_size, found[0].compress_size) > _METADATA_LIMIT:
            raise DependencyUnavailable(f"{wheel.name}: it has no usable metadata")
        # bzip2 and LZMA unpack to gigabytes in one step, however little is asked for
        if found[0].compress_type not in _BOUNDED:
            raise DependencyUnavailable(f"{wheel.name}: its metadata is packed in a way that wheels are not")
        with archive.open(found[0]) as file:
            content = file.read(_METADATA_LIMIT + 1)
    if len(content) > _METADATA_LIMIT:
        raise DependencyUnavailable(f"{wheel.name}: it has no usable metadata")
    return content.decode("utf-8", "replace")


def check_room(wheels: Sequence[Path], room: Room) -> None:
    """Add up what wheels say they take when they are installed.

    Raises:
        DependencyUnavailable: it is more than there is room for, or a wheel is damaged.
    """
    size = files = 0
    for wheel in wheels:
        with _opened(wheel) as archive:
            entries = archive.infolist()
        files += len(entries)
        size += sum(entry.file_size for entry in entries)
        if size > room.size:
            took = f"at least {size} bytes, and {room.size} are allowed"
            raise DependencyUnavailable(f"{wheel.name}: with it the environment takes {took}")
        if files > room.files:
            took = f"at least {files} files, and {room.files} are allowed"
            raise DependencyUnavailable(f"{wheel.name}: with it the environment takes {took}")


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with _Careful(wheel) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except _DAMAGE as error:
        raise DependencyUnavailable(f"{wheel.name}: the wheel is damaged ({type(error).__name__})") from error
