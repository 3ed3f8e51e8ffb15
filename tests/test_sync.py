"""The interface without an event loop: a list of annotations, or one after another."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent import Annotations, ScriptedLLM, ScriptedSandbox, annotate, stream
from agent.errors import AccountError, UsageError
from tests.scripts import PAIR
from tests.test_annotator import PAIRS, matching


def options() -> dict[str, Any]:
    return {"model": ScriptedLLM(matching), "sandbox": ScriptedSandbox()}


def test_annotate_returns_a_list_in_input_order() -> None:
    found = annotate(PAIRS, **options())
    assert isinstance(found, Annotations)
    assert [annotation.id for annotation in found] == [pair.id for pair in PAIRS]
    assert [annotation.id for annotation in annotate(PAIRS, limit=2, **options())] == ["0", "1"]


async def test_it_works_inside_a_running_event_loop() -> None:
    assert len(annotate(PAIRS, **options())) == len(PAIRS)
    assert len(list(stream(PAIRS, **options()))) == len(PAIRS)


def test_leaving_the_stream_ends_its_thread() -> None:
    annotations = stream(PAIRS, **options())
    next(annotations)
    annotations.close()
    assert "agent.annotate" not in [thread.name for thread in threading.enumerate()]


def test_errors_reach_the_caller() -> None:
    with pytest.raises(AccountError):
        annotate(PAIRS, model=ScriptedLLM(lambda _: AccountError("no credit")), sandbox=ScriptedSandbox())
    with pytest.raises(UsageError, match=r"rounds: .*not '4'"):
        annotate([PAIR], rounds="4", **options())
