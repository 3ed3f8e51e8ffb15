"""`agent report`: a run as one HTML file that opens without network."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import RunFolderError
from agent.evaluation.statistics import BINS, format_bin
from agent.evaluation.tally import iterate_annotated_pairs, merge_rounds
from agent.store import files
from agent.store.files import replacing, writing
from agent.store.manifest import compute_wall_time, flatten
from agent.store.run_view import RunView, get_variant_and_model
from agent.views.archive import STORIES_IN_A_PIECE, Archive, EvidenceScope, count_fitting_pieces
from agent.views.charts import Figure, build_figure, build_table
from agent.views.figures import RunFigures
from agent.views.pages import render_head, render_tail
from agent.wording import plural

if TYPE_CHECKING:
    from agent.evaluation.ablation_table import AblationTable

MEGABYTE = 1_000_000
SEARCHERS = "Searchers"
Progress = Callable[[int, int], None]
# What the page says of the pieces is known only once they are chosen.
_RESERVE = 4_000
# Of the machine and its user, not of the run: a report is published.
_PRIVATE = ("argv", "cwd", "host", "pid")
_FIRST = "full"
_FOLDER = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)


@dataclass(frozen=True)
class ReportSource:
    """A run's folder, the ablation in or above it, and what both are called together."""

    run: Path
    title: str
    ablation: AblationTable | None = None


def find_run(folder: Path) -> ReportSource:
    """Return the run that a folder is, or of an ablation's the run `full`, or the first one that is there.

    Raises:
        RunFolderError: the ablation is damaged, or holds no run.
    """
    own, parent = folder.resolve().name, folder.resolve().parent
    place = next((each for each in (folder, parent) if (each / files.ABLATION).is_file()), None)
    if place is None:
        return ReportSource(folder, own)
    # brings all that makes ablations along, which takes a second
    from agent.evaluation.ablation_text import read_ablation

    ablation = read_ablation(place / files.ABLATION)
    if place != folder:
        return ReportSource(folder, f"{place.name}/{own}", ablation)
    if (folder / files.MANIFEST).is_file():
        return ReportSource(folder, own, ablation)
    names = [_FIRST, *(row.variant for row in ablation.rows)]
    for name in names:
        # a name from a file, and perhaps a link beside it: neither may lead out of the folder
        if _FOLDER.fullmatch(name) and not (folder / name).is_symlink() and (folder / name / files.MANIFEST).is_file():
            return ReportSource(folder / name, f"{own}/{name}", ablation)
    raise RunFolderError(f"{folder}: holds {files.ABLATION}, but the folder of none of its runs ({', '.join(names)})")


