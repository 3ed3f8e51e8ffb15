"""What a searcher is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent.evaluation.statistics import import_numpy

if TYPE_CHECKING:
    import numpy as np

# Takes what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SearchResult:
    """The codes found for one query, best first: their positions among the codes (int64) and their scores (float64).

    As many as were asked for, with all that tie with the last of these. Codes of which a searcher knows nothing to say
    (no word in common) are not found, rather than found with score 0.
    """

    positions: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]


class Searcher(Protocol):
    """Ranks codes for queries; `index` is called once, before `search`.

    `name` is that on the command line, `settings` what decides the scores (numbers and texts, as JSON takes them),
    `about` one sentence with its source.
    """

    name: str
    about: str
    settings: Mapping[str, Any]

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """Make ready to search these codes.

        Raises:
            ExtraMissing: a library is not installed.
            UsageError: the codes cannot be searched this way, such as with no words at all.
            StorageError: vectors cannot be kept.
            RunStopped: an endpoint refuses or cannot be reached; what was embedded is kept.
        """

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """Yield what is found for each query, in their order.

        Raises:
            StorageError, RunStopped: as `index`.
        """


def report_progress(texts: Sequence[str], what: str, progress: Progress) -> Iterator[str]:
    """Yield texts, telling every thousandth and the last."""
    for number, text in enumerate(texts, 1):
        yield text
        if number % 1000 == 0 or number == len(texts):
            progress(what, number, len(texts))


def select_best_codes(scores: np.ndarray[Any, Any], depth: int, *, above: float = -float("inf")) -> SearchResult:
    """Return the `depth` best of all codes by score, with those that tie with the last, of scores over `above`."""
    np = import_numpy()
    positions = np.flatnonzero(scores > above)
    if len(positions) > depth:
        least = np.partition(scores[positions], len(positions) - depth)[len(positions) - depth]
        positions = positions[scores[positions] >= least]
    positions = positions[np.argsort(-scores[positions], kind="stable")]
    return SearchResult(positions.astype(np.int64), scores[positions].astype(np.float64))
