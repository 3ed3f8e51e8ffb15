"""Files of groups are read as they were written, and a malformed line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.groups import EquivalenceGroup, read_groups
from agent.errors import InputError

MEMBERS = [{"id": name, "code": "x", "informative": 3, "mutants": 4, "told_apart": 4} for name in "ab"]
CALL = {"input": "1", "output": "2"}
GROUP = {"id": "g1", "members": MEMBERS, "inputs": 5, "informative": 3, "outputs": 3, "evidence": [CALL]}


def test_groups_are_read_as_they_were_written(tmp_path: Path) -> None:
    group, path = EquivalenceGroup.model_validate(GROUP), tmp_path / "g.jsonl"
    path.write_text(group.model_dump_json() + "\n")
    assert [*read_groups(path)] == [group]


@pytest.mark.parametrize("line", [GROUP | {"members": MEMBERS[:1]}, GROUP | {"extra": 1}, {}, [], "{"])
def test_a_malformed_line_is_named(tmp_path: Path, line: Any) -> None:
    (tmp_path / "g.jsonl").write_text(json.dumps(GROUP) + "\n" + (line if line == "{" else json.dumps(line)) + "\n")
    with pytest.raises(InputError, match=r"g\.jsonl:2"):
        list(read_groups(tmp_path / "g.jsonl"))
