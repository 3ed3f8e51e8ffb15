"""The synchronous interface returns a list of annotations or iterates over them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent import Annotations, ScriptedLLM, ScriptedSandbox, annotate, stream
from agent.errors import AccountError, UsageError
from tests.scripts import PAIR
from tests.test_annotator import PAIRS, matching


def make_options() -> dict[str, Any]:
    return {"model": ScriptedLLM(matching), "sandbox": ScriptedSandbox()}


def test_annotate_returns_a_list_in_input_order() -> None:
    annotations = annotate(PAIRS, **make_options())
    assert isinstance(annotations, Annotations)
    assert [annotation.id for annotation in annotations] == [pair.id for pair in PAIRS]
    assert [annotation.id for annotation in annotate(PAIRS, limit=2, **make_options())] == ["0", "1"]


async def test_both_functions_work_inside_a_running_event_loop() -> None:
    assert len(annotate(PAIRS, **make_options())) == len(PAIRS)
    assert len(list(stream(PAIRS, **make_options()))) == len(PAIRS)


def test_leaving_the_stream_ends_its_thread() -> None:
    annotations = stream(PAIRS, **make_options())
    next(annotations)
    annotations.close()
    assert "agent.annotate" not in [thread.name for thread in threading.enumerate()]


def test_errors_reach_the_caller() -> None:
    with pytest.raises(AccountError):
        annotate(PAIRS, model=ScriptedLLM(lambda _: AccountError("no credit")), sandbox=ScriptedSandbox())
    with pytest.raises(UsageError, match="rounds='4'"):
        annotate([PAIR], rounds="4", **make_options())
