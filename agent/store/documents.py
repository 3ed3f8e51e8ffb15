"""JSON documents that are replaced as a whole, and how two of them differ."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps, loads
from agent.store.failures import writing

_NOT_SET = object()
_SHOWN = 40
_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping as it will be when read again: tuples are lists, keys are text.

    Raises:
        TypeError: a value that JSON has no form for.
    """
    result: dict[str, Any] = loads(dumps(dict(value)))
    return result


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted name."""
    leaves: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            leaves.update(flatten(inner, f"{prefix}{name}."))
        else:
            leaves[f"{prefix}{name}"] = inner
    return leaves


def merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Add what is new to nested mappings, in place."""
    for name, value in new.items():
        inner = into.get(name)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            merge(inner, value)
        else:
            into[name] = value


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each leaf that differs, as in `model: 'a' in the folder, 'b' now`."""
    old, new = flatten(before), flatten(now)
    lines = []
    for name in dict.fromkeys((*old, *new)):
        was, is_now = old.get(name, _NOT_SET), new.get(name, _NOT_SET)
        if was != is_now:
            lines.append(f"{name}: {shown(was)} in the folder, {shown(is_now)} now")
    return lines


def shown(value: Any) -> str:
    """Return a value for a message: escaped, and short."""
    text = "not set" if value is _NOT_SET else repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it takes the place of `path` once it is whole and on the disk.

    Raises:
        StorageError: it cannot be written; `path` is as before.
    """
    with writing(path):
        draft = _new_draft(path)
        try:
            yield draft
            _to_disk(draft, os.O_RDWR)
            draft.replace(path)
            _to_disk(path.parent, os.O_RDONLY)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def remove_drafts(folder: Path, names: Collection[str]) -> None:
    """Remove what killed writers of these files left; the caller is their only writer.

    Raises:
        StorageError: one cannot be removed.
    """
    with writing(folder):
        for entry in folder.iterdir():
            found = _DRAFT.fullmatch(entry.name)
            if found is not None and found[1] in names:
                entry.unlink(missing_ok=True)


def _new_draft(path: Path) -> Path:
    """Make an empty file under a name that nobody knows before, with the mode that `path` has or would get."""
    # hidden, and cut so that it is a name wherever that of `path` is one
    draft = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with suppress(FileNotFoundError):
            earlier = path.lstat().st_mode
            if stat.S_ISREG(earlier):
                os.fchmod(descriptor, earlier & 0o777)
    finally:
        os.close(descriptor)
    return draft


def _to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
