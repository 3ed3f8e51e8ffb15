"""Goes through a run once: figures, and what the page carries along of each pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from agent.store.run_view import RunView
from agent.types import Pair
from agent.views.archive import Shelf, Spool, is_full
from agent.views.document import Figures
from agent.views.figures.base import Seen, as_one
from agent.views.records import SharedTexts, evidence, row, story

Kept = Literal["all", "tested", "none"]
Progress = Callable[[int, int], None]

# A story is found by its row's number; a piece of evidence is what is inflated when a pair is opened.
STORIES_IN_A_PIECE = 200
_ROWS_IN_A_PIECE = 2_000
_EVIDENCE_IN_A_PIECE = 40
# What a reader is likeliest to open comes first, should not all fit: what is open or disputed, then what was tested.
_CLASSES = ("evidence-a", "evidence-b", "evidence-c")


class Collection:
    """Rows, stories and evidence, put away compressed; `annotated` is how many annotations were seen.

    Evidence that can no longer fit into a page of `max_bytes` is let go at once.
    """

    def __init__(self, spool: Spool, max_bytes: int) -> None:
        self.rows = Shelf("rows", spool, records=_ROWS_IN_A_PIECE)
        # by number of records alone: rows say nothing of where their story is
        self.stories = Shelf("stories", spool, records=STORIES_IN_A_PIECE, piece_bytes=1 << 62)
        self.evidence = {name: Shelf(name, spool, records=_EVIDENCE_IN_A_PIECE) for name in _CLASSES}
        self.shared = SharedTexts()
        self._all = [self.rows, self.stories, *self.evidence.values()]
        self._max_bytes = max_bytes
        self.annotated = 0
        self.with_evidence = 0
        self.not_asked_for = 0

    def add(self, seen: Seen, pair: Pair, kept: Kept, whole: Seen) -> None:
        """Take in one annotation of a pair; `whole` is the pair over all rounds."""
        self.annotated += 1
        place = None
        if seen.evidence is not None:
            if kept == "all" or (kept == "tested" and seen.annotation.test is not None):
                shelf = self.evidence[_class(seen)]
                if is_full(shelf, self._all, self._max_bytes):
                    place = (shelf.name, len(shelf.pieces), 0)
                else:
                    place = (shelf.name, *shelf.add(evidence(seen.evidence, self.shared)))
                self.with_evidence += 1
            else:
                self.not_asked_for += 1
        self.rows.add(row(seen, pair, place, whole))
        self.stories.add(story(seen, pair))

    def shelves(self) -> list[Shelf]:
        """Return all shelves, the dearest first."""
        for shelf in self._all:
            shelf.flush()
        return self._all


def collect(
    run: RunView,
    spool: Spool,
    figures: Figures,
    *,
    gold: Mapping[str, int] | None = None,
    kept: Kept = "all",
    max_bytes: int,
    on_progress: Progress | None = None,
) -> Collection:
    """Show every pair of a run to the figures and put its records away, for a page of `max_bytes`.

    Raises:
        StorageError: the spool cannot be written.
        RunFolderError: the folder is damaged.
        InputError: its input is damaged.
    """
    found = Collection(spool, max_bytes)
    total = len(run.index.done())
    of_pairs, of_annotations = figures.of_pairs, figures.of_annotations
    for pair, rounds in _annotated(run, gold or {}):
        whole = as_one(rounds)
        for figure in of_pairs:
            figure.add(whole)
        for seen in rounds:
            for figure in of_annotations:
                figure.add(seen)
            found.add(seen, pair, kept, whole)
            if on_progress is not None:
                on_progress(found.annotated, total)
    return found


def _annotated(run: RunView, gold: Mapping[str, int]) -> Iterator[tuple[Pair, list[Seen]]]:
    """Yield each annotated pair with its rounds, in the order of the input."""
    has_evidence = run.has_evidence
    rounds: dict[str, list[int]] = defaultdict(list)
    for pair_id, number in run.index.done():
        rounds[pair_id].append(number)
    for pair in run.pairs():
        found = []
        for number in sorted(rounds.get(pair.id, ())):
            annotation = run.annotation(pair.id, number)
            if annotation is not None:
                kept = run.evidence(pair.id, number) if has_evidence else None
                found.append(Seen(annotation, kept, gold.get(pair.id)))
        if found:
            yield pair, found


def _class(seen: Seen) -> str:
    found = seen.annotation
    if seen.label in ("undecided", "error") or found.against_test or seen.gold not in (None, found.label):
        return _CLASSES[0]
    return _CLASSES[1 if found.test is not None else 2]
