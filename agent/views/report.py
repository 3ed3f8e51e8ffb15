"""Makes a report: goes through the run, chooses what fits, writes the file in one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.evaluation.ablation_table import AblationTable
from agent.evaluation.calibration import BINS, bin_name
from agent.store import files
from agent.store.files import replacing
from agent.store.run_view import RunView
from agent.views.archive import Shelf, Spool, fitting, spool_beside
from agent.views.charts import Block
from agent.views.collect import STORIES_IN_A_PIECE, Collection, Kept, Progress, collect
from agent.views.document import Figures
from agent.views.figures.labels import Funnel
from agent.views.page import head, tail
from agent.views.records import COLUMNS
from agent.wording import counted

MEGABYTE = 1_000_000
# What the page says of the pieces is known only once they are chosen.
_RESERVE = 4_000


@dataclass(frozen=True)
class Written:
    """A report's file, its size in bytes, how many annotations there are, are listed, and have their evidence in it."""

    path: Path
    bytes: int
    annotations: int
    listed: int
    with_evidence: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What a report is to hold.

    `kept` says of which pairs the evidence goes in, `max_bytes` how large the file may be (figures and scripts go in at
    any size). `title` is what the run is called, else by its folder's name. `gold` has people's labels by id,
    `against_gold` the figures of how labels compare with them.
    """

    run: RunView
    kept: Kept = "all"
    max_bytes: int = 15 * MEGABYTE
    title: str | None = None
    ablation: AblationTable | None = None
    gold: Mapping[str, int] | None = None
    against_gold: Sequence[Block] = ()

    def write(self, path: Path, on_progress: Progress | None = None) -> Written:
        """Write the page, in place of an earlier one; `on_progress` is told annotations done and all of them.

        Raises:
            RunFolderError: the run's folder is damaged.
            InputError: its input is damaged.
            StorageError: the file cannot be written; an earlier one is whole.
        """
        with spool_beside(path) as spool:
            return self._through(path, spool, on_progress)

    def _through(self, path: Path, spool: Spool, on_progress: Progress | None) -> Written:
        pairs = sum(1 for _ in self.run.pairs())
        rounds = 1 + max((number for _, number in self.run.index.done()), default=0)
        figures = Figures(Funnel(pairs))
        found = collect(
            self.run,
            spool,
            figures,
            gold=self.gold,
            kept=self.kept,
            max_bytes=self.max_bytes,
            on_progress=on_progress,
        )
        document = {
            "name": self.title or self.run.path.resolve().name,
            "subtitle": _subtitle(self.run.manifest, pairs, rounds),
            "cards": figures.cards(rounds),
            "sections": figures.sections(self.run.manifest, self.ablation, self.against_gold),
            "columns": COLUMNS,
            "bins": [bin_name(number) for number in range(BINS)],
            "stories_in_a_piece": STORIES_IN_A_PIECE,
            "rounds": rounds,
        }
        return self._write(path, document, found, spool)

    def _write(self, path: Path, document: dict[str, Any], found: Collection, spool: Spool) -> Written:
        shared = Shelf("shared", spool, records=len(found.shared.texts) + 1)
        for text in found.shared.texts:
            shared.add(dumps(text))
        rows, stories, *evidence = found.shelves()
        shared.flush()
        frame = sum(len(part.encode("utf-8")) for part in chain(head("", document, iter(())), tail(iter(()))))
        shelves = [rows, stories, shared, *evidence]
        counts = fitting(shelves, self.max_bytes - frame - _RESERVE)
        listed, told = _records(rows, counts), sum(_records(shelf, counts) for shelf in evidence)
        notes = self._notes(found, listed, told, _records(stories, counts))
        document |= {"pieces": counts, "notes": notes}
        title = f"{document['name']} · report"
        with replacing(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(head(title, document, rows.encoded(counts["rows"])))
            file.writelines(tail(_pieces(shelves[1:], counts)))
        return Written(path, path.stat().st_size, found.annotated, listed, told, tuple(notes))

    def _notes(self, found: Collection, listed: int, told: int, stories: int) -> list[str]:
        size = f"{self.max_bytes / MEGABYTE:g} MB (--max-mb)"
        notes = []
        annotated = len({pair_id for pair_id, _ in self.run.index.done()})
        if self.ablation is not None and self.ablation.pairs != annotated:
            notes.append(
                f"The ablation is of {counted(self.ablation.pairs, 'pair')}, this run of {annotated:,}: their figures "
                "are not of the same pairs."
            )
        if not self.run.has_evidence:
            notes.append(f"The run's folder holds no {files.EVIDENCE}: what led to the labels cannot be shown.")
        if listed < found.annotated:
            notes.append(
                f"The table lists the first {listed:,} of {found.annotated:,} annotations: more do not fit in {size}."
            )
        if stories < listed:
            notes.append(f"Code and reasons are there for the first {stories:,} of them.")
        if found.not_asked_for:
            notes.append(f"Evidence of {found.not_asked_for:,} annotations was not asked for (--evidence).")
        if told < found.with_evidence:
            notes.append(
                f"Evidence is there for {told:,} of {found.with_evidence:,} annotations, open and disputed ones first: "
                f"more does not fit in {size}. `agent show` tells the others."
            )
        return notes


def _records(shelf: Shelf, counts: Mapping[str, int]) -> int:
    return sum(piece.records for piece in shelf.pieces[: counts[shelf.name]])


def _pieces(shelves: Sequence[Shelf], counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for shelf in shelves:
        yield from shelf.encoded(counts[shelf.name])


def _subtitle(manifest: Mapping[str, Any], pairs: int, rounds: int) -> str:
    identity = manifest["identity"]
    variant, model = identity.get("variant"), identity.get("model")
    named = [counted(pairs, "pair") + (f", {rounds} rounds" if rounds > 1 else "")]
    if isinstance(variant, Mapping):
        named.append(f"variant {variant.get('name')}")
    if isinstance(model, Mapping) and isinstance(model.get("default"), Mapping):
        named.append(f"model {model['default'].get('model') or model['default'].get('kind')}")
    if manifest["segments"]:
        named.append(f"begun {str(manifest['segments'][0].get('started'))[:10]}")
    return " · ".join(named)
