"""The report on a run (`agent report`), a single HTML file that works offline."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.corpus.describe import DescriptionBuilder
from agent.corpus.labelled import LabelledPair
from agent.errors import RunFolderError
from agent.evaluation.tally import iterate_annotated_pairs, merge_rounds
from agent.runs.store import files
from agent.runs.store.files import replacing, writing
from agent.runs.store.manifest import compute_wall_time, flatten
from agent.runs.store.run_view import RunView, get_variant_and_model
from agent.text import Figure, build_figure, build_table, plural
from agent.types import Progress
from agent.views.archive import STORIES_IN_A_PIECE, Archive, EvidenceScope, count_fitting_pieces
from agent.views.dataset import build_dataset_figures
from agent.views.figures import RunFigures
from agent.views.pages import render_head, render_tail

if TYPE_CHECKING:
    from agent.evaluation.ablation_table import AblationTable

MEGABYTE = 1_000_000
SEARCHERS = "Searchers"
# Bytes reserved for notes and piece counts, which are computed after the pieces are selected.
_RESERVED_BYTES = 4_000
# These fields describe the machine and its user. A published report must not reveal them.
_PRIVATE = ("argv", "cwd", "host", "pid")
_PREFERRED_VARIANT = "full"
_FOLDER_NAME = re.compile(r"(?!\.)[\w.-]{1,200}", re.ASCII)


@dataclass(frozen=True)
class ReportSource:
    """A run folder, the ablation that contains the run (if any), and the title of the report."""

    run: Path
    title: str
    ablation: AblationTable | None = None


def find_run(folder: Path) -> ReportSource:
    """Return the run to report on.

    For an ablation folder, return the run of the `full` variant, or the first available run if `full` has none.

    Raises:
        RunFolderError: the ablation is damaged, or none of its variants has a run.
    """
    name, parent = folder.resolve().name, folder.resolve().parent
    place = next((path for path in (folder, parent) if (path / files.ABLATION).is_file()), None)
    if place is None:
        return ReportSource(folder, name)
    # This import takes about a second.
    from agent.evaluation.ablation_text import read_ablation

    ablation = read_ablation(place / files.ABLATION)
    if place != folder:
        return ReportSource(folder, f"{place.name}/{name}", ablation)
    if (folder / files.MANIFEST).is_file():
        return ReportSource(folder, name, ablation)
    variants = [_PREFERRED_VARIANT, *(row.variant for row in ablation.rows)]
    for variant in variants:
        path = folder / variant
        # The variant's name comes from a file. Neither the name nor a symbolic link may lead out of the folder.
        if _FOLDER_NAME.fullmatch(variant) and not path.is_symlink() and (path / files.MANIFEST).is_file():
            return ReportSource(path, f"{name}/{variant}", ablation)
    raise RunFolderError(f"{folder}: contains {files.ABLATION} but none of its run folders ({', '.join(variants)})")


@dataclass(frozen=True)
class WrittenReport:
    """A written report.

    `annotations` counts all annotations. `listed` counts the annotations in the table, and `with_evidence` counts the
    annotations whose evidence is included.
    """

    path: Path
    bytes: int
    annotations: int
    listed: int
    with_evidence: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The content of a report.

    `evidence` selects the annotations whose evidence is included. `max_bytes` limits the file size, except that figures
    and scripts are always included. `title` defaults to the name of the run folder. `gold` maps pair ids to gold
    labels. `against_gold` contains the figures that compare the run's labels with gold labels. `searchers` contains
    the figures on the searchers that were scored with the run's labels. `guarantee` contains those of its certificate.
    """

    run: RunView
    evidence: EvidenceScope = "all"
    max_bytes: int = 15 * MEGABYTE
    title: str | None = None
    ablation: AblationTable | None = None
    gold: Mapping[str, int] | None = None
    against_gold: Sequence[Figure] = ()
    searchers: Sequence[Figure] = ()
    guarantee: Sequence[Figure] = ()

    def write(self, path: Path, progress: Progress = lambda *_: None) -> WrittenReport:
        """Write the page atomically. `progress` receives the numbers of processed and of all annotations.

        Raises:
            RunFolderError: the run folder is damaged.
            InputError: the run's input is damaged.
            StorageError: the file cannot be written. An earlier report stays unchanged.
        """
        with writing(path):
            # If the folder is not writable, fail before reading a large run.
            tempfile.TemporaryFile(dir=path.parent).close()
        pairs, annotations = sum(1 for _ in self.run.pairs()), len(self.run.index)
        figures, archive = RunFigures(pairs, compute_wall_time(self.run.manifest)), Archive(self.max_bytes)
        dataset = DescriptionBuilder(pairs)
        for pair, rounds in iterate_annotated_pairs(self.run, gold=self.gold, with_history=self.run.has_evidence):
            merged = merge_rounds(rounds)
            figures.add(merged, rounds)
            dataset.add(LabelledPair(pair, merged.annotation.label, merged))
            for observation in rounds:
                archive.add(observation, pair, self.evidence, merged)
                progress("reading the run", archive.annotation_count, annotations)
        return self._write_page(path, self._build_document(figures, dataset, pairs, archive), archive)

    def _build_document(
        self, figures: RunFigures, dataset: DescriptionBuilder, pairs: int, archive: Archive
    ) -> dict[str, Any]:
        rounds = max(self.run.index.round_count, 1)
        return {
            "name": self.title or self.run.path.resolve().name,
            "subtitle": _format_subtitle(self.run.manifest, pairs, rounds),
            "cards": figures.build_cards(),
            "sections": self._build_sections(figures, dataset),
            "columns": archive.columns,
            "marks": archive.marks,
            "stories_in_a_piece": STORIES_IN_A_PIECE,
            "rounds": rounds,
        }

    def _build_sections(self, figures: RunFigures, dataset: DescriptionBuilder) -> list[dict[str, Any]]:
        parts: dict[str, tuple[str, Sequence[Figure]]] = {
            "labels": ("Labels", figures.labels),
            "gold": ("Comparison with gold labels", self.against_gold),
            "guarantee": ("Guarantee", self.guarantee),
            "ablation": ("Ablation", self._build_ablation()),
            "searchers": (SEARCHERS, self.searchers),
            "tests": ("Tests", figures.tests),
            "repairs": ("Repairs and stand-ins", figures.repairs),
            "spending": ("Cost and time", figures.spending),
            "dataset": ("Dataset", build_dataset_figures(dataset.build()) if dataset.pairs else ()),
            "run": ("Run details", _build_run_figures(self.run.manifest)),
        }
        return [{"id": name, "title": title, "blocks": blocks} for name, (title, blocks) in parts.items() if blocks]

    def _build_ablation(self) -> list[Figure]:
        if self.ablation is None:
            return []
        from agent.views.comparison import build_ablation_figures

        return build_ablation_figures(self.ablation, variant=get_variant_and_model(self.run.manifest)[0])

    def _write_page(self, path: Path, document: dict[str, Any], archive: Archive) -> WrittenReport:
        for collection in archive.collections:
            collection.flush()
        frame = sum(
            len(part.encode("utf-8")) for part in chain(render_head("", document, iter(())), render_tail(iter(())))
        )
        counts = count_fitting_pieces(archive.collections, self.max_bytes - frame - _RESERVED_BYTES)
        listed = archive.rows.count_records(counts["rows"])
        with_evidence = sum(records.count_records(counts[records.name]) for records in archive.evidence)
        notes = self._list_notes(archive, listed, with_evidence, archive.stories.count_records(counts["stories"]))
        document |= {"pieces": counts, "notes": notes}
        with replacing(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(
                render_head(f"{document['name']} · report", document, archive.rows.encode_pieces(counts["rows"]))
            )
            pieces = chain.from_iterable(
                records.encode_pieces(counts[records.name]) for records in archive.collections[1:]
            )
            file.writelines(render_tail(pieces))
        return WrittenReport(path, path.stat().st_size, archive.annotation_count, listed, with_evidence, tuple(notes))

    def _list_notes(self, archive: Archive, listed: int, with_evidence: int, stories: int) -> list[str]:
        size = f"{self.max_bytes / MEGABYTE:g} MB (--max-mb)"
        run_pairs = self.run.index.pair_count
        ablation_pairs = 0 if self.ablation is None else self.ablation.pairs
        notes = {
            f"The ablation has {plural(ablation_pairs, 'pair')} and this run has {run_pairs:,}, so their figures are "
            "not comparable.": self.ablation is not None and ablation_pairs != run_pairs,
            f"The run folder has no {files.EVIDENCE}, so the report contains no evidence for the labels.":
                not self.run.has_evidence,
            f"The table lists the first {listed:,} of {archive.annotation_count:,} annotations. The rest would "
            f"exceed {size}.":
                listed < archive.annotation_count,
            f"Code and reasons are included only for the first {plural(stories, 'annotation')}.": stories < listed,
            f"The evidence for {plural(archive.excluded_evidence, 'annotation')} is excluded (--evidence).":
                archive.excluded_evidence > 0,
            f"Evidence is included for {with_evidence:,} of {archive.with_evidence:,} annotations. Undecided and "
            f"disputed annotations take precedence. The rest would exceed {size}. `agent show` prints the rest.":
                with_evidence < archive.with_evidence,
        }  # fmt: skip
        return [note for note, applies in notes.items() if applies]


def write_section(
    path: Path, name: str, cards: Sequence[Mapping[str, str]], title: str, blocks: Sequence[Figure]
) -> WrittenReport:
    """Atomically write a page that has one section and no table of pairs.

    Raises:
        StorageError: the file cannot be written. An earlier page stays unchanged.
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
    started = str(manifest["segments"][0].get("started"))[:10] if manifest["segments"] else None
    parts = {
        plural(pairs, "pair") + (f", {rounds} rounds" if rounds > 1 else ""): True,
        f"variant {variant}": variant is not None,
        f"model {model}": model is not None,
        f"started {started}": started is not None,
    }
    return " · ".join(part for part, is_known in parts.items() if is_known)


def _build_run_figures(manifest: Mapping[str, Any]) -> list[Figure]:
    """Return the run's settings, the environment of each session, and changes between sessions."""
    settings = [
        [name, _format_value(value)]
        for name, value in flatten(manifest["identity"]).items()
        if not name.startswith("variant.nodes.")
    ]
    table = build_table(("setting", "value"), settings, left=["value"])
    figures = [build_figure("Settings", "These settings affect the labels.", None, [table])]
    for number, segment in enumerate(manifest["segments"], 1):
        rows = [
            [name, _format_value(value)]
            for name, value in flatten(segment.get("environment", {})).items()
            if name.split(".")[0] not in _PRIVATE
        ]
        rows += [
            [f"served model for {model.get('role') or 'all roles'}", _format_value(model.get("model"))]
            for model in segment.get("served", ())
        ]
        title = "Environment" if len(manifest["segments"]) == 1 else f"Environment of session {number}"
        times = f"Started {segment.get('started')}, ended {segment.get('ended') or 'at an unknown time (killed)'}."
        figures.append(build_figure(title, times, None, [build_table(("item", "value"), rows, left=["value"])]))
    if manifest["changes"]:
        fields = {"at": "time", "what": "item", "before": "before", "now": "after"}
        changes = [[_format_value(change.get(name)) for name in fields] for change in manifest["changes"]]
        table = build_table([*fields.values()], changes, left=fields.values())
        figures.append(build_figure("Changes between sessions", "", None, [table]))
    return figures


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else "–" if value is None else str(value)
