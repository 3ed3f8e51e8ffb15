"""Finds near duplicates: MinHash LSH proposes pairs of shingle sets, and their exact Jaccard similarity decides.

A MinHash is divided into `BANDS` bands of `ROWS` values. Two sets with the Jaccard similarity s are compared if a band
is equal, which has the probability 1 − (1 − s^ROWS)^BANDS: .974 at .8, and .9997 at .9.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from agent.errors import ExtraMissing
from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress

THRESHOLD = 0.8
BANDS, ROWS = 12, 6
_TOKEN = re.compile(r"\w+|[^\w\s]")


def shingle_text(text: str) -> frozenset[str]:
    """Return the character trigrams of a text. A shorter text is one shingle."""
    return frozenset(text[start : start + 3] for start in range(max(1, len(text) - 2)))


def shingle_code(code: str) -> frozenset[str]:
    """Return the runs of 5 tokens of code in any language, joined by spaces. Shorter code is one shingle."""
    tokens = _TOKEN.findall(code)
    return frozenset(" ".join(tokens[start : start + 5]) for start in range(max(1, len(tokens) - 4)))


class NearDuplicateIndex:
    """Finds near duplicates among the sets of shingles that were added. Raises `ExtraMissing` without `datasketch`."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self._signer = _Signer()
        self._lsh = self._signer.datasketch.MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
        self._sets: list[bytes] = []

    def find(self, shingles: frozenset[str]) -> int | None:
        """Return the number of the earliest added set that is at least as similar as the threshold.

        Sets are numbered from 0 in the order of `add`. Misses 2.6% of the sets at a similarity of .8, and fewer above.
        """
        packed = _pack(shingles)
        hashes = _unpack(packed)
        numbers = self._lsh.query(self._signer.sign(packed))
        return min(
            (i for i in numbers if _compute_jaccard(hashes, _unpack(self._sets[i])) >= self._threshold), default=None
        )

    def add(self, shingles: frozenset[str]) -> int:
        """Add a set, and return its number."""
        packed, number = _pack(shingles), len(self._sets)
        self._lsh.insert(number, self._signer.sign(packed), check_duplication=False)
        self._sets.append(packed)
        return number


def cluster(codes: Iterable[str], count: int, progress: Progress) -> Sequence[int]:
    """Return the number of the first member of each code's cluster, in the order of the codes, counted from 0.

    The clusters are the connected components of all pairs that have an equal band and a Jaccard similarity of at least
    `THRESHOLD`. Pairs that other pairs connect are not compared, which does not change the components. `count` is the
    number of codes. Keeps hashes in memory, but not the codes. Raises `ExtraMissing` without `datasketch`.
    """
    signer, signatures = _Signer(), bytearray()
    sets: dict[bytes, int] = {}  # equal sets are compared once
    numbers: list[int] = []  # of the set of each code
    first_codes: list[int] = []  # of each set
    for code in codes:
        packed = _pack(shingle_code(code))
        numbers.append(sets.setdefault(packed, len(sets)))
        if len(first_codes) < len(sets):
            first_codes.append(len(numbers) - 1)
            signatures += signer.sign(packed).hashvalues.tobytes()
        if len(numbers) % 1000 == 0 or len(numbers) == count:
            progress("near duplicates", len(numbers), count)
    names = _connect_sets(list(sets), signatures, progress)
    return [first_codes[names[number]] for number in numbers]


def _connect_sets(sets: Sequence[bytes], signatures: bytearray, progress: Progress) -> Sequence[int]:
    np = import_numpy()
    names = list(range(len(sets)))  # a chain of names leads to the lowest number of the component

    def find_name(number: int) -> int:
        while names[number] != number:
            names[number] = number = names[names[number]]
        return number

    bands = np.frombuffer(signatures, dtype=np.uint32).reshape(-1, BANDS, ROWS)
    for band in range(BANDS):
        for bucket in _iterate_buckets(bands[:, band]):
            if len({find_name(number) for number in bucket}) == 1:
                continue
            parts: dict[int, list[frozenset[int]]] = {}
            for number in bucket:
                hashes, name = _unpack(sets[number]), find_name(number)
                parts.setdefault(name, []).append(hashes)
                for other in [other for other in parts if other != name]:
                    if any(_compute_jaccard(hashes, member) >= THRESHOLD for member in parts[other]):
                        name, last = sorted((name, other))
                        names[last] = name
                        parts[name] += parts.pop(last)
        progress("clusters", band + 1, BANDS)
    return [find_name(number) for number in range(len(sets))]


def _iterate_buckets(band: Any) -> Iterator[Sequence[int]]:
    """Iterate over the numbers of the rows that are equal, in groups of two or more."""
    np = import_numpy()
    _, groups, sizes = np.unique(band, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(groups.ravel(), kind="stable")
    for end, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        if size > 1:
            yield order[end - size : end].tolist()


class _Signer:
    def __init__(self) -> None:
        try:
            import datasketch
        except ImportError as error:
            raise ExtraMissing("corpus", error) from error
        self.datasketch = datasketch
        self._minhash = datasketch.MinHash(num_perm=BANDS * ROWS, hashfunc=int)

    def sign(self, packed: bytes) -> Any:
        """Return the MinHash of packed shingles. The next call overwrites it."""
        self._minhash.clear()
        self._minhash.update_batch(import_numpy().frombuffer(packed, dtype="<u4")[::2].tolist())
        return self._minhash


def _pack(shingles: Iterable[str]) -> bytes:
    """Return the sorted 64-bit hashes of shingles. They are equal in every process."""
    return b"".join(sorted(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in shingles))


def _unpack(packed: bytes) -> frozenset[int]:
    return frozenset(import_numpy().frombuffer(packed, dtype="<u8").tolist())


def _compute_jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if first or second else 1.0
