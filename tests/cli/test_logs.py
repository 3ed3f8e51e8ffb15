"""The log says what was asked, started and labelled; it holds neither keys, code nor queries."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from tests.cli.commands import Commands, pairs, reply
from tests.llm.server import Answer, ChatServer
from tests.scripts import label, screen

KEY = "sk-secret-5f0e"
LOOK = [reply(screen("unclear")), reply("I cannot say."), reply(label(1))]


def test_verbose_logs_to_standard_error_and_log_file_to_a_file(agent: Commands) -> None:
    agent.write("p.jsonl", [{**pairs(1)[0], "id": "p\n0"}])
    with ChatServer([Answer(status=503), *LOOK]) as server:
        done = agent(
            *("--verbose", "--log-file", "agent.log", "annotate", "p.jsonl", "--variant", "ps_fa", "-o", "out"),
            *("--model", "m", "--base-url", server.url),
            OPENAI_API_KEY=KEY,
        )
    assert done.code == 0, done.err
    logged = (agent.folder / "agent.log").read_text()
    for line in (
        r"agent\.llm\.openai: screen of pair 'p\\n0': attempt 2 in [\d.]+ s",
        r"agent\.llm\.gateway: screen of pair 'p\\n0': reply from \S+ in [\d.]+ s, tokens: 2000 in \(0 cached\)",
        r"agent\.llm\.asker: arbitrate of pair 'p\\n0': reply 1\b",
        r"agent\.runner: pair 'p\\n0', round 0: label 1, decided by arbitrate, [\d.]+ s, error: None",
    ):
        assert re.search(line, logged), line
        assert re.search(line, done.err), line
    for secret in (KEY, "add two numbers", "return a + b", "I cannot say"):
        assert secret not in logged + done.err


@pytest.mark.bwrap
def test_sandboxes_and_environments_are_logged(agent: Commands) -> None:
    agent.write("p.py", "def test_it():\n    assert True\n")
    done = agent("--verbose", "exec", "p.py", "--sandbox", "bwrap")
    assert re.search(r"agent\.sandbox\.session: sandbox of bwrap started in [\d.]+ s", done.err), done.err


def test_the_file_has_the_way_to_an_error_and_nothing_that_it_quotes(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    refusal = json.dumps({"error": {"message": f"no such key: {KEY}"}}).encode()
    with ChatServer([Answer(refusal, status=401)]) as server:
        command = ("annotate", "p.jsonl", "--variant", "ps_fa", "-o", "out", "--model", "m", "--base-url", server.url)
        done = agent("--log-file", "agent.log", *command, OPENAI_API_KEY=KEY)
    assert (done.code, "Traceback" in done.err) == (3, False)
    done = agent("--log-file", "agent.log", "show", "no-such-run")
    logged = (agent.folder / "agent.log").read_text()
    assert "AccountError\n  File" in logged
    assert "RunFolderError\n  File" in logged
    for secret in (KEY, "no-such-run", "add two numbers"):
        assert secret not in logged


def test_a_log_that_cannot_be_written_is_an_error(agent: Commands) -> None:
    done = agent("--log-file", "no/agent.log", "graph")
    assert (done.code, done.err) == (
        2,
        "agent: --log-file no/agent.log: cannot be written: No such file or directory\n",
    )


def test_a_log_on_a_full_disk_is_given_up_with_one_line(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(2))
    done = agent("--log-file", "/dev/full", "annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm")
    assert done.code == 0
    assert done.err.count("--log-file /dev/full: cannot be written") == 1
    assert "Traceback" not in done.err


def test_the_library_logs_nowhere_by_itself(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert [type(each) for each in logging.getLogger("agent").handlers] == [logging.NullHandler]
    from agent import ScriptedLLM, annotate

    annotate([{"query": "a", "code": "x"}], model=ScriptedLLM([label(1)]), variant="single_llm", run_dir=tmp_path / "r")
    assert capfd.readouterr() == ("", "")
