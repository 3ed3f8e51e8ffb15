"""Reads pairs with labels, from a run folder or from files of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.datasets.arrow import is_dataset
from agent.datasets.fields import FieldMap
from agent.datasets.reading import read_dataset
from agent.errors import InputError
from agent.evaluation.tally import Observation, iterate_annotated_pairs, merge_rounds
from agent.runs.store import files
from agent.runs.store.run_view import load_run
from agent.types import Pair


@dataclass(frozen=True)
class LabelledPair:
    """A pair with its label: 1, 0, or None if it is undecided or has no label.

    `observation` is the merged annotation with its history. It is None for pairs that do not come from a run.
    """

    pair: Pair
    label: int | None
    observation: Observation | None = None


def read_labelled(
    path: Path, mapping: FieldMap = None, *, with_history: bool = False, codes_alone: bool = False
) -> Iterator[LabelledPair]:
    """Iterate over the annotated pairs of a run folder, or over the pairs in a file, in order.

    A run's label is the majority of its rounds. In a file, the label is the field `label`. `mapping` and `codes_alone`
    apply to files, as in `read_dataset`.

    Raises:
        InputError: the file cannot be read, has no pairs, or has a label other than 0, 1 and null.
        RunFolderError: the run folder is damaged.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    if (path / files.ANNOTATIONS).is_file():
        with load_run(path) as view:
            for pair, rounds in iterate_annotated_pairs(view, with_history=with_history):
                merged = merge_rounds(rounds)
                yield LabelledPair(pair, merged.annotation.label, merged)
        return
    if path.is_dir() and not is_dataset(path):
        cause = "is neither a run with annotations nor a dataset. Annotate its pairs with `agent annotate`"
        raise InputError(f"{cause}, or pass a file of pairs with labels", path=path)
    dataset = read_dataset([path], mapping, codes_alone=codes_alone)
    for pair in dataset:
        yield LabelledPair(pair, dataset.read_label(pair))
