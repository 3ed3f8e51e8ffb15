"""`agent doctor` checks the machine and suggests remedies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from agent.cli import doctor
from agent.cli.options import ServerOptions
from agent.errors import ConfigError, SandboxUnavailable
from agent.languages.registry import Languages
from agent.sandbox.base import Toolchain
from agent.sandbox.select import BACKENDS
from tests.cli.commands import CommandResult, Commands, make_environment, reply
from tests.llm.server import Answer, ChatServer, Request, blank, fails, free_port, says, unauthorized
from tests.sandbox.selfcheck.test_weak import FakeBackend
from tests.scripts import pass_all, screen

# without index and engine, so that results are quick and the same everywhere
ALONE = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_CONFIG_FILE": "/dev/null", "DOCKER_HOST": "tcp://127.0.0.1:9"}


def find_diagnosis(result: CommandResult, part: str, name: str | None = None) -> dict[str, Any]:
    return next(f for f in result.json if f["part"] == part and name in (None, f["name"]))


def run_doctor(agent: Commands, url: str, *options: str, **more: str) -> CommandResult:
    return agent("doctor", "--quick", "--model", "m", "--base-url", url, *options, **ALONE, **more)


def test_model_error_is_reported_with_the_server_message(agent: Commands) -> None:
    with ChatServer(unauthorized("Wrong key [a:x:b]")) as server:
        result = run_doctor(agent, server.url, OPENAI_API_KEY="sk-x-secret")
    assert result.code == 1
    assert "Wrong key [a:x:b]" in result.out
    assert "sk-x-secret" not in result.out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (blank(), "served-model.*''"),
        (says(None, finish_reason="tool_calls"), "tool"),
        (says("I cannot help"), "'I cannot help'"),
    ],
)
def test_unusable_reply_fails_the_model_check(agent: Commands, answer: Answer, words: str) -> None:
    with ChatServer([answer]) as server:
        result = run_doctor(agent, server.url, "--json")
    model = find_diagnosis(result, "model")
    assert (result.code, model["works"]) == (1, False)
    assert re.search(words, model["detail"])
    assert "reply_format" in model["remedy"]


def test_missing_key_is_one_of_the_findings(agent: Commands) -> None:
    result = agent("doctor", "--quick", "--model", "gpt-4o-mini", "--json", **ALONE)
    assert result.code == 1
    assert "key" in find_diagnosis(result, "model")["detail"]
    assert find_diagnosis(result, "python")["works"]


@pytest.mark.bwrap
def test_an_unreadable_null_device_is_named_with_its_remedy(tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.touch(0o000)
    setup = ("bwrap", "--cap-add", "ALL", "--dev-bind", "/", "/", "--bind", null, "/dev/null")
    command = (*setup, sys.executable, "-m", "agent", "doctor", "--quick", "--sandbox", "bwrap", "--json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=make_environment(**ALONE))
    bubblewrap = find_diagnosis(CommandResult(done.returncode, done.stdout, done.stderr), "sandbox", "bwrap")
    assert (done.returncode, bubblewrap["works"]) == (1, False)
    assert "chmod 666 /dev/null" in bubblewrap["detail"]
    assert "RunResult" not in bubblewrap["detail"]


REFUSAL = "'response_format.type' must be 'json_schema' or 'text'"


def accept_only_text(request: Request) -> Answer:
    return fails(400, REFUSAL) if "response_format" in request.body else reply(screen("match"))


def test_rejected_request_option_names_an_alternative(agent: Commands) -> None:
    with ChatServer(accept_only_text) as server:
        refused = run_doctor(agent, server.url, "--sandbox", "bwrap", "--json")
        assert (refused.code, find_diagnosis(refused, "model")["works"]) == (1, False)
        assert "reply_format=text" in find_diagnosis(refused, "model")["detail"]
        assert "the key" not in find_diagnosis(refused, "model")["remedy"]
        more = ("thinking=off", "temperature=0.5", "max_tokens=64", 'extra_body={"top_k": 3}', "reply_format=text")
        accepted = run_doctor(agent, server.url, "--json", *(word for text in more for word in ("-c", text)))
    model = find_diagnosis(accepted, "model")
    assert (model["name"], model["works"], "served-model" in model["detail"]) == ("m", True, True)
    body = server.requests[-1].body
    assert {name: body.get(name) for name in ("temperature", "top_k", "response_format")} == {
        "temperature": 0.5,
        "top_k": 3,
        "response_format": None,
    }


def test_without_a_model_the_options_are_listed(agent: Commands) -> None:
    result = agent("doctor", "--quick", **ALONE)
    assert "OPENAI_API_KEY" in result.out
    assert "--model heuristic" in result.out


def test_missing_parts_come_with_a_remedy(agent: Commands) -> None:
    result = agent("doctor", "--quick", "--model", "heuristic", "--json", **ALONE, PATH="/nowhere")
    assert result.code == 1
    for part in ("sandbox", "index"):
        broken = find_diagnosis(result, part)
        assert not broken["works"]
        assert broken["remedy"]
    assert not find_diagnosis(result, "sandbox", "auto")["works"]
    assert find_diagnosis(result, "model")["works"]


@pytest.mark.bwrap
def test_one_working_sandbox_is_enough(agent: Commands) -> None:
    result = agent("doctor", "--quick", "--model", "heuristic", "--json", **ALONE)
    assert result.code == 0
    assert find_diagnosis(result, "sandbox", "bwrap")["works"]
    assert "bwrap" in find_diagnosis(result, "sandbox", "auto")["detail"]


def list_sandboxes(result: CommandResult) -> list[str]:
    return [f["name"] for f in result.json if f["part"] == "sandbox"]


@pytest.mark.bwrap
def test_only_the_selected_sandbox_is_checked(agent: Commands) -> None:
    result = agent("doctor", "--quick", "--sandbox", "bwrap", "--json", "--model", "heuristic", **ALONE)
    assert (result.code, list_sandboxes(result)) == (0, ["bwrap", "auto"])
    assert find_diagnosis(result, "sandbox", "auto")["detail"].endswith("bwrap")


def test_selected_sandbox_is_required(agent: Commands) -> None:
    result = agent("doctor", "--quick", "--sandbox", "docker", "--json", "--model", "heuristic", **ALONE)
    assert (result.code, list_sandboxes(result)) == (1, ["docker", "auto"])
    auto = find_diagnosis(result, "sandbox", "auto")
    assert (auto["works"], auto["needed"], "bwrap" in auto["detail"]) == (False, False, True)


@pytest.mark.long
@pytest.mark.bwrap
def test_sandbox_is_attacked_and_unenforced_limits_are_listed(agent: Commands) -> None:
    result = agent.start("doctor", "--model", "heuristic", "--json", **ALONE).wait(300)
    check = find_diagnosis(result, "check", "bwrap")
    assert check["works"], check
    assert int(re.findall(r"\d+", check["detail"])[0]) > 30
    checks = [f["detail"] for f in result.json if (f["part"], f["name"], f["works"]) == ("check", "bwrap", True)]
    assert [re.findall(r"\w+", detail)[-1] for detail in checks] == ["python", "javascript", "typescript", "sql"]
    limits = [f["detail"].partition(":")[0] for f in result.json if f["part"] == "limit"]
    assert "inodes" in limits


def test_failed_check_exits_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in reversed(tuple(BACKENDS)):  # monkeypatch restores them in reverse order
        monkeypatch.delitem(BACKENDS, name)  # type: ignore[arg-type]
    monkeypatch.setitem(BACKENDS, "credulous", lambda _config: FakeBackend(pass_all, 0, "credulous"))  # type: ignore[arg-type]
    with pytest.raises(typer.Exit) as result:
        doctor.run(ServerOptions(model=["heuristic"]), sandbox=None, as_json=True, quick=False)
    broken = [f for f in json.loads(capsys.readouterr().out) if f["part"] == "check"]
    assert result.value.exit_code == 1
    assert not any(finding["works"] for finding in broken)
    assert any(f["detail"].startswith("forgeries: calls os._exit while loading: ") for f in broken)


class WithoutNode(FakeBackend):
    async def require_toolchain(self, toolchain: Toolchain) -> str:
        raise SandboxUnavailable(toolchain.remedy)


@pytest.mark.parametrize("broken", [False, True])
def test_a_missing_toolchain_is_information_and_a_broken_package_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: bool
) -> None:
    monkeypatch.setattr(doctor, "BACKENDS", {"fake": lambda _config: WithoutNode(pass_all, 0)})
    if broken:
        refuse = Mock(side_effect=ConfigError("two packages"))
        monkeypatch.setattr(Languages, "explain_untestable", lambda *_: refuse())
    with pytest.raises(typer.Exit) as result:
        doctor.run(ServerOptions(model=["heuristic"]), sandbox=None, as_json=True, quick=True)
    languages = [f for f in json.loads(capsys.readouterr().out) if f["part"] == "language" and not f["works"]]
    assert {f["needed"] for f in languages} == {broken}
    assert broken or [f["name"] for f in languages] == ["javascript", "typescript"]
    assert result.value.exit_code == int(broken)


def test_unreachable_model_is_a_finding(agent: Commands) -> None:
    result = run_doctor(agent, f"http://127.0.0.1:{free_port()}/v1", "--json")
    assert (result.code, find_diagnosis(result, "model")["works"]) == (1, False)
    assert "reached" in find_diagnosis(result, "model")["detail"]
