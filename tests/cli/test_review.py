"""`agent review` rejects invalid options before it serves a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.views.review_runs import make_run


@pytest.fixture
def run(agent: Commands) -> Path:
    return make_run(agent.folder / "run", {f"p{number}": {"label": number % 2} for number in range(6)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--queue", "undecided", "--sample", "5"), "--sample"),
        (("--queue", "everything"), "undecided, disputed, generated"),
        (("--limit", "5"), "--queue"),
        (("--only", "generated", "--queue", "disputed"), "--only"),
        (("--only", "generated", "--sample", "5"), "--sample"),
        (("--queries", "5", "--sample", "5"), "--queries"),
        (("--queries", "5"), "--queries"),
        (("--stratify", "lable"), "'lable'"),
        (("--sample", "1"), "2 strata"),
        (("--reviewer", "a\nb"), "--reviewer: "),
        (("--reviewer", "\x1b[31m"), "--reviewer: "),
    ],
)
def test_invalid_options_leave_no_sample(agent: Commands, run: Path, options: tuple[str, ...], message: str) -> None:
    agent.check_refused(message, "review", "run", *options)
    assert not (run / "review_sample.json").exists()


def test_folder_without_run_is_rejected(agent: Commands) -> None:
    agent.check_refused("gone: ", "review", "gone")


def test_empty_queue_exits_with_0(agent: Commands, run: Path) -> None:
    result = agent("review", run, "--queue", "undecided")
    assert (result.code, result.out, str(run) in result.err) == (0, "", True)


def test_a_run_without_generated_code_has_nothing_to_review(agent: Commands, run: Path) -> None:
    result = agent("review", run, "--only", "generated")
    assert (result.code, result.out, "generated" in result.err) == (0, "", True)


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_missing_extra_is_named(agent: Commands, run: Path, library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import agent.cli; agent.cli.main()"
    result = agent.run_python(code, "review", run)
    assert (result.code, result.out) == (2, "")
    assert "pip install 'test-driven-annotator[review]'" in result.err
