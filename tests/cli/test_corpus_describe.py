"""`agent corpus describe` prints the same statistics as text, Markdown and JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest

from agent.cli.exit_codes import DONE
from agent.corpus.describe import describe
from tests.cli.commands import Commands
from tests.views.runs import HOSTILE

NAMES = [*[HOSTILE, "a|b\n\n# c"] * 3, *(f"r{number % 10}" for number in range(20))]
ROWS = [
    {
        "query": f"q{number // 4}",
        "code": f"c{number % 3}",
        "label": number % 2,
        "rank": number % 4 + 1,
        "source": name,
        "license": "MIT",
    }
    for number, name in enumerate(NAMES)
]


def test_json_is_the_description(agent: Commands) -> None:
    path = agent.write("pairs.jsonl", ROWS)
    document = agent("corpus", "describe", path, "--json").json
    assert document == {"path": "pairs.jsonl", **json.loads(json.dumps(asdict(describe(agent.folder / path))))}


def test_text_and_markdown_have_the_same_rows_and_no_markup_from_data(agent: Commands) -> None:
    path = agent.write("pairs.jsonl", ROWS)
    text, markdown = agent("corpus", "describe", path), agent("corpus", "describe", path, "--markdown")
    assert (text.code, text.err, markdown.code, markdown.err) == (DONE, "", DONE, "")
    titles = ["Pairs", "Texts", "Queries by matching snippets", "Matches by candidate rank",
              "Snippets by matching queries", "Sources", "Licences"]  # fmt: skip
    for out in (text.out, markdown.out):
        assert [line for raw in out.splitlines() if (line := raw.removeprefix("## ")) in titles] == titles
        assert not set(out) & set("\x1b\x00\u202e\u2028")
    lines = [line for line in markdown.out.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    for name, value in (row for row in rows if len(row) == 2 and "\\" not in row[0]):
        assert re.search(rf"^{re.escape(name)} +{value}$", text.out, re.MULTILINE) or name.startswith("---")
    assert ["(2 others)", "4"] in rows
    assert not re.search(r"(?<!\\)[<*#]", markdown.out.replace("## ", ""))


@pytest.mark.parametrize("arguments", [("pairs.jsonl", "--json", "--markdown"), ("missing.jsonl",), (".",)])
def test_wrong_usage_is_explained(agent: Commands, arguments: tuple[str, ...]) -> None:
    agent.write("pairs.jsonl", ROWS)
    agent.check_refused("", "corpus", "describe", *arguments)
