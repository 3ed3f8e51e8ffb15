"""What lies in a stranger's folder answers for nobody: neither cached replies nor runs with a default name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import ADD, Commands, pairs, reply
from tests.llm.server import ChatServer

MODEL = ("--variant", "single_llm", "--model", "m", "--json")


def annotate(agent: Commands, server: ChatServer, *options: str, **changes: str) -> dict[str, object]:
    result = agent("annotate", agent.write("p.jsonl", pairs(2)), "--base-url", server.url, *MODEL, *options,
                   OPENAI_API_KEY="k", **changes)  # fmt: skip
    return {"code": result.code, "err": result.err, **(result.json if result.code == 0 else {})}


def label(value: int) -> object:
    return reply(json.dumps({"reason": "", "label": value}))


def test_replies_are_cached_outside_of_the_working_folder(agent: Commands) -> None:
    with ChatServer(label(0)) as server:
        annotate(agent, server, "--cache", "runs/cache.sqlite", "-o", "theirs")
        planted = annotate(agent, server, "-o", "one")
        assert ("--cache runs/cache.sqlite" in planted["err"], len(server.requests)) == (True, 4)
        annotate(agent, server, "-o", "two")
        annotate(agent, server, "--cache", "runs/cache.sqlite", "-o", "three")
        assert len(server.requests) == 4
        elsewhere = Commands(agent.folder / "elsewhere")
        elsewhere.folder.mkdir()
        annotate(elsewhere, server, "-o", "one")
        assert len(server.requests) == 6
    assert not [path for path in elsewhere.folder.rglob("*") if "sqlite" in path.name and path.parent.name != "one"]


COMMANDS: dict[str, tuple[Callable[[str], tuple[str, ...]], str]] = {
    "annotate": (lambda url: ("annotate", "p.jsonl", *MODEL, "--base-url", url), "runs/p-single_llm-m"),
    "dry run": (lambda url: ("annotate", "p.jsonl", *MODEL, "--base-url", url, "--dry-run"), "runs/p-single_llm-m"),
    "ablate": (
        lambda url: ("ablate", "p.jsonl", "--variants", "single_llm", "--model", "m", "--base-url", url),
        "runs/p-ablation-m",
    ),
    "prefer": (lambda url: ("prefer", "p.jsonl", "b.jsonl", "--model", "m", "--base-url", url), "runs/prefer-p-b"),
    "retrieval": (lambda _: ("retrieval", "run", "p.jsonl", "--searcher", "bm25"), "runs/retrieval-p"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_default_folder_that_the_user_did_not_make_is_continued_only_by_name(agent: Commands, name: str) -> None:
    agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(2)])
    agent.write("b.jsonl", [{**pair, "code": f"{ADD}#", "label": 1} for pair in pairs(2)])
    build, folder = COMMANDS[name]

    def answer(request: object) -> object:  # noqa: ARG001
        return reply(json.dumps({"reason": "", "label": 0, "better": "first"}))

    def run(*options: str, **changes: str) -> int:
        result = agent(*build(server.url), *options, OPENAI_API_KEY="k", **changes)
        assert (f"-o {folder}" in result.err) == (result.code == 2), result.err
        return result.code

    theirs = {"XDG_CACHE_HOME": str(agent.folder / "theirs")}
    with ChatServer(answer) as server:
        if name == "dry run":
            agent(*COMMANDS["annotate"][0](server.url), OPENAI_API_KEY="k", **theirs)
        assert (run(**theirs), (agent.folder / folder).is_dir()) == (0, True)
        assert run(**theirs) == 0
        before, count = read(agent.folder / folder), len(server.requests)
        assert run() == 2
        assert (read(agent.folder / folder), len(server.requests)) == (before, count)
        assert run("-o", folder) == 0
    assert len(server.requests) == count


def read(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
