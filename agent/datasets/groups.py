"""The file of `agent corpus equivalents`: groups of functions that return the same results for the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from agent.datasets.formats import read_records
from agent.datasets.sources import BadLine
from agent.errors import InputError
from agent.types import Frozen

EQUIVALENT = "equivalent"
"""The name of the field with the `EquivalentRecord`."""


class SampleCall(Frozen):
    """An input, with an expression for each argument, and the result of all members. Both are cut to 200 characters."""

    input: str
    output: str


class GroupMember(Frozen):
    """A function of a group. `told_apart` of its `mutants` return other results for the inputs.

    `id` and `code` are those of the snippet in the input. `meta` has its origin and licence, if they are known.
    """

    id: str
    code: str
    informative: int
    mutants: int
    told_apart: int
    meta: Mapping[str, Any] = Field(default_factory=dict)


class EquivalenceGroup(Frozen):
    """Functions that agree on all inputs for which they return. Each pair of them was compared.

    `inputs` is the number of inputs for which all members return. `informative` is the number of these inputs with a
    value other than None and the arguments, and `outputs` is the number of different values.
    """

    id: str
    members: tuple[GroupMember, ...] = Field(min_length=2)
    inputs: int
    informative: int
    outputs: int
    evidence: tuple[SampleCall, ...]


class EquivalentRecord(Frozen):
    """Why a pair was proposed: its code is in a `group` with the relevant snippet whose id is `of`."""

    of: str
    group: str
    evidence: tuple[SampleCall, ...]


def read_groups(path: Path) -> Iterator[EquivalenceGroup]:
    """Iterate over the groups in a file.

    Raises:
        InputError: the file cannot be read, or a line is not a group.
        ExtraMissing: the file needs the `io` extra.
    """
    for record in read_records(path, regular=True):
        if isinstance(record, BadLine):
            raise InputError(record.prefix + record.cause, path=path, line=record.line)
        try:
            yield EquivalenceGroup.model_validate(record.value)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "line"
            remedy = "Pass a file that `agent corpus equivalents` wrote"
            raise InputError(f"{field}: {first['msg']}. {remedy}", path=path, line=record.line) from error
