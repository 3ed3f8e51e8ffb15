"""`agent schema` prints the JSON Schema of the lines of a run's files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agent.cli.schema import make_schema
from tests.cli.commands import Commands
from tests.runs.store.samples import make_annotation, make_error, make_evidence, make_full_annotation, open_folder

DOCUMENT = Path(__file__).parents[2] / "docs/file-formats.md"


@pytest.fixture
def run(agent: Commands) -> Path:
    with open_folder(agent.folder / "run", pairs=["0", "1", "2"]) as folder:
        fields = {**make_full_annotation().model_dump(by_alias=True, exclude={"id"}), "id": "2"}
        for annotation in (make_annotation("0"), make_error("1"), type(make_full_annotation()).model_validate(fields)):
            folder.commit(annotation, make_evidence(annotation.id))
    return agent.folder / "run"


@pytest.mark.parametrize("of", ["labels", "annotations"])
def test_schema_accepts_lines_and_rejects_broken_ones(agent: Commands, run: Path, of: str) -> None:
    schema = agent("schema", of, "--json").json
    assert agent("schema", of).json == schema
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    lines = [json.loads(line) for line in (run / f"{of}.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == 3
    for line in lines:
        validator.validate(line)
        assert set(line) <= set(schema["properties"])
        assert not validator.is_valid({**line, "label": 2})
        assert not validator.is_valid({name: value for name, value in line.items() if name != "id"})


@pytest.mark.parametrize("of", ["labels", "annotations"])
def test_every_field_is_in_the_documentation(of: str) -> None:
    section = DOCUMENT.read_text("utf-8").split(f"## `{of}.jsonl`\n")[1].split("\n## ")[0]
    rows = (line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(make_schema(of)["properties"])
