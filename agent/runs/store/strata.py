"""Divides the labelled pairs of a run into strata by the evidence for their labels."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

from agent.datasets.encoding import dumps
from agent.runs.store.annotations import LabelStatus, find_majority_round, get_status
from agent.types import Annotation

_EVIDENCE_NAMES = "test agrees", "decided by reading", "test without verdict", "test disagrees"
_SETTING_NAMES = "own module", "alone", "stand-ins"
MAX_STRATA = 8
MIN_SHARE = 0.02


class Evidence(IntEnum):
    """What a test says about a label, from the strongest to the weakest support.

    `READING` means that no test was tried. `NO_VERDICT` means that a test was tried but neither passed nor failed.
    """

    AGREES = 0
    READING = 1
    NO_VERDICT = 2
    DISAGREES = 3


class Setting(IntEnum):
    """Where the test of a pair ran: in the snippet's module, alone, or with stand-ins. Pairs without a test: alone."""

    MODULE = 0
    ALONE = 1
    STAND_INS = 2


class Cell(NamedTuple):
    """The evidence, the setting and the label of a pair. Cells are ordered by these fields."""

    evidence: Evidence
    setting: Setting
    label: Literal[0, 1]


@dataclass(frozen=True)
class Stratum:
    """The cells in a stratum, and the label of each of its pairs, ordered by id."""

    cells: tuple[Cell, ...]
    labels: Mapping[str, Literal[0, 1]]

    @property
    def name(self) -> str:
        """The cells, as in `test agrees, alone, label 1`."""
        return " or ".join(map(_format_cell, self.cells))


def _format_cell(cell: Cell) -> str:
    place = "" if cell.evidence is Evidence.READING else f"{_SETTING_NAMES[cell.setting]}, "
    return f"{_EVIDENCE_NAMES[cell.evidence]}, {place}label {cell.label}"


def find_cell(annotation: Annotation) -> Cell | None:
    """Return the cell of an annotation, or None if the annotation has no label."""
    if annotation.label is None:
        return None
    test, context = annotation.test, annotation.module_context
    if test is None:
        return Cell(Evidence.READING, Setting.ALONE, annotation.label)
    alone = context is None or context.module is None
    setting = Setting.STAND_INS if annotation.stand_ins else Setting.ALONE if alone else Setting.MODULE
    evidence = Evidence.DISAGREES if annotation.against_test else Evidence.AGREES
    return Cell(Evidence.NO_VERDICT if test.says is None else evidence, setting, annotation.label)


def assign_cells(annotations: Iterable[Annotation]) -> dict[str, Cell]:
    """Return the cell of each labelled pair, from the first round with the majority label."""
    rounds: dict[str, dict[int, tuple[LabelStatus, Cell | None]]] = {}
    for annotation in annotations:
        rounds.setdefault(annotation.id, {})[annotation.round] = get_status(annotation), find_cell(annotation)
    cells = {}
    for pair_id, pair_rounds in rounds.items():
        in_order = [pair_rounds[number] for number in sorted(pair_rounds)]
        index = find_majority_round([status for status, _ in in_order])
        if index is not None and (cell := in_order[index][1]) is not None:
            cells[pair_id] = cell
    return cells


def stratify(cells: Mapping[str, Cell]) -> tuple[Stratum, ...]:
    """Divide pairs into at most `MAX_STRATA` strata, each with at least `MIN_SHARE` of the pairs.

    At first, each cell is a stratum. While there are too many strata, or one is too small, the smallest stratum is
    merged. Its partner is the smallest stratum with the same evidence and label. Without such a stratum, the partner is
    the smallest with the same evidence, then with the next weaker evidence, then with the next stronger evidence.

    Strata are ordered by their main cells. The main cell of a stratum is its largest cell.
    """
    sizes = Counter(cells.values())
    groups: list[tuple[Cell, ...]] = [(cell,) for cell in sorted(sizes)]

    def measure(group: tuple[Cell, ...]) -> tuple[int, tuple[Cell, ...]]:
        return sum(sizes[cell] for cell in group), group

    def find_main(group: tuple[Cell, ...]) -> Cell:
        return max(group, key=lambda cell: (sizes[cell], cell))

    def rank(group: tuple[Cell, ...], partner: tuple[Cell, ...]) -> tuple[object, ...]:
        ours, theirs = find_main(group), find_main(partner)
        weaker = theirs.evidence - ours.evidence
        return weaker < 0, abs(weaker), not weaker and ours.label != theirs.label, measure(partner)

    while len(groups) > 1:
        smallest = min(groups, key=measure)
        if len(groups) <= MAX_STRATA and measure(smallest)[0] >= MIN_SHARE * len(cells):
            break
        groups.remove(smallest)
        partner = min(groups, key=lambda group: rank(smallest, group))
        groups.remove(partner)
        groups.append(tuple(sorted(smallest + partner)))
    groups.sort(key=find_main)
    labels: list[dict[str, Literal[0, 1]]] = [{} for _ in groups]
    numbers = {cell: number for number, group in enumerate(groups) for cell in group}
    for pair_id in sorted(cells):
        labels[numbers[cells[pair_id]]][pair_id] = cells[pair_id].label
    return tuple(Stratum(*parts) for parts in zip(groups, labels, strict=True))


def hash_strata(strata: Iterable[Stratum]) -> str:
    """Return the SHA-256 (hex) of the id, the label and the stratum of each pair."""
    digest = hashlib.sha256()
    for number, stratum in enumerate(strata):
        for pair_id, label in stratum.labels.items():
            digest.update(dumps([pair_id, label, number]) + b"\n")
    return digest.hexdigest()
