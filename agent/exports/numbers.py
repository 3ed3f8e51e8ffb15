"""Numbers for equal texts, without holding the texts."""

from __future__ import annotations

from hashlib import blake2b


class Numbers:
    """Gives texts numbers from 0 on, equal texts the same one; of each it holds a hash of 128 bits."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, text: str) -> tuple[int, bool]:
        """Return the number of a text, and whether it is new."""
        digest, before = blake2b(text.encode("utf-8"), digest_size=16).digest(), len(self._numbers)
        number = self._numbers.setdefault(digest, before)
        return number, number == before
