"""Sample annotations, evidence and run folders."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.pipeline.history import Command, Execution, History, HistoryItem, ModelCall
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, ErrorInfo, Pair, Status, TestReport, Usage, Verdict
from tests.histories import make_program

SYSTEM = "You write tests. " * 50
REPORT = TestReport(
    status=Status.FAILED,
    cases=(
        CaseResult(name="test_a", outcome=CaseOutcome.PASSED),
        CaseResult(name="test_b", outcome=CaseOutcome.FAILED, message="1 != 2", cause=Cause.SNIPPET),
        CaseResult(name="test_c", outcome=CaseOutcome.ERROR, message="\ud800\x00", cause=Cause.PROGRAM),
    ),
)


def make_pair(pair_id: str = "a", **fields: Any) -> Pair:
    return Pair(id=pair_id, query="reverse a list", code="def f(x):\n    return x[::-1]", **fields)


def make_annotation(pair_id: str = "a", **fields: Any) -> Annotation:
    return Annotation(**{"id": pair_id, "input_sha256": "0" * 64, **fields})


def make_error(pair_id: str = "a", **fields: Any) -> Annotation:
    return make_annotation(pair_id, error=ErrorInfo(type="ModelError", message="no reply"), **fields)


def make_full_annotation() -> Annotation:
    """Return an annotation with every field set and hostile text in text fields."""
    return make_annotation(
        "hostile\ud800\n\x00",
        label=0,
        decided_by="arbitrate",
        reason="line\nbreak \u2028 \ud800",
        screen_verdict=Verdict.UNCLEAR,
        test=REPORT,
        stand_ins=("Fake",),
        repairs=1,
        installed=("numpy==1.0",),
        seconds=1.5,
        usage=Usage(calls=2, input_tokens=3, cost_usd=None),
        meta={"label": 1, "big": 2**70, "\udfff": ["x", None, 1.5]},
    )


def make_command(text: str) -> Command:
    return Command(command="echo", outcome="ran", output=text)


def make_evidence(pair_id: str = "a", *more: HistoryItem, usage: Usage = Usage(), **fields: Any) -> History:
    model_call = ModelCall(
        role="screen",
        key="k" * 64,
        messages=(
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"pair {pair_id}"},
        ),
        reply='{"verdict": "unclear"}\ud800',
        usage=usage,
        raw={"choices": [{"message": {"content": "x"}}]},
    )
    execution = Execution(program=0, report=REPORT, installed=("numpy==1.0",), stdout="\x1b[31m\x00")
    command = Command(command="pip install x", outcome="refused")
    events = (model_call, make_program("assert True\n"), execution, command, *more)
    return History(pair=make_pair(pair_id), **{"events": events, **fields})


def open_folder(path: Path, *, pairs: Iterable[str | Pair] = "012", **options: Any) -> RunFolder:
    """Create or resume a run. `pairs` contains pairs or their ids."""
    return RunFolder(
        path,
        **{
            "identity": {"model": "m", "prompts": {"screen": "abc"}},
            "pairs": [make_pair(pair) if isinstance(pair, str) else pair for pair in pairs],
            "environment": {"versions": {"agent": "0.1"}},
            **options,
        },
    )


def execute_sql(path: Path, statement: str, *values: object) -> list[Any]:
    """Execute a statement on a database and return its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def read_evidence(folder: Path, pair_id: str = "1") -> History:
    with load_run(folder) as run:
        evidence = run.evidence(pair_id)
    assert evidence is not None
    return evidence


def commit(folder: RunFolder, pair_id: str, **fields: Any) -> None:
    annotation = make_annotation(pair_id, **fields)
    folder.commit(annotation, make_evidence(pair_id, usage=annotation.usage))
