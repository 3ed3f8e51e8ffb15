"""`agent retrieval audit` and `--on-unknown-id`: output, files, hostile text and wrong usage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent.cli.exit_codes import DONE, WRONG_USAGE
from tests.cli.commands import Commands
from tests.corpus.test_audit import FACTS, make_group
from tests.datasets.benchmarks.test_beir import write_beir
from tests.evaluation.runs import write_lines
from tests.retrieval.pooled import CODES, QUERIES, make_folder
from tests.views.reading import ReportPage
from tests.views.runs import HOSTILE

UNKNOWN = "q1\td1\t1\nq2\tgone\t1\nnobody\td1\t1\n"


def test_facts_are_printed_and_written_for_the_report(agent: Commands) -> None:
    make_folder(agent.folder)
    (agent.folder / "groups.jsonl").write_text(make_group("g", CODES["c1"], CODES["c3"]).model_dump_json())
    training = [{"id": "t", "query": HOSTILE.replace("\ud800", ""), "code": CODES["c2"]}]
    write_lines(agent.folder / "train.jsonl", training)
    command = ("retrieval", "audit", "retrieval", "--equivalents", "groups.jsonl", "--against", "train.jsonl")
    document = agent(*command, "--json").json
    assert document == json.loads((agent.folder / "retrieval/audit.json").read_text())
    assert (set(document["facts"]), document["facts"]["snippets_in_training"]["count"]) == (set(FACTS.split()), 1)
    assert [shift["searcher"] for shift in document["shifts"]] == ["one", "one", "two", "two"]
    assert agent("report", "retrieval", "-o", "page.html").code == DONE
    page = ReportPage(agent.folder / "page.html")
    counts = [
        [str(fact["count"]), "–" if fact["of"] is None else str(fact["of"])] for fact in document["facts"].values()
    ]
    assert [row[1:] for row in page.get_figure("Facts")["tables"][0]["rows"]] == counts
    assert len(page.get_figure("Effect of equivalents")["tables"][0]["rows"]) == 4
    assert agent("retrieval", "score", "retrieval", "--ranking", f"new={write_ranking(agent.folder)}").code == DONE
    assert json.loads((agent.folder / "retrieval/audit.json").read_text())["out_of_date"]


def write_ranking(folder: Path) -> str:
    (folder / "new.trec").write_text(f"{next(iter(QUERIES))} Q0 c1 1 1.0 new\n")
    return "new.trec"


def test_hostile_ids_and_texts_are_escaped(agent: Commands) -> None:
    rows = [{"_id": f"{n}{HOSTILE}", "text": HOSTILE} for n in range(2)]
    write_lines(agent.folder / "b/corpus.jsonl", rows)
    write_lines(agent.folder / "b/queries.jsonl", rows)
    write_lines(
        agent.folder / "b/qrels/test.jsonl",
        [{"query-id": row["_id"], "corpus-id": "x", "score": 1} for row in rows]
        + [{"query-id": rows[0]["_id"], "corpus-id": rows[1]["_id"], "score": 1}],
    )
    result = agent("retrieval", "audit", "b")
    assert result.code == DONE
    assert not {"\x1b", "\u202e", "\x00", "\u200b"} & {*result.out, *result.err}
    facts = agent("retrieval", "audit", "b", "--json").json["facts"]
    counts = [facts[name]["count"] for name in ("equal_snippets", "equal_queries", "judgements_of_unknown_ids")]
    assert counts == [1, 1, 2]


def test_grades_of_judgements_of_unknown_ids_are_an_error_unless_they_are_skipped(agent: Commands) -> None:
    write_beir(agent.folder / "b", UNKNOWN)
    command = ("retrieval", "run", "b", "-o", "r", "--searcher", "bm25")
    failed = agent(*command)
    assert (failed.code, "--on-unknown-id" in failed.err) == (WRONG_USAGE, True)
    done = agent(*command, "--on-unknown-id", "skip")
    assert (done.code, "2 grades" in done.err) == (DONE, True)
    assert agent("retrieval", "audit", "r", "--json").json["facts"]["judgements_of_unknown_ids"]["count"] == 2
    assert agent("retrieval", "judge", "r", "--dry-run", "--model", "heuristic").code == DONE  # opens the benchmark


@pytest.mark.parametrize("options", [("--codes", "codes.jsonl"), ("--language", "sql"), ("--with-generated",)])
def test_a_folder_records_the_options_of_its_benchmark(agent: Commands, options: tuple[str, ...]) -> None:
    make_folder(agent.folder)
    result = agent("retrieval", "audit", "retrieval", *options)
    assert (result.code, (agent.folder / "retrieval/audit.json").exists()) == (WRONG_USAGE, False)


@pytest.mark.real_data
def test_the_figures_of_the_page_are_those_of_cosqa(agent: Commands, real_data: Path) -> None:
    files = (f"{real_data}/cosqa_search_dev_500.jsonl", "--codes", f"{real_data}/cosqa_search_codes_6267.jsonl")
    audit = agent("retrieval", "audit", *files, "--against", f"{real_data}/cosqa_dev.jsonl", "--json").json
    page = (Path(__file__).parents[2] / "docs/auditing-a-benchmark.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert {name: (count, of) for name, count, of in rows} == {
        name: (f"{fact['count']:,}", f"{fact['of']:,}") for name, fact in audit["facts"].items()
    }
    assert [f"{ceiling['value']:.3f}" for ceiling in audit["ceilings"]] == ["1.000", "1.000"]
