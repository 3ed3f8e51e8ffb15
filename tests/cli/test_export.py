"""`agent export` writes a run's labels for others, and says what is not among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.exports.registry import FORMATS, NAMES
from tests.cli.commands import Commands
from tests.views.runs import make_pairs, make_run


@pytest.fixture
def run(agent: Commands) -> Path:
    # of 60 pairs p7 and p57 are undecided, p8 and p58 ended in an error
    return make_run(agent.folder / "run", make_pairs(60))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("to", NAMES)
def test_an_export_lies_in_the_runs_folder_unless_it_is_said_where(agent: Commands, to: str) -> None:
    ended = agent("export", "run", "--to", to)
    assert (ended.code, ended.err) == (0, "")
    place = f"run/{FORMATS[to].default}"
    whole = "60 pairs\nlabels: 32 match · 24 no match · 2 undecided · 2 errors\n"
    labelled = "56 pairs\nlabels: 32 match · 24 no match · 0 undecided · 0 errors\n"
    told = labelled if to in ("beir", "cosqa-plus") else whole
    assert ended.out.startswith(f"{place}: {told}")
    assert ended.out.endswith("left out: 4 without a label\n") == (told == labelled)
    assert agent("export", "run", "--to", to, "-o", "mine").out.startswith(f"mine: {told}")
    made = sorted(path.relative_to(agent.folder / "mine") for path in (agent.folder / "mine").rglob("*"))
    assert made == sorted(path.relative_to(agent.folder / place) for path in (agent.folder / place).rglob("*"))
    assert {str(path) for path in made} - {"data", "qrels"} == FORMATS[to].entries


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--label", "null"), ["p7", "p8", "p57", "p58"]),
        (("--label", "null", "--errors"), ["p8", "p58"]),
        (("--label", "null", "--no-errors"), ["p7", "p57"]),
        (("--decided-by", "arbitrate", "--label", "0"), ["p0", "p12", "p24", "p36", "p48"]),
        (("--decided-by", "arbitrate", "--min-confidence", "0.85"), ["p6", "p15", "p24", "p33", "p42", "p51"]),
    ],
)
@pytest.mark.usefixtures("run")
def test_filters_choose_pairs_and_are_counted(agent: Commands, filters: Sequence[str], ids: list[str]) -> None:
    told = agent("export", "run", "--to", "jsonl", "--json", *filters).json
    assert [line["id"] for line in lines(agent.folder / "run/export.jsonl")] == ids
    assert (told["path"], told["to"], told["pairs"]) == ("run/export.jsonl", "jsonl", len(ids))
    assert sum(told["labels"].values()) == len(ids)
    assert told["left_out"] == {"by the filters": 60 - len(ids)}


def test_an_export_takes_the_place_of_an_earlier_one_alone_and_only_when_forced(agent: Commands, run: Path) -> None:
    (agent.folder / "notes").mkdir()
    (agent.folder / "notes/README.md").write_text("mine")
    (agent.folder / "notes/other.txt").write_text("mine")
    (agent.folder / "link").symlink_to(agent.folder / "notes")
    before = {path: path.read_bytes() for path in (*run.iterdir(), *(agent.folder / "notes").iterdir())}
    assert agent("export", "run", "--to", "jsonl", "-o", "out").code == 0
    assert agent("export", "run", "--to", "beir", "-o", "folder").code == 0
    old = (agent.folder / "out").read_bytes()
    for to, out, force, message in (
        ("jsonl", "out", (), "out: already exists"),
        ("beir", "folder", (), "folder: already exists"),
        ("hf", "folder", ("--force",), "folder: contains 'corpus.jsonl'"),
        ("hf", "notes", ("--force",), "notes: contains 'other.txt'"),
        ("hf", "link", ("--force",), "link: exists and is not a folder"),
        ("hf", "out", ("--force",), "out: exists and is not a folder"),
        ("jsonl", "folder", ("--force",), "folder: exists and is not a file"),
        ("jsonl", "run/labels.jsonl", ("--force",), "run/labels.jsonl: "),
        ("jsonl", "gone/out", (), "gone/out: folder gone "),
    ):
        refused = agent("export", "run", "--to", to, "-o", out, *force)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"agent: {message}")
    assert {path: path.read_bytes() for path in before} == before
    assert (agent.folder / "out").read_bytes() == old
    assert agent("export", "run", "--to", "jsonl", "-o", "out", "--force", "--label", "1").code == 0
    assert len(lines(agent.folder / "out")) == 32
    assert agent("export", "run", "--to", "beir", "-o", "folder", "--force", "--label", "1").code == 0
    assert (agent.folder / "folder/qrels/test.tsv").read_text().count("\n") == 33


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("to", NAMES)
def test_what_cannot_be_exported_is_told_and_leaves_nothing(agent: Commands, to: str) -> None:
    for arguments, message in (
        (
            ("run", "--decided-by", "judge"),
            "60 by the filters. Pairs are decided by: arbitrate, screen",
        ),
        (("run", "--label", "2"), "--label 2: a label is 0, 1 or null"),
        (("gone",), "gone: no such folder"),
    ):
        ended = agent("export", *arguments, "--to", to)
        assert (ended.code, ended.out) == (2, "")
        assert message in ended.err
        assert "Traceback" not in ended.err
    damaged = agent.folder / "run/annotations.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"reason":', b'"reason":1,"x":', 40).replace(b"1,", b"[],", 1))
    assert agent("export", "run", "--to", to).code == 2
    assert not [path for path in (agent.folder / "run").iterdir() if "export" in path.name]
