"""Defines the interface of searchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from agent.evaluation.lazy_numpy import np
from agent.types import Progress

Item = TypeVar("Item")


@dataclass(frozen=True)
class SearchResult:
    """The snippets retrieved for one query, best first: their positions in the corpus (int64) and scores (float64).

    Contains at most the requested number of snippets, plus all snippets that tie with the last one. Snippets that a
    searcher cannot score (for example, because they share no word with the query) are omitted instead of scoring 0.
    """

    positions: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]


class Searcher(Protocol):
    """Ranks snippets for queries. `index` is called once, before `search`.

    `name` is the name on the command line. `settings` contains the JSON values that determine the scores. `about` is a
    short description that cites the source.
    """

    name: str
    about: str
    settings: Mapping[str, Any]

    def index(self, codes: Sequence[str], progress: Progress) -> None:
        """Index the snippets.

        Raises:
            ExtraMissing: a library is not installed.
            UsageError: the searcher cannot index the snippets, for example because they contain no words.
            StorageError: vectors cannot be stored.
            RunStopped: an endpoint rejects a request or cannot be reached. Vectors computed so far are stored.
        """

    def search(self, queries: Sequence[str], depth: int, progress: Progress) -> Iterator[SearchResult]:
        """Iterate over the results for the queries, in order.

        Raises:
            StorageError, RunStopped: see `index`.
        """


@dataclass(frozen=True)
class Vectors:
    """Vectors that are compared by cosine similarity. They need not have length 1.

    `queries` is a float32 array of shape (queries, dimensions). `read_codes(start, stop)` returns the vectors of
    consecutive snippets as a float32 array of shape (stop - start, dimensions). It raises RunStopped if any is missing.
    """

    queries: np.ndarray[Any, Any]
    read_codes: Callable[[int, int], np.ndarray[Any, Any]]


@runtime_checkable
class CosineSearcher(Searcher, Protocol):
    """A searcher that compares vectors of queries and snippets."""

    def embed(self, codes: Sequence[str], queries: Sequence[str], progress: Progress) -> Vectors:
        """Return the vectors of the snippets and queries. Does not require `index`.

        Raises:
            ExtraMissing, UsageError, StorageError, RunStopped: see `index`.
        """


def report_progress(items: Iterable[Item], step: str, progress: Progress, total: int | None = None) -> Iterator[Item]:
    """Iterate over items. Reports progress after every 1000 items and after the last one.

    `total` is the number of items, which must be passed if `items` has no length.
    """
    total = len(items) if isinstance(items, Sized) else total
    for number, item in enumerate(items, 1):
        yield item
        if number % 1000 == 0 or number == total:
            progress(step, number, total)


def select_best_codes(scores: np.ndarray[Any, Any], depth: int, *, above: float = -float("inf")) -> SearchResult:
    """Return the top `depth` snippets with scores greater than `above`, plus those that tie with the last one."""
    positions = np.flatnonzero(scores > above)
    if len(positions) > depth:
        threshold = np.partition(scores[positions], len(positions) - depth)[len(positions) - depth]
        positions = positions[scores[positions] >= threshold]
    positions = positions[np.argsort(-scores[positions], kind="stable")]
    return SearchResult(positions.astype(np.int64), scores[positions].astype(np.float64))
