"""`agent report` writes a run's page and says where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.views.reading import Read
from tests.views.runs import make_pairs, make_run
from tests.views.test_comparison import write


@pytest.fixture
def run(agent: Commands) -> Path:
    return make_run(agent.folder / "run", make_pairs(8))


@pytest.mark.usefixtures("run")
def test_the_page_lies_in_the_runs_folder_unless_it_is_said_where(agent: Commands) -> None:
    ended = agent("report", "run")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "run/report.html (1.3 MB, 8 annotations)\n"
    assert len(Read(agent.folder / "run/report.html").rows) == 8
    assert agent("report", "run", "-o", "page.html").code == 0
    assert (agent.folder / "page.html").read_bytes() == (agent.folder / "run/report.html").read_bytes()


@pytest.mark.usefixtures("run")
def test_json_tells_file_size_and_what_was_left_out(agent: Commands) -> None:
    told = agent("report", "run", "--evidence", "none", "--json").json
    assert told["path"] == "run/report.html"
    assert told["bytes"] == (agent.folder / "run/report.html").stat().st_size
    assert (told["annotations"], told["listed"], told["with_evidence"], told["ablation"]) == (8, 8, 0, False)
    assert told["notes"] == ["Evidence of 8 annotations was not asked for (--evidence)."]


@pytest.mark.usefixtures("run")
def test_with_gold_it_tells_scores_and_calibration(agent: Commands) -> None:
    rows = [{"id": f"p{number}", "label": number % 2} for number in range(8)]
    ended = agent("report", "run", "--gold", agent.write("gold.jsonl", rows))
    assert ended.code == 0
    read = Read(agent.folder / "run/report.html")
    assert "Against gold" in read.titles
    assert read.block("Scores")["tables"][0]["rows"][0][:2] == ["accuracy", "0.500"]
    assert read.block("Calibration")["chart"]
    assert [row["gold"] for row in read.rows] == [0, 1] * 4


def test_an_ablations_report_lies_in_its_folder_has_its_name_and_lists_the_pairs_of_its_full_run(
    agent: Commands,
) -> None:
    write(agent.folder / "out", "ps_fa", "full")
    make_run(agent.folder / "out/full", make_pairs(40))
    ended = agent("report", "out")
    assert ended.out.startswith("out/report.html")
    assert ended.err == "note: the page lists the pairs of out/full; give another run's folder for those of that one\n"
    assert not (agent.folder / "out/full/report.html").exists()
    page = agent.folder / "out/report.html"
    assert "<title>out/full · report</title>" in page.read_text()
    read = Read(page)
    assert [row[0] for row in read.block("Accuracy of the variants")["tables"][0]["rows"]] == ["ps_fa", "full"]
    assert agent("report", "out", "--json").json["run"] == "out/full"
    assert agent("report", "out/full").out.startswith("out/full/report.html")


@pytest.mark.parametrize("name", ["run/annotations.jsonl", "run/reviews.jsonl", "gold.jsonl"])
def test_a_page_takes_the_place_of_nothing_but_a_page(agent: Commands, run: Path, name: str) -> None:
    (agent.folder / "gold.jsonl").write_text('{"id": "p0", "label": 1}\n')
    before = {path: path.read_bytes() for path in (agent.folder / "gold.jsonl", *run.iterdir()) if path.is_file()}
    refused = agent("report", "run", "-o", name)
    assert (refused.code, refused.err.startswith(f"agent: {name}: ")) == (2, True)
    assert "(-o)" in refused.err
    assert {path: path.read_bytes() for path in before} == before
    assert not (run / "reviews.jsonl").exists()


@pytest.mark.usefixtures("run")
def test_what_cannot_be_reported_on_is_told_and_leaves_no_file(agent: Commands) -> None:
    (agent.folder / "empty").mkdir()
    (agent.folder / "others.jsonl").write_text(json.dumps({"id": "other", "label": 1}) + "\n")
    for arguments, code, message in (
        (("gone",), 2, "gone: no such folder"),
        (("empty",), 2, "manifest.json"),
        (("run", "--gold", "gone.jsonl"), 2, "gone.jsonl"),
        (("run", "--gold", "others.jsonl"), 2, "others.jsonl: "),
        (("run", "-o", "gone/page.html"), 2, "gone/page.html: folder gone "),
        (("run", "-o", "empty"), 2, "empty: exists and is not a file"),
        (("run", "--max-mb", "1"), 2, "--max-mb"),
    ):
        ended = agent("report", *arguments)
        assert (ended.code, ended.out) == (code, "")
        assert message in ended.err
        assert "Traceback" not in ended.err
    assert not (agent.folder / "run/report.html").exists()
