"""Files of mutants: each mutant is read with its right code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.mutants import read_contrasts
from agent.errors import InputError

RIGHT = {"id": "f", "query": "add one", "code": "def f(x):\n    return x + 1", "label": 1}
RECORD = {"of": "f", "kind": "off_by_one", "change": "line 2: `1` became `2`", "check": "inputs"}
WRONG = {**RIGHT, "id": "f-1", "code": "def f(x):\n    return x + 2", "label": 0, "mutant": RECORD}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("right", [RIGHT, {**RIGHT, "mutant": None}])  # Parquet files have a value in each row
def test_each_mutant_is_read_with_its_right_code(tmp_path: Path, right: dict[str, Any]) -> None:
    others = ({**WRONG, "id": f"label {label}", "label": label} for label in (1, None))
    [contrast] = read_contrasts(write(tmp_path / "pairs.jsonl", right, WRONG, *others))
    assert (contrast.function, contrast.right, contrast.wrong) == ("f", RIGHT["code"], WRONG["code"])
    assert (contrast.mutant.kind, contrast.mutant.crashes) == ("off_by_one", False)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([RIGHT], id="no mutants"),
        pytest.param([WRONG], id="no right code"),
        pytest.param([{**RIGHT, "query": "other"}, WRONG], id="another query"),
        pytest.param([{**RIGHT, "label": 0}, WRONG], id="right code with label 0"),
        pytest.param([RIGHT, {**WRONG, "mutant": {**RECORD, "check": "opinion"}}], id="malformed record"),
    ],
)
def test_a_file_that_is_not_complete_is_refused(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError):
        list(read_contrasts(write(tmp_path / "pairs.jsonl", *rows)))
