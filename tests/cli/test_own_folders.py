"""What lies in a stranger's folder answers for nobody: neither cached replies nor runs with a default name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import ADD, Commands, pairs, reply
from tests.llm.server import ChatServer

MODEL = ("--variant", "single_llm", "--model", "m", "--json")


def test_replies_are_cached_outside_of_the_working_folder(agent: Commands) -> None:
    def annotate(commands: Commands, *options: str) -> str:
        file = commands.write("p.jsonl", pairs(2))
        return commands("annotate", file, "--base-url", server.url, *MODEL, *options, OPENAI_API_KEY="k").err

    with ChatServer([reply(json.dumps({"reason": "", "label": 0}))]) as server:
        annotate(agent, "--cache", "runs/cache.sqlite", "-o", "theirs")
        planted = annotate(agent, "-o", "one")
        assert ("--cache runs/cache.sqlite" in planted, len(server.requests)) == (True, 4)
        annotate(agent, "-o", "two")
        annotate(agent, "--cache", "runs/cache.sqlite", "-o", "three")
        assert len(server.requests) == 4
        elsewhere = Commands(agent.folder / "elsewhere")
        elsewhere.folder.mkdir()
        annotate(elsewhere, "-o", "one")
        assert len(server.requests) == 6
    assert not [path for path in elsewhere.folder.rglob("*") if "sqlite" in path.name and path.parent.name != "one"]


ANNOTATE = ("annotate", "p.jsonl", *MODEL)
COMMANDS = {
    "annotate": (ANNOTATE, "runs/p-single_llm-m"),
    "dry run": ((*ANNOTATE, "--dry-run"), "runs/p-single_llm-m"),
    "ablate": (("ablate", "p.jsonl", "--variants", "single_llm", "--model", "m"), "runs/p-ablation-m"),
    "prefer": (("prefer", "p.jsonl", "b.jsonl", "--model", "m"), "runs/prefer-p-b"),
    "retrieval": (("retrieval", "run", "p.jsonl", "--searcher", "bm25"), "runs/retrieval-p"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_default_folder_that_the_user_did_not_make_is_continued_only_by_name(agent: Commands, name: str) -> None:
    agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(2)])
    agent.write("b.jsonl", [{**pair, "code": f"{ADD}#", "label": 1} for pair in pairs(2)])
    command, folder = COMMANDS[name]

    def run(*words: str, **changes: str) -> int:
        result = agent(*words, AGENT_BASE_URL=server.url, OPENAI_API_KEY="k", **changes)
        assert (f"-o {folder}" in result.err) == (result.code == 2), result.err
        return result.code

    theirs = {"XDG_CACHE_HOME": str(agent.folder / "theirs")}
    with ChatServer([reply(json.dumps({"reason": "", "label": 0, "better": "first"}))]) as server:
        for words in (ANNOTATE if name == "dry run" else command, command):
            assert (run(*words, **theirs), (agent.folder / folder).is_dir()) == (0, True)
        before, count = read(agent.folder / folder), len(server.requests)
        assert run(*command) == 2
        assert (read(agent.folder / folder), len(server.requests)) == (before, count)
        assert run(*command, "-o", folder) == 0
    assert len(server.requests) == count


def read(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
