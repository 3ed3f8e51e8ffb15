"""Describes all settings, for `-c help`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import quote
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from agent.cli.text import Console
from agent.config import collect_setting_fields
from agent.settings import Settings

_TYPES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "true|false",
    tuple: "list of strings",
    dict: "mapping",
}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤"}


_EXAMPLES = """
base_url=http://localhost:11434/v1 thinking=off temperature=0.5 max_tokens=4096 extra_body={"top_k":20}
model=gpt-4o-mini prices=prices.yaml prompts=prompts cache=cache.sqlite
pipeline.pair_timeout=600 pipeline.criterion=half pipeline.screen_audit_rate=0.02
runner.calls_per_minute=500 runner.tokens_per_minute=2000000 runner.address=auto runner.workers=8
runner.budget_usd=20 runner.max_tokens_total=5000000 runner.deadline=8h
sandbox.image=python:3.12 sandbox.mount_ro=/srv/words:/data sandbox.requirements=requirements.txt
sandbox.exclude_newer=2024-12-31 sandbox.python=3.9 sandbox.images={"3.9":"python:3.9"} tracing.otel=true
"""
"""Values of settings that have no default, or whose default is no useful example."""
_GROUPS = {
    "": "Models, prompts and variant",
    "pipeline": "Annotation of a pair",
    "runner": "Concurrency, limits and cost",
    "sandbox": "Sandboxes and packages",
    "tracing": "Tracing",
}


class Setting(NamedTuple):
    """A setting with its type, default and bounds as text, and an example such as `runner.rounds=1`."""

    key: str
    example: str
    type: str
    default: str
    bounds: str
    description: str


def describe_settings() -> Iterator[Setting]:
    """Yield a description of each setting, in order of declaration."""
    examples = {example.partition("=")[0]: example for example in _EXAMPLES.split()}
    for key, field in collect_setting_fields(Settings).items():
        default = field.get_default(call_default_factory=True)
        default_text = "none" if default in (None, (), {}) else json.dumps(default).strip('"')
        yield Setting(
            key,
            examples.get(key) or f"{key}={default_text}",
            _describe_type(field.annotation),
            default_text,
            _describe_bounds(field),
            field.description or "",
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
    """Print the settings by group, one per line, each with an example."""
    table = Table.grid(padding=(0, 2))
    table.add_row("example", "type", "default", "bounds", "meaning")
    for group, title in _GROUPS.items():
        table.add_row()
        table.add_row(Text(title, style="bold"))
        for key, example, *others in describe_settings():
            if key.rpartition(".")[0] == group:
                table.add_row(*map(Text, (quote(example), *others)))
    Console(piped_width=240).print(table)
