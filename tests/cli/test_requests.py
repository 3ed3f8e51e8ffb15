"""`agent requests` exports requests as batch files and imports the replies into the cache."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent.runs.store.run_view import load_run
from tests.cli.commands import Commands
from tests.runs.test_batches import answer

BODY = {"model": "m", "choices": [{"message": {"content": "yes"}}]}


def answer_requests(requests: Path, to: Path) -> None:
    """Answer a file of requests as a batch system does, preceded by a line with an unknown id."""
    with to.open("w") as file:
        file.write('{"custom_id": "another", "response": {"status_code": 200, "body": {}}}\n')
        for line in map(json.loads, requests.read_text().splitlines()):
            assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
            file.write(json.dumps({"custom_id": line["custom_id"], "response": _response(line["body"])}) + "\n")


def _response(body: dict[str, Any]) -> dict[str, Any]:
    try:
        message = {"content": answer(body)}
    except ValueError as error:
        return {"status_code": 400, "body": {"error": {"message": str(error)}}}
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    return {"status_code": 200, "body": {"model": "m", "choices": [{"message": message}], "usage": usage}}


def test_replies_of_another_batch_system_are_imported_and_used(agent: Commands) -> None:
    numbers = (10, 11, 12, 13, 15)  # 10 and 15 are unclear, and 13 is refused
    rows = [{"id": f"p{number}", "query": "q", "code": f"def f(): return {number}"} for number in numbers]
    agent.write("pairs.jsonl", rows)
    agent.write("prices.json", json.dumps({"test-model": {"input": 1, "output": 1}}))
    options = ("--model", "test-model", "--cache", "c.sqlite", "-c", "prices=prices.json")
    first = agent("requests", "export", "pairs.jsonl", "-o", "first.jsonl", "--variant", "ps_fa", *options, "--json")
    assert first.json == {"requests": 5, "waiting": 5, "answered": 0, "errors": 0}
    answer_requests(agent.folder / "first.jsonl", agent.folder / "replies.jsonl")
    imported = agent("requests", "import", "replies.jsonl", *options)
    *counts, failure = imported.out.splitlines()
    assert [re.findall(r"\d+", line) for line in counts] == [["4", "0"], ["1", "1"]]
    assert re.match(r"  1: .*HTTP 400: the text was flagged", failure)
    assert imported.code == 1
    second_import = agent("requests", "import", "replies.jsonl", "replies.jsonl", *options, "--json")
    counts = second_import.json
    assert list(counts.pop("errors").values()) == [2]
    assert counts == {"imported": 0, "already": 8, "failed": 2, "unknown": 2, "malformed": 0}
    second = agent("requests", "export", "pairs.jsonl", "-o", "second.jsonl", "--variant", "ps_fa", *options)
    assert [re.findall(r"\d+", line) for line in second.out.splitlines()] == [["3"], ["3", "2"]]
    answer_requests(agent.folder / "second.jsonl", agent.folder / "more.jsonl")
    agent("requests", "import", "more.jsonl", *options, "--price-factor", "0.25")
    run = ("--variant", "ps_fa", "--limit", "3", "-o", "run", "--base-url", "http://127.0.0.1:9/v1", *options)
    assert agent("annotate", "pairs.jsonl", *run, OPENAI_API_KEY="k").code == 0
    with load_run(agent.folder / "run") as view:
        costs = {annotation.id: annotation.usage.cost_usd for annotation in view.annotations()}
    assert costs == {"p10": 0.75, "p11": 0.5, "p12": 0.5}  # a million tokens per reply


@pytest.mark.parametrize(
    ("line", "count", "statuses"),
    [
        ({"response": {"status_code": 400, "body": {}}, "error": {"message": "m", "code": 500}}, "failed", ["400"]),
        ({"error": {"message": "m", "code": "another"}}, "failed", []),
        ({"response": {"body": {"error": {"message": "m", "code": "another"}}}}, "failed", []),
        ({"response": {"body": BODY}}, "imported", []),
        ('{"custom_id": "4a6e57', "malformed", []),
    ],
)
def test_each_line_is_counted_and_an_error_keeps_its_status(
    agent: Commands, line: Any, count: str, statuses: list[str]
) -> None:
    text = line if isinstance(line, str) else json.dumps({"custom_id": "0" * 64, **line})
    (agent.folder / "out.jsonl.gz").write_bytes(gzip.compress(f"\ufeff{text}".encode()))
    result = agent("requests", "import", "out.jsonl.gz", "--model", "m", "--cache", "c.sqlite", "--json")
    counts = result.json
    errors = counts.pop("errors")
    assert [name for name, number in counts.items() if number] == [count]
    assert re.findall(r"HTTP (\d+)", str(errors)) == statuses
    assert len(errors) == (count == "failed")
    assert result.code == (0 if count == "imported" else 1)


def test_batch_and_engine_settings_do_not_prevent_an_export(agent: Commands) -> None:
    agent.write("pairs.jsonl", [{"id": "a", "query": "q", "code": "x"}])
    agent.write("mine.toml", '[runner]\nbatch = true\nengine = "ray"\n')
    command = ("requests", "export", "pairs.jsonl", "-o", "r.jsonl", "--model", "m", "--settings", "mine.toml")
    exported = agent(*command, "--json")
    assert (exported.code, exported.json["requests"]) == (0, 1)


def test_unsuitable_models_and_missing_files_are_rejected(agent: Commands) -> None:
    agent.write("pairs.jsonl", [{"id": "a", "query": "q", "code": "x"}])
    export = ("requests", "export", "pairs.jsonl", "--model")
    agent.check_refused("heuristic", *export, "heuristic", "-o", "r.jsonl")
    agent.check_refused("--model", *export, "m", "--model", "screen=n", "-o", "r.jsonl")
    agent.check_refused("-o requests.jsonl", *export, "m")
    agent.check_refused("nowhere.jsonl: ", "requests", "import", "nowhere.jsonl", "--model", "m")
