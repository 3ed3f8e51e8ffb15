"""Models are built from names per role, without silent fallbacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError, InputError
from agent.llm.base import Call, ScriptedLLM, get_address
from agent.llm.models import Models, parse_model
from agent.llm.openai import OpenAIModel
from agent.llm.replay import ReplayModel
from agent.types import Message
from tests.llm.server import ChatServer, says

LOCAL = "http://localhost:11434/v1"
CALL = Call(role="screen", messages=(Message("user", "?"),))


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def replies(tmp_path: Path) -> Path:
    file = tmp_path / "a=b.jsonl"
    file.write_text(json.dumps({"pair": "p", "role": "screen", "reply": "x"}))
    return file


class TestNames:
    def test_importing_the_module_loads_no_heavy_library(self) -> None:
        heavy = "'langchain_core', 'langchain_openai', 'openai', 'httpx', 'httpx2', 'tenacity', 'yaml'"
        program = f"import sys, agent.llm.models; sys.exit(', '.join(m for m in ({heavy}) if m in sys.modules) or None)"
        process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (process.returncode, process.stderr) == (0, "")

    def test_a_replay_needs_an_existing_file(self, replies: Path) -> None:
        assert isinstance(parse_model(f"replay:{replies}"), ReplayModel)
        with pytest.raises(ConfigError, match="replay:"):
            parse_model("replay:")
        with pytest.raises(InputError, match="nowhere"):
            parse_model("replay:nowhere.jsonl")

    def test_any_other_name_is_a_model_on_a_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = parse_model("llama3:8b", base_url=LOCAL)
        assert (type(model), model.identity()["model"], get_address(model)) == (OpenAIModel, "llama3:8b", LOCAL)
        monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
        assert get_address(parse_model("m")) == LOCAL

    async def test_objects_with_the_two_methods_are_returned_unchanged(self) -> None:
        model = ScriptedLLM(["x"])
        assert parse_model(model) is model

    async def test_langchain_models_are_wrapped(self) -> None:
        from langchain_core.language_models import FakeListChatModel

        assert (await parse_model(FakeListChatModel(responses=["hello"])).reply(CALL)).text == "hello"

    @pytest.mark.parametrize("spec", [3, object(), ScriptedLLM, b"gpt", Path("x")])
    def test_anything_else_is_refused(self, spec: Any) -> None:
        with pytest.raises(ConfigError, match="BaseChatModel"):
            parse_model(spec)


class TestKeys:
    @pytest.mark.parametrize("name", ["gpt-4o-mini", "heurstic"])
    def test_a_missing_key_error_names_all_alternatives(self, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_model(name)
        for option in ("OPENAI_API_KEY", "--model NAME", "--base-url", "--model heuristic", "--model replay:FILE"):
            assert option in str(caught.value)

    @pytest.mark.parametrize("choices", [[], [""], ["  "]])
    def test_a_missing_model_error_names_an_alternative(
        self, choices: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        with pytest.raises(ConfigError, match="--model heuristic"):
            Models.of(choices)
        with pytest.raises(ConfigError, match="--model heuristic"):
            Models.of(None)

    @pytest.mark.parametrize("url", [LOCAL, "http://192.168.1.7/v1", "http://host.docker.internal:1234/v1"])
    def test_a_local_server_needs_no_key(self, url: str) -> None:
        assert get_address(parse_model("m", base_url=url)) == url

    def test_a_remote_server_needs_a_key_unless_a_header_or_the_url_has_one(self) -> None:
        with pytest.raises(ConfigError, match=r"llm\.example\.org"):
            parse_model("m", base_url="https://llm.example.org/v1")
        parse_model("m", base_url="https://me:secret@llm.example.org/v1")
        parse_model("m", base_url="https://llm.example.org/v1", headers={"X-Api-Key": "k"})
        parse_model("m", base_url="https://llm.example.org/v1", api_key=lambda: "k")

    async def test_an_explicit_key_overrides_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
        with ChatServer(says("x")) as server:
            await parse_model("m", base_url=server.url).reply(CALL)
            await parse_model("m", base_url=server.url, api_key="given").reply(CALL)
            keys = [request.headers["authorization"] for request in server.requests]
        assert keys == ["Bearer from-environment", "Bearer given"]


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("temperature", "hot"),
            ("attempts", 0),
            ("extra_body", "[1]"),
            ("temprature", 0.5),
            ("base_url", "localhost:11434"),
            ("base_url", "http://localhost/v1?key=secret-key"),
            ("base_url", "http://[::1/v1"),
        ],
    )
    def test_an_invalid_option_is_refused(self, option: str, value: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_model("m", **{"base_url": LOCAL, option: value})
        assert "secret-key" not in str(caught.value)

    def test_none_means_unset_and_the_extra_body_may_be_json_text(self) -> None:
        plain = parse_model("m", base_url=LOCAL)
        assert parse_model("m", base_url=LOCAL, temperature=None, thinking=None).identity() == plain.identity()
        assert parse_model("m", base_url=LOCAL, extra_body='{"seed": 1}').identity()["extra_body"] == {"seed": 1}

    async def test_prices_are_applied_to_replies(self) -> None:
        prices = {"m": {"input": 1, "output": 1}}
        with ChatServer(says("x", prompt_tokens=90, completion_tokens=10)) as server:
            reply = await parse_model("m", base_url=server.url, prices=prices).reply(CALL)
        assert reply.usage.cost_usd == pytest.approx(100 / 1_000_000)


class TestRoles:
    def test_a_role_may_have_its_own_model(self) -> None:
        models = Models.of(["big", "screen=small"], base_url=LOCAL)
        names = {role: models.for_role(role).identity()["model"] for role in ("screen", "judge", "verify")}
        assert names == {"screen": "small", "judge": "big", "verify": "big"}

    def test_a_name_chosen_twice_is_one_model(self) -> None:
        models = Models.of(["big", "screen=small", "judge=small", "repair=big"], base_url=LOCAL)
        assert models.for_role("screen") is models.for_role("judge")
        assert len(models.list_models()) == 2
        assert models.join_names() == "big+small"

    def test_the_error_for_a_role_without_a_model_names_the_option(self) -> None:
        with pytest.raises(ConfigError, match="--model judge=NAME"):
            Models.of(["screen=small"], base_url=LOCAL).for_role("judge")

    def test_a_mapping_assigns_objects_to_roles(self) -> None:
        screen, rest = ScriptedLLM([], name="screen"), ScriptedLLM([], name="rest")
        models = Models.of({"screen": screen, "default": rest})
        assert (models.for_role("screen"), models.for_role("judge")) == (screen, rest)
        assert models.list_models() == [rest, screen]

    def test_a_models_object_is_returned_unchanged_and_accepts_no_options(self) -> None:
        models = Models.of(ScriptedLLM([]))
        assert Models.of(models) is models
        with pytest.raises(ConfigError, match="temperature"):
            Models.of(models, temperature=0.1)

    def test_the_identity_depends_on_each_roles_model(self) -> None:
        def identity(*choices: str) -> dict[str, Any]:
            return Models.of(choices, base_url=LOCAL).identity()

        assert identity("a", "screen=a") == identity("a")
        choices = (("a",), ("a", "screen=b"), ("a", "judge=b"), ("screen=a",))
        assert len({json.dumps(identity(*names)) for names in choices}) == 4
