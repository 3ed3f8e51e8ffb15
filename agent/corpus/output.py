"""Writes the results of `agent corpus`: a file of kept items, and a file that lists the removed items with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from agent.datasets.encoding import dumps
from agent.errors import InputError
from agent.runs.store.files import replacing


def get_removed_path(out: Path) -> Path:
    """Return the path of the list of removed items: `codes.removed.jsonl` for `codes.jsonl`."""
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.removed.jsonl")


class CorpusWriter:
    """Writes items as JSON lines. `kept` counts the kept items, and `removed` counts the removed items by reason.

    An item that is nested too deeply raises an `InputError`.
    """

    def __init__(self, kept: IO[bytes], removed: IO[bytes]) -> None:
        self._kept_file = kept
        self._removed_file = removed
        self.kept = 0
        self.removed: Counter[str] = Counter()

    def keep(self, item: Mapping[str, Any]) -> None:
        """Write a kept item."""
        self._kept_file.write(_encode(item))
        self.kept += 1

    def remove(self, reason: str, item: Mapping[str, Any]) -> None:
        """Write a removed item. Its `removed_by` field contains the reason."""
        self._removed_file.write(_encode({"removed_by": reason, **item}))
        self.removed[reason] += 1


def _encode(item: Mapping[str, Any]) -> bytes:
    try:
        return dumps(item) + b"\n"
    except ValueError as error:
        raise InputError(f"item {item.get('id')!r:.80} is {error}. Remove it from the input") from error


@contextmanager
def open_output(out: Path) -> Iterator[CorpusWriter]:
    """Open the two files for writing. Both replace earlier versions only if the block succeeds.

    The folder must exist.

    Raises:
        StorageError: a file cannot be written. The earlier versions are kept.
    """
    removed = get_removed_path(out)
    with (
        replacing(removed) as removed_draft,
        replacing(out) as draft,
        draft.open("wb") as kept_file,
        removed_draft.open("wb") as removed_file,
    ):
        yield CorpusWriter(kept_file, removed_file)
