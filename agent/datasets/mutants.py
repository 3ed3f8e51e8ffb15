"""The files of `agent corpus mutate`: right code, and mutants of it that a check told apart.

Each right snippet is a pair with label 1. Each mutant is a pair with the same query and label 0. Its field `mutant`
names the pair with the right code, the change, and the check that noticed the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from agent.datasets.reading import read_dataset
from agent.errors import InputError
from agent.types import Frozen

MUTANT = "mutant"
"""The name of the field with the `MutantRecord`."""


class MutantRecord(Frozen):
    """How a mutant differs from the right code, and what proved it wrong.

    `of` is the id of the pair with the right code. `kind` and `change` are those of the `Mutation`. The check is a
    recorded test program (`program`) or inputs for which the results differ (`inputs`). `evidence` has the failed case,
    or the input and both results. `crashes` says whether the mutant differs only because it raises exceptions.
    """

    of: str
    kind: str
    change: str
    check: Literal["program", "inputs"]
    evidence: dict[str, Any] = Field(default_factory=dict)
    crashes: bool = False


@dataclass(frozen=True)
class Contrast:
    """A query with the right code and a mutant of it. Contrasts of one function have equal `function`."""

    function: str
    query: str
    right: str
    wrong: str
    language: str
    mutant: MutantRecord


def read_contrasts(path: Path) -> Iterator[Contrast]:
    """Iterate over the mutants with label 0 in a file of `agent corpus mutate`, each with its right code.

    Raises:
        InputError: the file cannot be read, has no mutants, or a mutant has no right code with the same query.
        ExtraMissing: the file needs the `io` extra.
    """
    dataset = read_dataset([path])
    right = {pair.id: pair for pair in dataset if pair.meta.get(MUTANT) is None and dataset.read_label(pair) == 1}
    mutants = [pair for pair in dataset if pair.meta.get(MUTANT) is not None and dataset.read_label(pair) == 0]
    if not mutants:
        raise InputError("contains no mutants with label 0. Pass a file that `agent corpus mutate` wrote", path=path)
    for pair in mutants:
        line = dataset.origin(pair.id)[1]
        try:
            record = MutantRecord.model_validate(pair.meta[MUTANT])
        except ValidationError as error:
            raise InputError(f"'{MUTANT}' is malformed: {error.errors()[0]['msg']}", path=path, line=line) from error
        original = right.get(record.of)
        if original is None or original.query != pair.query:
            raise InputError(f"no pair {record.of!r} with this query and label 1", path=path, line=line)
        yield Contrast(original.id, pair.query, original.code, pair.code, pair.language, record)