@dataclass(frozen=True)
class WrittenReport:
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
    any size). `title` is what the run is called, else by its folder's name. `gold` has the gold labels by id,
    `against_gold` the figures of how labels compare with them, `searchers` those of searchers measured on the run.
    """

    run: RunView
    evidence: EvidenceScope = "all"
    max_bytes: int = 15 * MEGABYTE
    title: str | None = None
    ablation: AblationTable | None = None
    gold: Mapping[str, int] | None = None
    against_gold: Sequence[Figure] = ()
    searchers: Sequence[Figure] = ()

    def write(self, path: Path, on_progress: Progress | None = None) -> WrittenReport:
        """Write the page, in place of an earlier one; `on_progress` takes annotations done and all of them.

        Raises:
            RunFolderError: the run's folder is damaged.
            InputError: its input is damaged.
            StorageError: the file cannot be written; an earlier one is whole.
        """
        with writing(path):
            # known before an hour of reading
            tempfile.TemporaryFile(dir=path.parent).close()
        pairs, annotations = sum(1 for _ in self.run.pairs()), len(self.run.index)
        figures, archive = RunFigures(pairs, compute_wall_time(self.run.manifest)), Archive(self.max_bytes)
        for pair, rounds in iterate_annotated_pairs(self.run, gold=self.gold, with_history=self.run.has_evidence):
            whole = merge_rounds(rounds)
            figures.add(whole, rounds)
            for seen in rounds:
                archive.add(seen, pair, self.evidence, whole)
                if on_progress is not None:
                    on_progress(archive.annotation_count, annotations)
        return self._write_page(path, self._build_document(figures, pairs, archive), archive)

    def _build_document(self, figures: RunFigures, pairs: int, archive: Archive) -> dict[str, Any]:
        rounds = max(self.run.index.round_count, 1)
        return {
            "name": self.title or self.run.path.resolve().name,
            "subtitle": _format_subtitle(self.run.manifest, pairs, rounds),
            "cards": figures.build_cards(),
            "sections": self._build_sections(figures),
            "columns": archive.columns,
            "marks": archive.marks,
            "bins": [format_bin(number) for number in range(BINS)],
            "stories_in_a_piece": STORIES_IN_A_PIECE,
            "rounds": rounds,
        }

    def _build_sections(self, figures: RunFigures) -> list[dict[str, Any]]:
        """Return the page's sections; those without a figure are left out."""
        parts: dict[str, tuple[str, Sequence[Figure]]] = {
            "labels": ("Labels", figures.labels),
            "gold": ("Against gold", self.against_gold),
            "ablation": ("Ablation", self._build_ablation()),
            "searchers": (SEARCHERS, self.searchers),
            "tests": ("Tests", figures.tests),
            "repairs": ("Repairs and stand-ins", figures.repairs),
            "confidence": ("Confidence", figures.confidence),
            "spending": ("Cost and time", figures.spending),
            "run": ("How the run was made", _build_run_figures(self.run.manifest)),
        }
        return [{"id": name, "title": title, "blocks": inside} for name, (title, inside) in parts.items() if inside]

    def _build_ablation(self) -> list[Figure]:
        if self.ablation is None:
            return []
        from agent.views.comparison import build_ablation_figures

        return build_ablation_figures(self.ablation, own=get_variant_and_model(self.run.manifest)[0])

    def _write_page(self, path: Path, document: dict[str, Any], archive: Archive) -> WrittenReport:
        shelves = archive.collections
        for shelf in shelves:
            shelf.flush()
        frame = sum(
            len(part.encode("utf-8")) for part in chain(render_head("", document, iter(())), render_tail(iter(())))
        )
        counts = count_fitting_pieces(shelves, self.max_bytes - frame - _RESERVE)
        listed = archive.rows.records(counts["rows"])
        with_evidence = sum(each.records(counts[each.name]) for each in archive.evidence)
        notes = self._list_notes(archive, listed, with_evidence, archive.stories.records(counts["stories"]))
        document |= {"pieces": counts, "notes": notes}
        with replacing(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(
                render_head(f"{document['name']} · report", document, archive.rows.encode_pieces(counts["rows"]))
            )
            pieces = chain.from_iterable(each.encode_pieces(counts[each.name]) for each in shelves[1:])
            file.writelines(render_tail(pieces))
        return WrittenReport(path, path.stat().st_size, archive.annotation_count, listed, with_evidence, tuple(notes))

    def _list_notes(self, archive: Archive, listed: int, with_evidence: int, stories: int) -> list[str]:
        size = f"{self.max_bytes / MEGABYTE:g} MB (--max-mb)"
        annotated = self.run.index.pair_count
        of_ablation = 0 if self.ablation is None else self.ablation.pairs
        notes = {
            f"The ablation is of {plural(of_ablation, 'pair')}, this run of {annotated:,}: their figures are not of "
            "the same pairs.": self.ablation is not None and of_ablation != annotated,
            f"The run's folder holds no {files.EVIDENCE}: what led to the labels cannot be shown.":
                not self.run.has_evidence,
            f"The table lists the first {listed:,} of {archive.annotation_count:,} annotations: more do not fit in "
            f"{size}.":
                listed < archive.annotation_count,
            f"Code and reasons are there for the first {stories:,} of them.": stories < listed,
            f"Evidence of {archive.excluded_evidence:,} annotations was not asked for (--evidence).":
                archive.excluded_evidence > 0,
            f"Evidence is there for {with_evidence:,} of {archive.with_evidence:,} annotations, open and disputed ones "
            f"first: more does not fit in {size}. `agent show` prints the others.":
                with_evidence < archive.with_evidence,
        }  # fmt: skip
        return [note for note, holds in notes.items() if holds]


def write_section(
    path: Path, name: str, cards: Sequence[Mapping[str, str]], title: str, blocks: Sequence[Figure]
) -> WrittenReport:
    """Write a page of one section, without a table of pairs, in place of an earlier one.

    Raises:
        StorageError: the file cannot be written; an earlier one is whole.
    """
    document = {
        "name": name, "subtitle": "", "cards": list(cards), "alone": True, "notes": [],
        "sections": [{"id": "searchers", "title": title, "blocks": list(blocks)}],
        "columns": [], "marks": [], "bins": [], "stories_in_a_piece": STORIES_IN_A_PIECE, "rounds": 1, "pieces": {},
    }  # fmt: skip
    with replacing(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(chain(render_head(f"{name} · report", document, iter(())), render_tail(iter(()))))
    return WrittenReport(path, path.stat().st_size, 0, 0, 0, ())


def _format_subtitle(manifest: Mapping[str, Any], pairs: int, rounds: int) -> str:
    variant, model = get_variant_and_model(manifest)
    begun = str(manifest["segments"][0].get("started"))[:10] if manifest["segments"] else None
    parts = {
        plural(pairs, "pair") + (f", {rounds} rounds" if rounds > 1 else ""): True,
        f"variant {variant}": variant is not None,
        f"model {model}": model is not None,
        f"begun {begun}": begun is not None,
    }
    return " · ".join(part for part, known in parts.items() if known)


def _build_run_figures(manifest: Mapping[str, Any]) -> list[Figure]:
    """Return how the run was made: its settings, the environment of each start, what changed meanwhile."""
    settings = [
        [name, _format_value(value)]
        for name, value in flatten(manifest["identity"]).items()
        if not name.startswith("variant.nodes.")
    ]
    figures = [
        build_figure(
            "Settings", "What decides the labels.", None, [build_table({"setting": False, "value": False}, settings)]
        )
    ]
    for number, segment in enumerate(manifest["segments"], 1):
        rows = [
            [name, _format_value(value)]
            for name, value in flatten(segment.get("environment", {})).items()
            if name.split(".")[0] not in _PRIVATE
        ]
        rows += [
            [f"served model of {each.get('role') or 'all roles'}", _format_value(each.get("model"))]
            for each in segment.get("served", ())
        ]
        title = "Environment" if len(manifest["segments"]) == 1 else f"Environment of start {number}"
        times = f"From {segment.get('started')} to {segment.get('ended') or 'an unknown time (it was killed)'}."
        figures.append(build_figure(title, times, None, [build_table({"what": False, "value": False}, rows)]))
    if manifest["changes"]:
        columns = ("at", "what", "before", "now")
        changes = [[_format_value(each.get(column)) for column in columns] for each in manifest["changes"]]
        figures.append(
            build_figure(
                "What changed while it went on", "", None, [build_table(dict.fromkeys(columns, False), changes)]
            )
        )
    return figures


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else "–" if value is None else str(value)
