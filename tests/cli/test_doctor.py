"""`agent doctor` says what works and what to do about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from agent.cli import doctor
from agent.cli.options import ModelOptions
from agent.sandbox.select import BACKENDS
from tests.cli.commands import Commands, Ended, reply
from tests.llm.server import Answer, ChatServer, Request, blank, fails, free_port, says, unauthorized
from tests.sandbox.selfcheck.test_weak import FakeBackend, pass_all_cases
from tests.scripts import screen

# No index, no engine: the answers are quick and the same everywhere.
ALONE = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_CONFIG_FILE": "/dev/null", "DOCKER_HOST": "tcp://127.0.0.1:9"}


def found(ended: Ended, part: str, name: str | None = None) -> dict[str, Any]:
    return next(f for f in ended.json if f["part"] == part and name in (None, f["name"]))


def ask(agent: Commands, url: str, *options: str, **more: str) -> Ended:
    return agent("doctor", "--quick", "--model", "m", "--base-url", url, *options, **ALONE, **more)


def test_a_model_that_does_not_answer_makes_it_fail_with_the_server_s_own_words(agent: Commands) -> None:
    with ChatServer(unauthorized("Wrong key [a:x:b]")) as server:
        ended = ask(agent, server.url, OPENAI_API_KEY="sk-x-secret")
    assert ended.code == 1
    assert "Wrong key [a:x:b]" in ended.out
    assert "sk-x-secret" not in ended.out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (blank(), "'', which cannot be used: the reply is blank"),
        (says(None, finish_reason="tool_calls"), "blank (the model called a tool, and was given none)"),
        (says("I cannot help"), "'I cannot help', which cannot be used: the reply holds no JSON object"),
    ],
)
def test_a_model_whose_reply_cannot_be_used_does_not_work(agent: Commands, answer: Answer, words: str) -> None:
    with ChatServer([answer]) as server:
        ended = ask(agent, server.url, "--json")
    model = found(ended, "model")
    assert (ended.code, model["works"]) == (1, False)
    assert words in model["detail"]
    assert "--reply-format" in model["remedy"]


def test_a_model_without_a_key_is_a_finding_beside_the_others(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--model", "gpt-4o-mini", "--json", **ALONE)
    assert ended.code == 1
    assert "API key" in found(ended, "model")["detail"]
    assert found(ended, "python")["works"]


OBJECTS_ALONE = "'response_format.type' must be 'json_schema' or 'text'"


def takes_text_alone(request: Request) -> Answer:
    return fails(400, OBJECTS_ALONE) if "response_format" in request.body else reply(screen("match"))


def test_a_server_that_refuses_a_way_to_ask_is_asked_in_another(agent: Commands) -> None:
    with ChatServer(takes_text_alone) as server:
        refused = ask(agent, server.url, "--sandbox", "bwrap", "--json")
        assert (refused.code, found(refused, "model")["works"]) == (1, False)
        assert "--reply-format text" in found(refused, "model")["detail"]
        assert "the key" not in found(refused, "model")["remedy"]
        more = ("--thinking", "off", "--temperature", "0.5", "--max-tokens", "64", "--extra-body", '{"top_k": 3}')
        taken = ask(agent, server.url, "--json", "--reply-format", "text", "--call-timeout", "30", *more)
    model = found(taken, "model")
    assert (model["name"], model["works"], "as served-model" in model["detail"]) == ("m", True, True)
    body = server.requests[-1].body
    assert {name: body.get(name) for name in ("temperature", "top_k", "response_format")} == {
        "temperature": 0.5,
        "top_k": 3,
        "response_format": None,
    }


def test_without_a_model_the_ways_to_name_one_are_listed(agent: Commands) -> None:
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


def looked_at(ended: Ended) -> list[str]:
    return [f["name"] for f in ended.json if f["part"] == "sandbox"]


@pytest.mark.bwrap
def test_one_sandbox_is_looked_at_alone(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--sandbox", "bwrap", "--json", "--model", "heuristic", **ALONE)
    assert (ended.code, looked_at(ended)) == (0, ["bwrap", "auto"])
    assert found(ended, "sandbox", "auto")["detail"].endswith("bwrap")


def test_the_sandbox_that_was_asked_for_is_needed(agent: Commands) -> None:
    ended = agent("doctor", "--quick", "--sandbox", "docker", "--json", "--model", "heuristic", **ALONE)
    assert (ended.code, looked_at(ended)) == (1, ["docker", "auto"])
    auto = found(ended, "sandbox", "auto")
    assert (auto["works"], auto["needed"], "bwrap" in auto["detail"]) == (False, False, True)


@pytest.mark.long
@pytest.mark.bwrap
def test_the_sandbox_is_attacked_and_what_cannot_be_enforced_is_listed(agent: Commands) -> None:
    ended = agent.start("doctor", "--model", "heuristic", "--json", **ALONE).wait(300)
    check = found(ended, "check", "bwrap")
    assert check["works"], check
    assert "attacks and tricks came to nothing" in check["detail"]
    limits = [f["detail"].partition(":")[0] for f in ended.json if f["part"] == "limit"]
    assert "inodes" in limits


def test_a_sandbox_that_breaks_a_check_makes_it_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in reversed(tuple(BACKENDS)):  # restored in their order
        monkeypatch.delitem(BACKENDS, name)  # type: ignore[arg-type]
    monkeypatch.setitem(BACKENDS, "credulous", lambda _config: FakeBackend(pass_all_cases, 0, "credulous"))  # type: ignore[arg-type]
    with pytest.raises(typer.Exit) as ended:
        doctor.run(ModelOptions(model=["heuristic"]), sandbox=None, as_json=True, quick=False)
    broken = [f for f in json.loads(capsys.readouterr().out) if f["part"] == "check"]
    assert ended.value.exit_code == 1
    assert not any(finding["works"] for finding in broken)
    assert any(f["detail"].startswith("forgeries: calls os._exit while loading: ") for f in broken)


def test_unreachable_models_are_findings_too(agent: Commands) -> None:
    ended = ask(agent, f"http://127.0.0.1:{free_port()}/v1", "--json")
    assert (ended.code, found(ended, "model")["works"]) == (1, False)
    assert "cannot be reached" in found(ended, "model")["detail"]
