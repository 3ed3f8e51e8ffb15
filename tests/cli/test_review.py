"""`agent review` refuses what makes no sense before it serves anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, Commands, environment
from tests.views.review_runs import make_run


@pytest.fixture
def run(agent: Commands) -> Path:
    return make_run(agent.folder / "run", {f"p{number}": {"label": number % 2} for number in range(6)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--queue", "undecided", "--sample", "5"), "give one of them"),
        (("--queue", "everything"), "there is undecided, disputed, low-confidence"),
        (
            ("--queue", "low-confidence"),
            "no label of this run has a confidence (the variant full_plus gives one)",
        ),
        (("--limit", "5"), "--limit is for --queue"),
        (("--stratify", "lable"), "decided_by, label"),
        (("--sample", "1"), "2 strata"),
        (("--reviewer", "a\nb"), "--reviewer: a name is one line"),
        (("--reviewer", "\x1b[31m"), "--reviewer: a name is one line"),
    ],
)
def test_what_makes_no_sense_is_told_and_leaves_no_sample(
    agent: Commands, run: Path, options: tuple[str, ...], message: str
) -> None:
    ended = agent("review", "run", *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert not (run / "review_sample.json").exists()


def test_a_folder_that_is_no_run_is_told(agent: Commands) -> None:
    ended = agent("review", "gone")
    assert (ended.code, "gone: no such folder" in ended.err) == (2, True)


def test_an_empty_queue_is_nothing_to_review(agent: Commands, run: Path) -> None:
    ended = agent("review", run, "--queue", "undecided")
    assert (ended.code, ended.out) == (0, "")
    assert "Nothing to review" in ended.err


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(run: Path, library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import agent.cli; agent.cli.main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "review", str(run)], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "pip install 'test-driven-annotator[review]'" in ended.stderr
