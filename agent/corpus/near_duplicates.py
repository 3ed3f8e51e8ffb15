"""Finds near duplicates: MinHash LSH proposes pairs of shingle sets, and their exact Jaccard similarity decides.

A MinHash is divided into `BANDS` bands of `ROWS` values. Two sets with the Jaccard similarity s are compared if a band
is equal, which has the probability 1 − (1 − s^ROWS)^BANDS: .981 at .8, and .9999 at .9.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from agent.errors import needs_extra
from agent.evaluation.lazy_numpy import np
from agent.types import Progress

THRESHOLD = 0.8
BANDS = 10
ROWS = 5
TOKEN = re.compile(r"\w+|[^\w\s]")


def shingle_text(text: str) -> frozenset[str]:
    """Return the character trigrams of a text. A shorter text is one shingle."""
    return frozenset(text[start : start + 3] for start in range(max(1, len(text) - 2)))


def shingle_query(query: str) -> frozenset[str]:
    """Return the character trigrams of a query in lower case with single spaces."""
    return shingle_text(" ".join(query.lower().split()))


def shingle_code(code: str) -> frozenset[str]:
    """Return the runs of 5 tokens of code in any language, joined by spaces. Shorter code is one shingle."""
    tokens = TOKEN.findall(code)
    return frozenset(" ".join(tokens[start : start + 5]) for start in range(max(1, len(tokens) - 4)))


class NearDuplicateIndex:
    """Finds near duplicates among the sets of shingles that were added.

    Raises:
        ExtraMissing: `datasketch` is not installed.
    """

    def __init__(self) -> None:
        self._signer = _Signer()
        self._lsh = self._signer.datasketch.MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
        self._sets: list[bytes] = []

    def find(self, shingles: frozenset[str]) -> int | None:
        """Return the number of the earliest set that `find_all` finds."""
        return next(self.find_all(shingles), None)

    def find_all(self, shingles: frozenset[str]) -> Iterator[int]:
        """Iterate over the numbers of the sets with a Jaccard similarity of at least `THRESHOLD`, in ascending order.

        Misses about 2% of the sets at that similarity, and fewer above.
        """
        packed = _pack(shingles)
        numbers = sorted(self._lsh.query(self._signer.sign(packed)))
        find_similar = _make_comparer([*(self._sets[number] for number in numbers), packed])
        return (numbers[i] for i in find_similar(len(numbers)) if i < len(numbers))

    def add(self, shingles: frozenset[str]) -> int:
        """Add a set of one or more shingles, and return its number, counted from 0."""
        self._sets.append(_pack(shingles))
        self._lsh.insert(len(self._sets) - 1, self._signer.sign(self._sets[-1]), check_duplication=False)
        return len(self._sets) - 1


def cluster(
    codes: Iterable[str], count: int, progress: Progress, shingle: Callable[[str], frozenset[str]] = shingle_code
) -> Sequence[int]:
    """Return the number of the first member of each snippet's cluster, in the order of the snippets, counted from 0.

    The clusters are the connected components of all pairs that have an equal band and a Jaccard similarity of at least
    `THRESHOLD`. Pairs that other pairs connect are not compared, which does not change the components. `count` is the
    number of snippets. With another `shingle` function, clusters other texts. Keeps only hashes in memory.

    Raises:
        ExtraMissing: `datasketch` is not installed.
    """
    signer = _Signer()
    signatures = bytearray()
    sets: dict[bytes, int] = {}  # equal sets are compared once
    numbers: list[int] = []  # of the set of each snippet
    first_codes: list[int] = []  # of each set
    for code in codes:
        packed = _pack(shingle(code))
        numbers.append(sets.setdefault(packed, len(sets)))
        if len(first_codes) < len(sets):
            first_codes.append(len(numbers) - 1)
            signatures += signer.sign(packed).hashvalues.tobytes()
        if len(numbers) % 1000 == 0 or len(numbers) == count:
            progress("near duplicates", len(numbers), count)
    names = _connect_sets(list(sets), signatures, progress)
    return [first_codes[names[number]] for number in numbers]


def _connect_sets(sets: Sequence[bytes], signatures: bytearray, progress: Progress) -> Sequence[int]:
    names = list(range(len(sets)))  # a chain of names leads to the lowest number of the component

    def find_name(number: int) -> int:
        while names[number] != number:
            names[number] = number = names[names[number]]
        return number

    bands = np.frombuffer(signatures, dtype="=u4").reshape(-1, BANDS, ROWS)
    for band in range(BANDS):
        for bucket in _group_rows(bands[:, band]):
            if len({find_name(number) for number in bucket}) == 1:
                continue
            find_similar = _make_comparer([sets[number] for number in bucket])
            for position, number in enumerate(bucket):
                # a pair of two skipped members is connected; any other pair is compared
                if position == 0 or find_name(number) != find_name(bucket[0]):
                    for other in find_similar(position):
                        low, high = sorted((find_name(number), find_name(bucket[other])))
                        names[high] = low
        progress("clusters", band + 1, BANDS)
    return [find_name(number) for number in range(len(sets))]


def _make_comparer(sets: Sequence[bytes]) -> Callable[[int], Iterator[int]]:
    """Return a function that finds the positions of the sets that are similar to the set at a position."""
    sizes = np.array([len(packed) // 8 for packed in sets])
    owners = np.repeat(np.arange(len(sets)), sizes)
    _, ids = np.unique(np.frombuffer(b"".join(sets), dtype="<u8"), return_inverse=True)

    def find_similar(position: int) -> Iterator[int]:
        is_shared = np.zeros(len(ids), dtype=bool)
        is_shared[ids[owners == position]] = True
        shared = np.bincount(owners[is_shared[ids]], minlength=len(sets))
        yield from np.flatnonzero(shared / (sizes + sizes[position] - shared) >= THRESHOLD).tolist()

    return find_similar


def _group_rows(band: Any) -> list[list[int]]:
    groups = defaultdict[bytes, list[int]](list)
    for number, values in enumerate(band):
        groups[values.tobytes()].append(number)
    return [group for group in groups.values() if len(group) > 1]


class _Signer:
    def __init__(self) -> None:
        with needs_extra("corpus"):
            import datasketch
        self.datasketch = datasketch
        self._minhash = datasketch.MinHash(num_perm=BANDS * ROWS, hashfunc=int)

    def sign(self, packed: bytes) -> Any:
        """Return the MinHash of packed shingles, which the next call overwrites."""
        self._minhash.clear()
        self._minhash.update_batch(np.frombuffer(packed, dtype="<u4")[::2].tolist())
        return self._minhash


def _pack(shingles: Iterable[str]) -> bytes:
    """Return the sorted 64-bit hashes of shingles. They are equal in every process."""
    return b"".join(sorted(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in shingles))
