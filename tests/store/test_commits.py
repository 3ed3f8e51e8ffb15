"""A pair that the model's server failed is finished once the server answers again, or when all others are through."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.errors import ModelOutage
from agent.store import load_run
from agent.store.commits import Commits
from agent.types import ErrorInfo, Usage
from tests.store.samples import make_annotation, make_error, make_evidence, open_folder

FAILED = make_annotation(
    "failed", error=ErrorInfo(type="ModelUnavailable", message="HTTP 503"), usage=Usage(calls=1, cost_usd=0.25)
)


def kept(run: Path) -> tuple[list[str], float | None]:
    with load_run(run) as view:
        return [annotation.id for annotation in view.annotations()], view.spent_usd


def test_it_waits_for_the_next_answer(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "run")
    with Commits(folder) as commits:
        commits.add(FAILED, make_evidence("failed"))
        commits.add(make_annotation("other", label=1), make_evidence("other"))
        assert folder.done() == {("other", 0)}
        commits.answered()
        assert folder.done() == {("other", 0), ("failed", 0)}


def test_an_error_of_the_pair_itself_does_not_wait(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "run")
    with Commits(folder) as commits:
        commits.add(make_error("unreadable"), make_evidence("unreadable"))
        assert folder.done() == {("unreadable", 0)}


def test_it_is_an_error_when_all_others_are_through(tmp_path: Path) -> None:
    with Commits(open_folder(tmp_path / "run")) as commits:
        commits.add(FAILED, make_evidence("failed"))
    assert kept(tmp_path / "run") == (["failed"], 0.25)


@pytest.mark.parametrize("end", [ModelOutage("gone"), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
def test_it_is_taken_again_when_the_run_ends_before_and_what_it_cost_is_kept(
    tmp_path: Path, end: BaseException
) -> None:
    def run() -> None:
        with Commits(open_folder(tmp_path / "run")) as commits:
            commits.add(FAILED, make_evidence("failed"))
            raise end

    with pytest.raises(type(end)):
        run()
    assert kept(tmp_path / "run") == ([], 0.25)
