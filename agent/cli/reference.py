"""Describes all settings, for `-c help`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from agent.cli.text import Console
from agent.config import Config, collect_setting_fields

_TYPES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "true|false",
    tuple: "list of strings",
    dict: "mapping",
}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤"}


class Setting(NamedTuple):
    """A setting with its type, default and bounds as text."""

    key: str
    type: str
    default: str
    bounds: str
    description: str


def describe_settings(kind: type[Config] = Config) -> Iterator[Setting]:
    """Yield a description of each setting, in order of declaration."""
    for key, field in collect_setting_fields(kind).items():
        default = field.get_default(call_default_factory=True)
        default_text = "none" if default in (None, (), {}) else json.dumps(default).strip('"')
        yield Setting(
            key, _describe_type(field.annotation), default_text, _describe_bounds(field), field.description or ""
        )


def _describe_type(annotation: Any) -> str:
    types = [member for member in get_args(annotation) if member is not NoneType]
    if get_origin(annotation) is Literal:
        return "|".join(map(str, types))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_describe_type, types))
    return _TYPES.get(get_origin(annotation) or annotation, "file")


def _describe_bounds(field: FieldInfo) -> str:
    bounds = [(sign, getattr(bound, name, None)) for name, sign in _SIGNS.items() for bound in field.metadata]
    return ", ".join(f"{sign} {limit:,}" for sign, limit in bounds if limit is not None)


def print_settings() -> None:
    """Print the settings of a run, one per line."""
    table = Table.grid(padding=(0, 2))
    table.add_row("setting", "type", "default", "bounds", "meaning")
    for setting in describe_settings():
        table.add_row(*map(Text, setting))
    Console(piped_width=200).print(table)
