"""`agent export` writes a run's labels and reports what it left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.exports.registry import FORMATS, NAMES
from tests.cli.commands import Commands
from tests.exports.runs import read_lines
from tests.views.runs import make_pairs, make_run


@pytest.fixture
def run(agent: Commands) -> Path:
    # pairs p7 and p57 are undecided, and p8 and p58 ended in an error
    return make_run(agent.folder / "run", make_pairs(60))


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("to", NAMES)
def test_export_is_written_to_the_run_folder_or_to_out(agent: Commands, to: str) -> None:
    result = agent("export", "run", "--to", to)
    assert (result.code, result.err) == (0, "")
    target = f"run/{FORMATS[to].default}"
    all_labels = "60 pairs\nlabels: 32 match · 24 no match · 2 undecided · 2 errors\n"
    labelled = "56 pairs\nlabels: 32 match · 24 no match · 0 undecided · 0 errors\n"
    summary = labelled if to in ("beir", "cosqa-plus") else all_labels
    assert result.out.startswith(f"{target}: {summary}")
    assert bool(re.search(r"^left out: 4 ", result.out, re.M)) == (summary == labelled)
    assert agent("export", "run", "--to", to, "-o", "mine").out.startswith(f"mine: {summary}")
    files = sorted(path.relative_to(agent.folder / "mine") for path in (agent.folder / "mine").rglob("*"))
    assert files == sorted(path.relative_to(agent.folder / target) for path in (agent.folder / target).rglob("*"))
    assert {str(path) for path in files} - {"data", "qrels"} == FORMATS[to].entries


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--label", "null"), ["p7", "p8", "p57", "p58"]),
        (("--label", "null", "--errors"), ["p8", "p58"]),
        (("--label", "null", "--no-errors"), ["p7", "p57"]),
        (("--decided-by", "arbitrate", "--label", "0"), ["p0", "p12", "p24", "p36", "p48"]),
    ],
)
@pytest.mark.usefixtures("run")
def test_filters_select_pairs_and_count_the_rest(agent: Commands, filters: Sequence[str], ids: list[str]) -> None:
    summary = agent("export", "run", "--to", "jsonl", "--json", *filters).json
    assert [line["id"] for line in read_lines(agent.folder / "run/export.jsonl")] == ids
    assert (summary["path"], summary["to"], summary["pairs"]) == ("run/export.jsonl", "jsonl", len(ids))
    assert sum(summary["labels"].values()) == len(ids)
    assert list(summary["left_out"].values()) == [60 - len(ids)]


def test_export_replaces_only_an_earlier_export_and_only_with_force(agent: Commands, run: Path) -> None:
    (agent.folder / "notes").mkdir()
    (agent.folder / "notes/README.md").write_text("mine")
    (agent.folder / "notes/other.txt").write_text("mine")
    (agent.folder / "link").symlink_to(agent.folder / "notes")
    before = {path: path.read_bytes() for path in (*run.iterdir(), *(agent.folder / "notes").iterdir())}
    assert agent("export", "run", "--to", "jsonl", "-o", "out").code == 0
    assert agent("export", "run", "--to", "beir", "-o", "folder").code == 0
    old = (agent.folder / "out").read_bytes()
    for to, out, force, path in (
        ("jsonl", "out", (), "out"),
        ("beir", "folder", (), "folder"),
        ("hf", "folder", ("--force",), "folder"),
        ("hf", "notes", ("--force",), "notes"),
        ("hf", "link", ("--force",), "link"),
        ("hf", "out", ("--force",), "out"),
        ("jsonl", "folder", ("--force",), "folder"),
        ("jsonl", "run/labels.jsonl", ("--force",), "run/labels.jsonl"),
        ("jsonl", "out/out", (), "out/out"),
    ):
        agent.check_refused(f"agent: {path}: ", "export", "run", "--to", to, "-o", out, *force)
    assert {path: path.read_bytes() for path in before} == before
    assert (agent.folder / "out").read_bytes() == old
    assert agent("export", "run", "--to", "jsonl", "-o", "out", "--force", "--label", "1").code == 0
    assert len(read_lines(agent.folder / "out")) == 32
    assert agent("export", "run", "--to", "beir", "-o", "folder", "--force", "--label", "1").code == 0
    assert (agent.folder / "folder/qrels/test.tsv").read_text().count("\n") == 33


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("to", NAMES)
def test_failed_export_is_reported_and_leaves_no_file(agent: Commands, to: str) -> None:
    for arguments, message in (
        (("run", "--decided-by", "judge"), "arbitrate, screen"),
        (("run", "--label", "2"), "--label 2: "),
        (("gone",), "gone: "),
    ):
        agent.check_refused(message, "export", *arguments, "--to", to)
    damaged = agent.folder / "run/annotations.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"reason":', b'"reason":1,"x":', 40).replace(b"1,", b"[],", 1))
    assert agent("export", "run", "--to", to).code == 2
    assert not [path for path in (agent.folder / "run").iterdir() if "export" in path.name]
