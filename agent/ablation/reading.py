"""Reads `ablation.json`, also that of an older version: what it does not tell is None."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from agent.ablation.table import SCHEMA
from agent.datasets.encoding import loads
from agent.datasets.regular import read_regular
from agent.errors import RunFolderError
from agent.invalid import what_is_wrong


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Interval(_Row):
    """A value with the bounds of its interval."""

    value: float
    low: float
    high: float


class Mcnemar(_Row):
    """A variant against another on the same pairs, and the note where the test cannot tell."""

    against: str = "full"
    only_this_right: int = 0
    # the name it had before any variant could be the one compared with
    only_other_right: int = Field(default=0, validation_alias=AliasChoices("only_other_right", "only_full_right"))
    p: float | None = None
    p_holm: float | None = None
    note: str | None = None


class VariantRow(_Row):
    """One variant's figures; what is undefined is None."""

    variant: str
    title: str | None = None
    paper: str | None = None
    run: str | None = None
    accuracy: Interval | None = None
    coverage: float | None = None
    selective_accuracy: float | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    kappa: float | None = None
    alpha: float | None = None
    agreement: float | None = None
    rounds_alpha: float | None = None
    executed_share: float | None = None
    cases_per_program: float | None = None
    tests_checked: int | None = None
    tests_vacuous: int | None = None
    mean_strength: float | None = None
    repairs_per_pair: float | None = None
    calls_per_pair: float | None = None
    tokens_per_pair: float | None = None
    cost_per_pair: float | None = None
    seconds_per_pair: float | None = None
    errors: int | None = None
    mcnemar: Mcnemar | None = None


class Ablation(_Row):
    """What `agent ablate` leaves in `ablation.json`; `gold` counts people's labels, `calls` questions."""

    pairs: int
    rounds: int = 1
    gold: dict[str, int] = {}
    note: str | None = None
    calls: dict[str, int] = {}
    rows: tuple[VariantRow, ...] = ()


def read_ablation(path: Path) -> Ablation:
    """Read `ablation.json`.

    Raises:
        RunFolderError: it is damaged or of a newer version.
    """
    try:
        record = loads(read_regular(path))
        if isinstance(record, dict) and record.get("schema") != SCHEMA:
            raise RunFolderError(f"{path}: has schema {record.get('schema')}, this version reads {SCHEMA}")
        return Ablation.model_validate(record)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValidationError, ValueError) as error:
        raise RunFolderError(
            f"{path}: is damaged ({what_is_wrong(error)}); remove it and run `agent ablate` again"
        ) from None
