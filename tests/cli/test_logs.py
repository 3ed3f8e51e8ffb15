"""The log contains calls, sandboxes and labels, but no keys, code or queries."""

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
    log = (agent.folder / "agent.log").read_text()
    for line in (
        r"agent\.llm\.openai: screen call for pair 'p\\n0': attempt 2 in [\d.]+ s",
        r"agent\.llm\.gateway: screen call for pair 'p\\n0': reply from \S+ in [\d.]+ s, tokens: 2000 in \(0 cached\)",
        r"agent\.pipeline\.asker: arbitrate call for pair 'p\\n0': reply 1\b",
        r"agent\.runs\.runner: pair 'p\\n0', round 0: label 1, decided by arbitrate, [\d.]+ s, error: None",
    ):
        assert re.search(line, log), line
        assert re.search(line, done.err), line
    for secret in (KEY, "add two numbers", "return a + b", "I cannot say"):
        assert secret not in log + done.err


@pytest.mark.bwrap
def test_sandboxes_and_environments_are_logged(agent: Commands) -> None:
    agent.write("p.py", "def test_it():\n    assert True\n")
    done = agent("--verbose", "exec", "p.py", "--sandbox", "bwrap")
    assert re.search(r"agent\.sandbox\.session: .*bwrap.* [\d.]+ s", done.err), done.err


def test_log_file_has_tracebacks_without_messages(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    refusal = json.dumps({"error": {"message": f"no such key: {KEY}"}}).encode()
    with ChatServer([Answer(refusal, status=401)]) as server:
        command = ("annotate", "p.jsonl", "--variant", "ps_fa", "-o", "out", "--model", "m", "--base-url", server.url)
        done = agent("--log-file", "agent.log", *command, OPENAI_API_KEY=KEY)
    assert (done.code, "Traceback" in done.err) == (3, False)
    done = agent("--log-file", "agent.log", "show", "no-such-run")
    log = (agent.folder / "agent.log").read_text()
    assert "AccountError\n  File" in log
    assert "RunFolderError\n  File" in log
    for secret in (KEY, "no-such-run", "add two numbers"):
        assert secret not in log


def test_unwritable_log_file_is_an_error(agent: Commands) -> None:
    done = agent("--log-file", "no/agent.log", "graph")
    assert (done.code, done.err.startswith("agent: --log-file no/agent.log: "), done.err.count("\n")) == (2, True, 1)


def test_log_on_a_full_disk_is_reported_once(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(2))
    done = agent("--log-file", "/dev/full", "annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm")
    assert done.code == 0
    assert done.err.count("--log-file /dev/full: ") == 1
    assert "Traceback" not in done.err


def test_library_does_not_log_by_default(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert [type(handler) for handler in logging.getLogger("agent").handlers] == [logging.NullHandler]
    from agent import ScriptedLLM, annotate

    annotate([{"query": "a", "code": "x"}], model=ScriptedLLM([label(1)]), variant="single_llm", run_dir=tmp_path / "r")
    assert capfd.readouterr() == ("", "")
