from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.llm.heuristic.running import LANGUAGE, written

pytestmark = [pytest.mark.real_data, pytest.mark.filterwarnings("ignore:invalid escape sequence")]


def test_every_program_around_a_real_snippet_compiles_and_has_cases() -> None:
    folder = Path(os.environ["AGENT_REAL_DATA"])
    rows = [json.loads(line) for line in folder.joinpath("cosqa_dev.jsonl").read_text("utf-8").splitlines()]
    whole = [row for row in rows if LANGUAGE.inspect(row["code"]).problem is None]
    assert len(whole) > 250
    for row in whole:
        _, program = written(row["doc"], row["code"])
        compile(program.source, row["idx"], "exec", dont_inherit=True)
        assert program.cases
