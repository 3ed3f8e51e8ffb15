"""`agent report` writes a run's page and prints its path."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import Commands
from tests.views.reading import ReportPage
from tests.views.runs import make_pairs, make_run
from tests.views.test_comparison import write_ablation


@pytest.fixture
def run(agent: Commands) -> Path:
    return make_run(agent.folder / "run", make_pairs(8))


@pytest.mark.usefixtures("run")
def test_page_is_written_to_the_run_folder_or_to_out(agent: Commands) -> None:
    result = agent("report", "run")
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(r"run/report\.html \(1\.3 MB, 8 \w+\)\n", result.out)
    assert len(ReportPage(agent.folder / "run/report.html").rows) == 8
    assert agent("report", "run", "-o", "page.html").code == 0
    assert (agent.folder / "page.html").read_bytes() == (agent.folder / "run/report.html").read_bytes()


@pytest.mark.usefixtures("run")
def test_json_has_path_size_and_omissions(agent: Commands) -> None:
    document = agent("report", "run", "--evidence", "none", "--json").json
    assert document["path"] == "run/report.html"
    assert document["bytes"] == (agent.folder / "run/report.html").stat().st_size
    counts = [document[name] for name in ("annotations", "listed", "with_evidence", "ablation")]
    assert counts == [8, 8, 0, False]
    assert [re.findall(r"\d+|--\w+", note) for note in document["notes"]] == [["8", "--evidence"]]


@pytest.mark.usefixtures("run")
def test_gold_adds_scores(agent: Commands) -> None:
    rows = [{"id": f"p{number}", "label": number % 2} for number in range(8)]
    result = agent("report", "run", "--gold", agent.write("gold.jsonl", rows))
    assert result.code == 0
    read = ReportPage(agent.folder / "run/report.html")
    assert "Comparison with gold labels" in read.titles
    scores = read.get_figure("run run: 8 pairs with gold labels, 8 queries")
    assert scores["tables"][0]["rows"][1][:2] == ["accuracy", "0.500"]
    assert [row["gold"] for row in read.rows] == [0, 1] * 4


def test_ablation_report_lists_the_pairs_of_its_full_run(
    agent: Commands,
) -> None:
    write_ablation(agent.folder / "out", "ps_fa", "full")
    make_run(agent.folder / "out/full", make_pairs(40))
    result = agent("report", "out")
    assert result.out.startswith("out/report.html")
    assert re.fullmatch(r"note: .*out/full.*\n", result.err)
    assert not (agent.folder / "out/full/report.html").exists()
    page = agent.folder / "out/report.html"
    assert "<title>out/full" in page.read_text()
    read = ReportPage(page)
    assert [row[0] for row in read.get_figure("Accuracy of the variants")["tables"][0]["rows"]] == ["ps_fa", "full"]
    assert agent("report", "out", "--json").json["run"] == "out/full"
    assert agent("report", "out/full").out.startswith("out/full/report.html")


@pytest.mark.parametrize("name", ["run/annotations.jsonl", "run/reviews.jsonl", "gold.jsonl"])
def test_page_replaces_only_a_page(agent: Commands, run: Path, name: str) -> None:
    (agent.folder / "gold.jsonl").write_text('{"id": "p0", "label": 1}\n')
    before = {path: path.read_bytes() for path in (agent.folder / "gold.jsonl", *run.iterdir()) if path.is_file()}
    assert "-o" in agent.check_refused(f"agent: {name}: ", "report", "run", "-o", name)
    assert {path: path.read_bytes() for path in before} == before
    assert not (run / "reviews.jsonl").exists()


@pytest.mark.usefixtures("run")
def test_failed_report_leaves_no_file(agent: Commands) -> None:
    (agent.folder / "empty").mkdir()
    (agent.folder / "others.jsonl").write_text(json.dumps({"id": "other", "label": 1}) + "\n")
    for arguments, message in (
        (("gone",), "gone: "),
        (("empty",), "empty: "),
        (("run", "--gold", "gone.jsonl"), "gone.jsonl"),
        (("run", "--gold", "others.jsonl"), "others.jsonl"),
        (("run", "-o", "others.jsonl/page.html"), "others.jsonl/page.html: "),
        (("run", "-o", "empty"), "empty: "),
        (("run", "--max-mb", "1"), "--max-mb"),
    ):
        agent.check_refused(message, "report", *arguments)
    assert not (agent.folder / "run/report.html").exists()
