"""The examples run, and the example pairs cover every path of the pipeline."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from agent.runs.store.run_view import RunView, load_run
from agent.types import Cause, Status
from tests.sandbox.conftest import BACKENDS
from tests.views.reading import ReportPage

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def run(*command: str, folder: Path) -> str:
    return subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True, text=True).stdout


def measure(pairs: Path, folder: Path, commands: Path) -> tuple[dict[str, Any], ReportPage]:
    """Run the command of measure-searchers.md on a file of pairs. Return the scores and the parsed report."""
    (line,) = re.findall(r"^\$ (agent annotate .*)$", (EXAMPLES / "measure-searchers.md").read_text(), re.MULTILINE)
    (folder / "cosqa_dev.jsonl").symlink_to(pairs)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-c", line], cwd=folder, env={**os.environ, "PATH": path}, check=True)
    scores = json.loads((folder / "runs/cosqa/retrieval/scores.json").read_text())
    return scores, ReportPage(folder / "runs/cosqa/report.html")


def assert_shown(scores: dict[str, Any], page: ReportPage) -> None:
    """Check that the page contains every mean and every interval of the scores."""
    assert {"Labels", "Searchers"} <= set(page.titles)
    assert [searcher["searcher"] for searcher in scores["searchers"]] == ["bow", "tfidf", "bm25", "lsa", "ncs"]
    cells = {
        (row[0], metric): re.findall(r"\d\.\d{3}", cell)
        for table in page.get_figure("Means")["tables"]
        for row in table["rows"]
        for metric, cell in zip(table["columns"], row, strict=True)
    }
    for searcher in scores["searchers"]:
        for metric, value in searcher["values"].items():
            shown = [value["mean"], *(value["interval"] or {}).values()]
            assert cells[searcher["searcher"], metric] == [f"{number:.3f}" for number in shown]


@pytest.fixture(scope="module", params=BACKENDS)
def demo(request: pytest.FixtureRequest, commands: Path, tmp_path_factory: pytest.TempPathFactory) -> RunView:
    """The example pairs, annotated with the recorded replies on each backend."""
    folder = tmp_path_factory.mktemp("demo")
    replies = f"replay:{EXAMPLES / 'replies.jsonl'}"
    command = [commands / "agent", "annotate", EXAMPLES / "pairs.jsonl", "--model", replies, "--timeout", "5"]
    subprocess.run([*command, "--sandbox", request.param, "-o", "run"], cwd=folder, check=True)
    return load_run(folder / "run")


@pytest.mark.slow
def test_embed_uses_its_own_node_and_prompt(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "embed.py"), folder=tmp_path)
    assert re.findall(r"^(\d) .*\b([01])\b.*(judge|find_stubs):", printed, re.MULTILINE) == [
        ("1", "1", "judge"),
        ("2", "0", "find_stubs"),
        ("3", "0", "judge"),
    ]


@pytest.mark.bwrap
def test_embed_sql_tests_queries_on_a_database(tmp_path: Path) -> None:
    printed = run(str(EXAMPLES / "embed_sql.py"), folder=tmp_path)
    assert re.findall(r"^([\w-]+): .*\b([01]), .*None$", printed, re.MULTILINE) == [
        ("per-author", "1"),
        ("second-highest", "0"),
        ("typo", "0"),
    ]
    assert re.search(r"^  failed .*\[\[20\]\].*\[\[30\]\]$", printed, re.MULTILINE)


@pytest.mark.bwrap
@pytest.mark.long
def test_one_command_line_measures_searchers_from_pairs(commands: Path, tmp_path: Path) -> None:
    scores, page = measure(EXAMPLES / "pairs.jsonl", tmp_path, commands)
    assert (scores["queries"], scores["codes"]) == (16, 16)
    assert scores["scored"] == scores["relevant"] >= 1
    assert_shown(scores, page)


@pytest.mark.bwrap
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.real_data
def test_the_command_line_works_on_the_pairs_of_cosqa(commands: Path, real_data: Path, tmp_path: Path) -> None:
    scores, page = measure(real_data / "cosqa_dev.jsonl", tmp_path, commands)
    assert (scores["queries"], scores["codes"]) == (277, 264)
    assert scores["scored"] > 50
    assert_shown(scores, page)


@pytest.mark.bwrap
@pytest.mark.slow
def test_the_page_leads_from_queries_and_code_to_labels(commands: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "building-a-dataset.md").read_text()
    lines = re.findall(r"^\$ (agent .*)$", page.partition("`load_dataset` reads")[0], re.MULTILINE)
    steps = ["queries", "code", "candidates", "-", "-", "split", "describe", "-", "-"]
    assert [line.split()[2] if line.split()[1] == "corpus" else "-" for line in lines] == steps
    (tmp_path / "examples").symlink_to(EXAMPLES)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    script = "\n".join(["set -e", *lines])
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    sizes = {file.name: len(file.read_text().splitlines()) for file in (tmp_path / "corpus").glob("*.jsonl")}
    assert sizes == {
        "queries.jsonl": 12, "queries.removed.jsonl": 8, "codes.jsonl": 13, "codes.removed.jsonl": 2,
        "pairs.jsonl": 36, "pairs.removed.jsonl": 0,
    }  # fmt: skip
    parts = load_dataset(str(tmp_path / "dataset"), cache_dir=str(tmp_path / "cache"))
    assert parts.keys() == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == 21
    shown = [set(rows["query"]) for rows in parts.values()]
    assert sum(map(len, shown)) == len(set().union(*shown)) == 10
    with load_run(tmp_path / "runs/corpus") as view:
        names = {pair.id: (pair.query, pair.code.split("(")[0].split()[-1]) for pair in view.pairs()}
        labels = {names[annotation.id]: annotation.label for annotation in view.annotations()}
    assert None not in labels.values()
    assert (
        labels["python reverse a list", "reverse_list"]
        == labels["python check if year is leap year", "is_leap_year"]
        == 1
    )
    assert labels["python check if year is leap year", "is_palindrome"] == 0


@pytest.mark.network
class TestPaths:
    def test_every_pair_is_labelled(self, demo: RunView) -> None:
        annotations = list(demo.annotations())
        assert len(annotations) == 16
        assert [annotation.id for annotation in annotations if annotation.label is None or annotation.error] == []

    @pytest.mark.parametrize(("pair", "label"), [("clear-match", 1), ("clear-non-match", 0)])
    def test_clear_pairs_are_screened(self, demo: RunView, pair: str, label: int) -> None:
        annotation = demo.annotation(pair)
        assert (annotation.label, annotation.decided_by, annotation.test) == (label, "screen", None)

    @pytest.mark.parametrize(
        ("pair", "label", "status", "cause"),
        [
            ("chunks", 1, Status.PASSED, None),
            ("to-unicode", 1, Status.PASSED, None),
            ("iso-date", 1, Status.PASSED, None),
            ("roman", 1, Status.PASSED, None),
            ("dedupe-order", 0, Status.FAILED, Cause.SNIPPET),
            ("query-string", 0, Status.FAILED, Cause.SNIPPET),
            ("collatz", 0, Status.TIMEOUT, Cause.SNIPPET),
            ("print-lines", 1, Status.ERROR, Cause.SNIPPET),
            ("internal-client", 0, Status.ERROR, Cause.DEPENDENCY),
        ],
    )
    def test_unclear_pairs_are_tested(
        self, demo: RunView, pair: str, label: int, status: Status, cause: Cause | None
    ) -> None:
        annotation = demo.annotation(pair)
        assert (annotation.label, annotation.test.status, annotation.test.cause) == (label, status, cause)
        assert annotation.decided_by == "arbitrate"

    def test_a_missing_dependency_is_installed_without_the_model(self, demo: RunView) -> None:
        annotation, evidence = demo.annotation("iso-date"), demo.evidence("iso-date")
        assert "python-dateutil" in [name.split("==")[0] for name in annotation.installed]
        assert "repair" not in [model_call.role for model_call in evidence.model_calls]

    def test_the_models_commands_run_or_are_refused(self, demo: RunView) -> None:
        evidence = demo.evidence("roman")
        assert [(run.command.split()[0], run.outcome) for run in evidence.commands] == [
            ("pip", "installed"),
            ("apt-get", "refused"),
            ("pip", "installed"),
        ]
        statuses = [execution.report.status for execution in evidence.tests]
        assert statuses == [Status.ERROR, Status.ERROR, Status.PASSED]

    def test_a_repair_ends_if_the_model_sends_no_commands(self, demo: RunView) -> None:
        annotation, evidence = demo.annotation("internal-client"), demo.evidence("internal-client")
        assert (annotation.repairs, len(evidence.tests)) == (0, 1)
        assert "repair" in [model_call.role for model_call in evidence.model_calls]

    def test_an_unparsable_reply_is_retried(self, demo: RunView) -> None:
        evidence = demo.evidence("max-key")
        assert [model_call.problem is None for model_call in evidence.model_calls] == [False, True]

    def test_a_snippet_that_does_not_parse_is_never_run(self, demo: RunView) -> None:
        evidence = demo.evidence("print-lines")
        assert (evidence.executions, evidence.programs) == ((), ())


@pytest.mark.bwrap
def test_a_run_works_without_a_package_index(commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # an index without cached downloads: all tests share root's download cache
    environment = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    for name, value in {**environment, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    replies = [json.loads(line) for line in (EXAMPLES / "replies.jsonl").read_text().splitlines()]
    pair = next(line for line in (EXAMPLES / "pairs.jsonl").read_text().splitlines() if '"iso-date"' in line)
    (tmp_path / "pairs.jsonl").write_text(pair + "\n")
    given_up = {"pair": "iso-date", "role": "repair", "reply": "```bash\n```"}
    (tmp_path / "replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in [*replies, given_up]))
    command = [commands / "agent", "annotate", "pairs.jsonl", "--model", "replay:replies.jsonl", "--sandbox", "bwrap"]
    subprocess.run([*command, "-c", "sandbox.install_packages=false", "-o", "run"], cwd=tmp_path, check=True)
    with load_run(tmp_path / "run") as view:
        annotation, evidence = view.annotation("iso-date"), view.evidence("iso-date")
    assert (annotation.test.status, annotation.test.cause, annotation.error) == (Status.ERROR, Cause.DEPENDENCY, None)
    assert "network" in evidence.commands[0].output
