"""Helpers that create runs, export them and read the exports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.exports.registry import FORMATS
from agent.exports.rows import EVERYTHING, Export, ExportFilter
from agent.exports.target import open_target
from agent.pipeline.history import History
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.types import Annotation, Pair

IDENTITY = {"variant": {"name": "full"}, "model": {"default": {"kind": "openai", "model": "a-model"}, "roles": {}}}


def make_run(path: Path, pairs: Iterable[Pair], *rounds: Mapping[str, Any], **identity: Any) -> Path:
    """Create a finished run. Each of `rounds` contains annotation fields, for all pairs or by pair id."""
    pairs = list(pairs)
    with RunFolder(path, identity={**IDENTITY, **identity}, pairs=pairs, environment={}) as folder:
        for pair in pairs:
            for number, fields in enumerate(rounds or ({},)):
                values = {"label": 1, "decided_by": "screen", "reason": "it does", **fields.get(pair.id, fields)}
                annotation = Annotation(id=pair.id, input_sha256=pair.input_sha256(), round=number, **values)
                folder.commit(annotation, History(pair=pair))
    return path


def export_run(run: Path, format_name: str, target: Path, pair_filter: ExportFilter = EVERYTHING) -> Export:
    """Export a run to a new path."""
    with load_run(run) as view:
        export = Export(view, pair_filter)
        with open_target(target, FORMATS[format_name].entries, force=False) as draft:
            FORMATS[format_name].write(export, draft)
    return export


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]
