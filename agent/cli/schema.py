"""`agent schema`: prints the JSON Schema for the lines in a run's files."""

from __future__ import annotations

import json
from typing import Any

import typer
from pydantic import TypeAdapter

from agent.cli.text import print_json
from agent.runs.store.annotations import PairLabel
from agent.types import Annotation

SCHEMAS: dict[str, type[Any]] = {"labels": PairLabel, "annotations": Annotation}


def run(of: str, *, as_json: bool) -> None:
    """Print the schema for the lines in a file, indented, or on one line if `as_json` is true."""
    schema = make_schema(of)
    if as_json:
        print_json(schema)
    else:
        typer.echo(json.dumps(schema, indent=2))


def make_schema(of: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) for a line in `labels.jsonl` or `annotations.jsonl`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(SCHEMAS[of]).json_schema(mode="serialization"),
    }
