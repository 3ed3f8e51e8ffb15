"""`agent doctor` says what works and what to do about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from agent.cli import doctor
from agent.sandbox.select import BACKENDS
from tests.cli.commands import Commands, Ended, reply
from tests.llm.server import ChatServer, free_port, unauthorized
from tests.sandbox.selfcheck.test_weak import Answering, believes
from tests.scripts import screen

# No index, no engine: the answers are quick and the same everywhere.
ALONE = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_CONFIG_FILE": "/dev/null", "DOCKER_HOST": "tcp://127.0.0.1:9"}


def found(ended: Ended, part: str, name: str | None = None) -> dict[str, Any]:
    return next(f for f in ended.json if f["part"] == part and name in (None, f["name"]))


def test_a_model_that_answers_is_told_and_shown(agent: Commands) -> None:
    with ChatServer(reply(screen("match"))) as server:
        ended = agent("doctor", "--quick", "--model", "m", "--base-url", server.url, "--json", **ALONE)
    model = found(ended, "model")
    assert (model["name"], model["works"]) == ("m", True)
    assert "as served-model" in model["detail"]
    assert len(server.requests) == 1


def test_a_model_that_does_not_answer_makes_it_fail_with_the_reason(agent: Commands) -> None:
    with ChatServer(unauthorized("Wrong key")) as server:
        ended = agent(
            "doctor",
            "--quick",
            "--model",
            "m",
            "--base-url",
            server.url,
            "--json",
            OPENAI_API_KEY="sk-x-secret",
            **ALONE,
        )
    assert (ended.code, found(ended, "model")["works"]) == (1, False)
    assert "Wrong key" in found(ended, "model")["detail"]
    assert "sk-x-secret" not in ended.out


def test_what_a_server_says_is_shown_as_it_is(agent: Commands) -> None:
    with ChatServer(unauthorized("Wrong key [a:x:b]")) as server:
        ended = agent(
            "doctor", "--quick", "--model", "m", "--base-url", server.url, OPENAI_API_KEY="sk-x-secret", **ALONE
        )
    assert "Wrong key [a:x:b]" in ended.out


def test_a_model_without_a_key_is_a_finding_beside_the_others(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--model", "gpt-4o-mini", "--json", **ALONE)
    assert ended.code == 1
    assert "there is no key" in found(ended, "model")["detail"]
    assert found(ended, "python")["works"]


def test_a_file_in_the_folder_is_not_taken_for_pip(agent: Commands) -> None:
    planted = agent.write("pip.py", "import pathlib\npathlib.Path('taken').touch()\n")
    agent("doctor", "--quick", **ALONE)
    assert not (Path(planted).parent / "taken").exists()


def test_without_a_model_the_ways_to_name_one_are_told(agent: Commands) -> None:
    ended = agent("doctor", "--quick", **ALONE)
    assert "OPENAI_API_KEY is not set" in ended.out
    assert "--model heuristic" in ended.out


def test_what_is_missing_comes_with_a_remedy(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--model", "heuristic", "--json", **ALONE, PATH="/nowhere")
    assert ended.code == 1
    for part in ("sandbox", "index"):
        broken = found(ended, part)
        assert not broken["works"]
        assert broken["remedy"]
    assert not found(ended, "sandbox", "auto")["works"]
    assert found(ended, "model")["works"]


@pytest.mark.bwrap
def test_a_sandbox_that_works_is_enough(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--model", "heuristic", "--json", **ALONE)
    assert ended.code == 0
    assert found(ended, "sandbox", "bwrap")["works"]
    assert "bwrap" in found(ended, "sandbox", "auto")["detail"]


@pytest.mark.bwrap
def test_the_sandbox_is_attacked_and_what_cannot_be_enforced_is_told(agent: Commands) -> None:
    ended = agent("doctor", "--model", "heuristic", "--json", **ALONE)
    check = found(ended, "check", "bwrap")
    assert check["works"], check
    assert "attacks and tricks came to nothing" in check["detail"]
    told = [f["detail"].partition(":")[0] for f in ended.json if f["part"] == "limit"]
    assert "inodes" in told


def test_a_sandbox_that_breaks_a_check_makes_it_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in tuple(BACKENDS):
        monkeypatch.delitem(BACKENDS, name)  # type: ignore[arg-type]
    monkeypatch.setitem(BACKENDS, "credulous", lambda _config: Answering(believes, 0, "credulous"))  # type: ignore[arg-type]
    with pytest.raises(typer.Exit) as ended:
        doctor.run(("heuristic",), base_url=None, as_json=True, quick=False)
    broken = [f for f in json.loads(capsys.readouterr().out) if f["part"] == "check"]
    assert ended.value.exit_code == 1
    assert not any(finding["works"] for finding in broken)
    assert "forgeries: leaves while loading: it passed: passed; exit code 0" in [f["detail"] for f in broken]


def test_unreachable_models_are_findings_too(agent: Commands) -> None:
    ended = agent(
        "doctor", "--quick", "--model", "m", "--base-url", f"http://127.0.0.1:{free_port()}/v1", "--json", **ALONE
    )
    assert (ended.code, found(ended, "model")["works"]) == (1, False)
    assert "cannot be reached" in found(ended, "model")["detail"]
