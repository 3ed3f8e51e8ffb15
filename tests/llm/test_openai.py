"""Models behind OpenAI-compatible servers, tested against a real HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
import ssl
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agent.config import ModelConfig
from agent.errors import (
    AccountError,
    ConfigError,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    OptionRefused,
    UsageError,
)
from agent.llm.base import LLM, Call, Wait
from agent.llm.endpoints import build_thinking_body, resolve_endpoint
from agent.llm.openai import OpenAIModel
from agent.llm.prices import Prices
from agent.types import Message
from tests.llm.server import (
    Answer,
    ChatServer,
    Request,
    blank,
    broken,
    compressed_bomb,
    cut,
    endless,
    fails,
    free_port,
    garbage,
    half_body,
    half_content,
    hang_up,
    keep_alives,
    no_credit,
    no_quota,
    rate_limited,
    says,
    slow,
    unauthorized,
    unknown_model,
)

KEY = "sk-very-secret-key"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = format_datetime(NOW + timedelta(hours=1), usegmt=True)
PRICES = Prices.of({"test-model": {"input": 1.0, "output": 10.0}})


def call(text: str = "Is it a match?", *, reply: Any = "text", **fields: Any) -> Call:
    return Call(role="screen", messages=(Message("system", "Judge."), Message("user", text)), reply=reply, **fields)


class Stage:
    """Starts servers, creates models for them, and records waits instead of sleeping."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.servers: list[ChatServer] = []

    def __call__(
        self, script: Sequence[Answer] | Answer | Callable[[Request], Answer], api_key: Any = KEY, **settings: Any
    ) -> OpenAIModel:
        server = ChatServer(script).__enter__()
        self.servers.append(server)
        return self.model(server.url, api_key, **settings)

    def model(self, url: str, api_key: Any = KEY, *, http_client: Any = None, **settings: Any) -> OpenAIModel:
        config = ModelConfig(**{"name": "test-model", "base_url": url, "call_timeout": 30.0, **settings})
        return OpenAIModel(config, api_key=api_key, http_client=http_client, prices=PRICES, now=lambda: NOW)

    @property
    def requests(self) -> list[Request]:
        return self.servers[-1].requests

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage()
    monkeypatch.setattr("agent.llm.base.sleep", stage.sleep)
    yield stage
    for server in stage.servers:
        server.__exit__()


class TestReplies:
    async def test_a_reply_has_text_reasoning_usage_cost_and_the_raw_body(self, stage: Stage) -> None:
        counts = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 64, "reasoning_tokens": 12}
        answer = says("yes", reasoning="because", x_unknown={"a": [1, None]}, **counts)
        model = stage(answer)
        reply = await model.reply(call())
        assert (reply.text, reply.reasoning, reply.raw) == ("yes", "because", json.loads(answer.body))
        assert (reply.model, reply.fingerprint, reply.finish_reason) == ("served-model", "fp_1", "stop")
        cost = pytest.approx((100 * 1.0 + 20 * 10.0) / 1_000_000)
        assert reply.usage.model_dump(exclude={"cost_usd"}) == {
            "calls": 1, "input_tokens": 100, "cached_input_tokens": 64, "output_tokens": 20, "reasoning_tokens": 12,
        }  # fmt: skip
        assert reply.usage.cost_usd == cost
        assert isinstance(model, LLM)

    async def test_deepseeks_field_for_cached_tokens_is_read(self, stage: Stage) -> None:
        model = stage(says("x", usage={"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}))
        assert (await model.reply(call())).usage.cached_input_tokens == 8

    @pytest.mark.parametrize(
        "usage", [None, [], "many", {"prompt_tokens": "7", "completion_tokens": -1}, {"prompt_tokens": 1e300}]
    )
    async def test_unreadable_usage_counts_as_a_call_without_tokens(self, stage: Stage, usage: Any) -> None:
        answer = Answer(says("yes", usage=usage).body, headers={"Content-Type": "application/json"})
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            for kind in ("text", "json"):
                reply = await stage(answer).reply(call(reply=kind))
                assert reply.text == "yes"
                assert (reply.usage.calls, reply.usage.input_tokens, reply.usage.output_tokens) == (1, 0, 0)

    async def test_a_blank_reply_is_billed_and_not_retried(self, stage: Stage) -> None:
        reply = await stage(blank()).reply(call(reply="json"))
        assert (reply.text.strip(), reply.usage.output_tokens, stage.waits) == ("", 3, [])

    @pytest.mark.parametrize(
        ("message", "text"),
        [
            ({"content": None}, ""),
            ({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}, "ab"),
            ({"content": None, "refusal": "I will not."}, "I will not."),
        ],
    )
    async def test_content_may_be_missing_split_or_a_refusal(self, stage: Stage, message: Any, text: str) -> None:
        choice = {"index": 0, "message": {"role": "assistant", **message}}
        assert (await stage(says(None, choices=[choice])).reply(call())).text == text

    async def test_a_truncated_reply_is_returned_unchanged(self, stage: Stage) -> None:
        reply = await stage(half_content()).reply(call(reply="json"))
        assert (reply.text, reply.finish_reason) == ('{"reason": "it sor', "length")
        assert (reply.usage.calls, reply.usage.output_tokens) == (1, 7)

    async def test_a_reply_has_the_limit_headers(self, stage: Stage) -> None:
        headers = {"X-RateLimit-Limit-Tokens": "9", "X-Other": "1"}
        reply = await stage(Answer(says("x").body, headers=headers)).reply(call())
        assert reply.limits == {"x-ratelimit-limit-tokens": "9"}

    async def test_lone_surrogates_are_replaced_in_prompt_and_reply(self, stage: Stage) -> None:
        reply = await stage(says("a\ud800b")).reply(call("x\udfffy"))
        assert reply.text == "a\ufffdb"
        assert stage.requests[0].body["messages"][1]["content"] == "x\ufffdy"
        json.dumps(reply.raw, ensure_ascii=False).encode()

    async def test_langchains_cache_is_bypassed(self, stage: Stage) -> None:
        from langchain_core.caches import InMemoryCache
        from langchain_core.globals import set_llm_cache

        set_llm_cache(InMemoryCache())
        try:
            model = stage([says("1"), says("2")])
            assert [(await model.reply(call())).text for _ in range(2)] == ["1", "2"]
        finally:
            set_llm_cache(None)


class TestRequests:
    async def get_body(self, stage: Stage, sent_call: Call | None = None, **settings: Any) -> dict[str, Any]:
        await stage(says("{}"), **settings).reply(sent_call or call())
        return stage.requests[-1].body

    async def test_only_messages_and_model_are_sent_by_default(self, stage: Stage) -> None:
        body = await self.get_body(stage)
        assert body.pop("messages") == [
            {"role": "system", "content": "Judge."},
            {"role": "user", "content": "Is it a match?"},
        ]
        assert {name: value for name, value in body.items() if value not in (None, False)} == {"model": "test-model"}

    @pytest.mark.parametrize("name", ["test-model", "gpt-5-mini", "o1", "gpt-5-pro", "codex-mini"])
    async def test_temperature_is_sent_only_if_set(self, stage: Stage, name: str) -> None:
        assert "temperature" not in await self.get_body(stage, name=name)
        assert (await self.get_body(stage, name=name, temperature=0.0))["temperature"] == 0.0
        assert stage.requests[-1].path == "/v1/chat/completions"

    @pytest.mark.parametrize(
        ("reply_format", "reply", "schema", "sent"),
        [
            ("json_object", "json", None, {"type": "json_object"}),
            ("json_object", "text", None, None),
            ("text", "json", None, None),
            ("json_schema", "json", None, {"type": "json_object"}),
            (
                "json_schema",
                "json",
                {"type": "object"},
                {"type": "json_schema", "json_schema": {"name": "screen", "schema": {"type": "object"}}},
            ),
        ],
    )
    async def test_the_reply_format_is_sent_as_configured(
        self, stage: Stage, reply_format: str, reply: Any, schema: Any, sent: Any
    ) -> None:
        body = await self.get_body(stage, call(reply=reply, schema=schema), reply_format=reply_format)
        assert body.get("response_format") == sent

    @pytest.mark.parametrize(("name", "field"), [("test-model", "max_tokens"), ("gpt-5-mini", "max_completion_tokens")])
    async def test_the_token_limit_is_named_as_the_server_expects(self, stage: Stage, name: str, field: str) -> None:
        body = await self.get_body(stage, name=name, max_tokens=77)
        limits = {key: value for key, value in body.items() if key.startswith("max_")}
        assert limits == {field: 77}

    async def test_the_extra_body_is_merged_over_the_thinking_fields(self, stage: Stage) -> None:
        body = await self.get_body(
            stage,
            name="Qwen/Qwen3-8B",
            thinking="off",
            extra_body={"chat_template_kwargs": {"style": "brief"}, "seed": 3},
            headers={"X-Team": "search"},
        )
        assert stage.requests[-1].headers["x-team"] == "search"
        assert body["chat_template_kwargs"] == {"enable_thinking": False, "style": "brief"}
        assert body["seed"] == 3
        assert "extra_body" not in body

    async def test_credentials_in_the_url_become_a_header_and_are_hidden(self, stage: Stage) -> None:
        with ChatServer(says("yes")) as server:
            model = stage.model(server.url.replace("http://", "http://me:p%40ss@"), api_key=None)
            await model.reply(call())
            assert server.requests[0].headers["authorization"] == "Basic bWU6cEBzcw=="
            assert model.address == server.url
            assert "p@ss" not in repr(model)


class TestThinking:
    @pytest.mark.parametrize(
        ("name", "url", "fields"),
        [
            ("deepseek-flash", "https://api.deepseek.com", {"thinking": {"type": "disabled"}}),
            ("Qwen/Qwen3-8B", "http://vllm:8000/v1", {"chat_template_kwargs": {"enable_thinking": False}}),
            ("qwen3:8b", "http://localhost:11434/v1", {"reasoning_effort": "none"}),
            ("gpt-5-mini", "https://api.openai.com/v1", {"reasoning_effort": "none"}),
            ("z-ai/glm-4.7", "https://openrouter.ai/api/v1", {"reasoning": {"enabled": False}}),
            ("glm-4.7", "https://llm.example.org/v1", {"thinking": {"type": "disabled"}}),
        ],
    )
    def test_the_switch_depends_on_server_and_model(self, name: str, url: str, fields: dict[str, Any]) -> None:
        assert build_thinking_body("off", name, resolve_endpoint(url)) == fields


class TestKeys:
    async def test_a_key_or_a_dummy_is_sent_as_bearer(self, stage: Stage) -> None:
        await stage(says("x")).reply(call())
        assert stage.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        await stage(says("x"), api_key=None).reply(call())
        assert stage.requests[-1].headers["authorization"] == "Bearer none"

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_key_function_is_called_at_every_attempt(self, stage: Stage, is_async: bool) -> None:
        keys = iter(["first-key", "second-key"])

        async def later() -> str:
            await asyncio.sleep(0)
            return next(keys)

        key = (lambda: later()) if is_async else lambda: next(keys)
        await stage([rate_limited(), says("x")], api_key=key).reply(call())
        sent = [request.headers["authorization"] for request in stage.requests]
        assert sent == ["Bearer first-key", "Bearer second-key"]

    @pytest.mark.parametrize("answer", [RuntimeError("vault sealed: hunter2"), None, ""])
    async def test_a_key_function_without_a_key_stops_the_run(self, stage: Stage, answer: Any) -> None:
        def key() -> str:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        with pytest.raises(AccountError, match="api_key") as caught:
            await stage(says("x"), api_key=key).reply(call())
        assert "hunter2" not in str(caught.value)
        assert stage.requests == []

    async def test_the_key_is_in_no_identity_repr_error_or_log(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        model = stage(
            unauthorized(f"Incorrect API key {KEY}; header X-Token: token-in-header"),
            headers={"X-Token": "token-in-header", "Authorization": "Bearer other-secret"},
        )
        with pytest.raises(AccountError) as caught:
            await model.reply(call())
        shown = "\n".join(
            (repr(model), json.dumps(model.identity()), caplog.text, *traceback.format_exception(caught.value))
        )
        for secret in (KEY, "token-in-header", "other-secret"):
            assert secret not in shown


class TestRetries:
    @pytest.mark.parametrize(
        "failure",
        [
            fails(408),
            rate_limited(),
            broken(503),
            garbage(),
            half_body(),
            cut(),
            hang_up(),
            Answer(b""),
            Answer(b"[" * 100_000),
            says("x", choices=[]),
            says("x", choices=None, error={"message": "Provider returned error", "code": 502}),
        ],
    )
    async def test_transient_errors_are_retried(self, stage: Stage, failure: Answer) -> None:
        reply = await stage([failure, failure, says("at last")]).reply(call())
        assert reply.text == "at last"
        assert len(stage.requests) == 3
        assert len(stage.waits) == 2

    async def test_waits_grow_and_have_a_limit(self, stage: Stage) -> None:
        with pytest.raises(ModelError, match="9 attempts"):
            await stage(broken(), attempts=9).reply(call())
        bases = [1, 2, 4, 8, 16, 30, 30, 30]
        assert all(base <= wait <= base + 1 for base, wait in zip(bases, stage.waits, strict=True))

    @pytest.mark.parametrize(
        ("name", "header", "least"),
        [
            ("Retry-After", "7", 7.0),
            ("Retry-After", format_datetime(NOW.replace(second=20), usegmt=True), 20.0),
            ("Retry-After", "600", 600.0),
            ("Retry-After", "0", 0),
            ("llm_provider-retry-after", "60", 60.0),
        ],
    )
    async def test_the_requested_wait_is_honoured_up_to_ten_minutes(
        self, stage: Stage, name: str, header: str, least: float
    ) -> None:
        await stage([fails(429, headers={name: header}), says("x")]).reply(call())
        assert least <= stage.waits[0] <= least + 1

    @pytest.mark.parametrize(
        ("header", "minutes"), [("601", "10.02"), ("86400", "1,440"), ("1e300", "1.667e+298"), (LATER, "60")]
    )
    async def test_a_longer_wait_stops_the_run(self, stage: Stage, header: str, minutes: str) -> None:
        with pytest.raises(AccountError, match=rf"HTTP 429.* {re.escape(minutes)} minutes"):
            await stage([rate_limited(header), says("x")]).reply(call())
        assert (len(stage.requests), stage.waits) == (1, [])

    async def test_each_wait_is_reported_with_its_reason(self, stage: Stage) -> None:
        waits: list[Wait] = []

        async def on_wait(wait: Wait) -> None:
            waits.append(wait)

        refusal = fails(429, headers={"Retry-After": "300", "X-RateLimit-Limit-Tokens": "9"})
        model = stage([refusal, broken(), says("x")], attempts=9)
        await model.reply(replace(call(), on_wait=on_wait))
        assert stage.waits == []
        assert 300 <= waits[0].seconds <= 301
        assert [(wait.rate_limited, len(wait.limits)) for wait in waits] == [(True, 1), (False, 0)]
        assert waits[0].limits == {"x-ratelimit-limit-tokens": "9"}
        url = re.escape(stage.servers[-1].url)
        assert re.search(rf"{url} .*\b429\b.*\b2 of 9", waits[0].reason)
        assert re.search(rf"{url} .*\b500\b.*\b3 of 9", waits[1].reason)

    @pytest.mark.parametrize("header", ["soon", "-3", "nan", "", "Fri, 31 Dec 99999999999 23:59:59 GMT"])
    async def test_an_unreadable_retry_after_falls_back_to_growing_waits(self, stage: Stage, header: str) -> None:
        await stage([rate_limited(header), says("x")]).reply(call())
        assert 1 <= stage.waits[0] <= 2

    @pytest.mark.parametrize("status", [400, 405, 413, 422])
    async def test_other_request_errors_are_not_retried(self, stage: Stage, status: int) -> None:
        with pytest.raises(ModelError, match=f"HTTP {status}: too long"):
            await stage(fails(status, "too long")).reply(call())
        assert len(stage.requests) == 1

    async def test_a_refused_reply_format_names_the_option(self, stage: Stage) -> None:
        with pytest.raises(OptionRefused, match="reply_format=text"):
            await stage(fails(400, "'response_format.type' must be text")).reply(call(reply="json"))

    @pytest.mark.parametrize("kinds", [("json", "json"), ("text", "text")])
    async def test_a_format_error_stops_no_run_if_the_format_was_accepted_or_not_requested(
        self, stage: Stage, kinds: Any
    ) -> None:
        model = stage([says("{}"), fails(400, "'response_format' stands in your text, which is too long")])
        await model.reply(call(reply=kinds[0]))
        with pytest.raises(ModelError, match="too long"):
            await model.reply(call(reply=kinds[1]))

    @pytest.mark.parametrize("answer", [broken(), broken(503), rate_limited(), garbage(), half_body()])
    async def test_the_last_transient_error_is_model_unavailable(self, stage: Stage, answer: Answer) -> None:
        with pytest.raises(ModelUnavailable, match="2 attempts"):
            await stage(answer, attempts=2).reply(call())

    async def test_server_messages_are_sanitised(self, stage: Stage) -> None:
        with pytest.raises(ModelError) as caught:
            await stage(fails(400, "\x1b[31mred\x00\n" + "long " * 1000)).reply(call())
        message = str(caught.value)
        assert message.isprintable()
        assert len(message) < 600


class TestUsageOfFailures:
    async def test_usage_of_a_reply_includes_billed_attempts(self, stage: Stage) -> None:
        unusable = says("x", choices=[], prompt_tokens=50, completion_tokens=5)
        reply = await stage([rate_limited(), garbage(), unusable, cut(), says("yes")]).reply(call())
        assert (reply.usage.calls, reply.usage.input_tokens, reply.usage.output_tokens) == (4, 150, 15)
        assert reply.usage.cost_usd == pytest.approx((150 * 1.0 + 15 * 10.0) / 1_000_000)
        assert (await stage(says("x"), name="unheard-of").reply(call())).usage.cost_usd is None

    @pytest.mark.parametrize(("answers", "calls", "tokens"), [(2, 2, 100), (0, 0, 0)])
    async def test_usage_of_an_error_includes_billed_attempts_but_no_refused_ones(
        self, stage: Stage, answers: int, calls: int, tokens: int
    ) -> None:
        unusable = says("x", choices=[], prompt_tokens=50, completion_tokens=5)
        with pytest.raises(ModelError) as caught:
            await stage([*[unusable] * answers, broken(), fails(400)]).reply(call())
        assert (caught.value.usage.calls, caught.value.usage.input_tokens) == (calls, tokens)
        assert caught.value.usage.cost_usd == pytest.approx(calls * (50 * 1.0 + 5 * 10.0) / 1_000_000)


class TestCallTimeouts:
    @pytest.mark.parametrize("answer", [keep_alives(), slow(30)])
    async def test_an_endless_response_exceeds_the_call_timeout(self, stage: Stage, answer: Answer) -> None:
        with pytest.raises(ModelTimeout, match=r"0\.2 s.* 2 attempts") as caught:
            await stage(answer, call_timeout=0.2, attempts=2).reply(call())
        assert caught.value.usage.calls == 2

    async def test_each_attempt_has_the_whole_call_timeout(self, stage: Stage) -> None:
        reply = await stage([keep_alives(), keep_alives(), says("x")], call_timeout=0.3).reply(call())
        assert (reply.text, reply.usage.calls) == ("x", 3)


class TestRunStops:
    @pytest.mark.parametrize(
        ("answer", "pattern"),
        [
            (unauthorized(), "HTTP 401.*OPENAI_API_KEY"),
            (no_credit(), "HTTP 402.*Top up"),
            (fails(403, "Country not supported"), "HTTP 403"),
            (unknown_model(), "HTTP 404.*--model.*'test-model'"),
            (Answer(b"<html>404</html>", 404), "HTTP 404.*--base-url"),
            (fails(400, "Model Not Exist", type="invalid_request_error"), "Model Not Exist.*--model"),
            (fails(400, "xyz is not a valid model ID", code=400), "not a valid model ID"),
            (fails(400, "/chat/completions: Invalid model name passed in model=x", code="400"), "Invalid.*--model"),
            (fails(400, "No connected db.", type="no_db_connection", code="400"), "HTTP 400.*OPENAI_API_KEY"),
            (fails(400, "Incorrect API key provided: x"), "HTTP 400.*OPENAI_API_KEY"),
            (Answer(b'[{"error": {"code": 400, "message": "API key not valid."}}]', 400), "HTTP 400.*OPENAI_API_KEY"),
            (no_quota(), "HTTP 429.*Top up"),
            (says("x", choices=None, error={"message": "Insufficient credits", "code": 402}), "HTTP 402"),
        ],
    )
    async def test_an_error_that_affects_every_call_stops_the_run(
        self, stage: Stage, answer: Answer, pattern: str
    ) -> None:
        with pytest.raises(AccountError, match=pattern):
            await stage(answer).reply(call())
        assert len(stage.requests) == 1

    async def test_a_refused_text_ends_only_the_pair(self, stage: Stage) -> None:
        with pytest.raises(ModelError, match="HTTP 403"):
            await stage(fails(403, "your input was flagged by moderation")).reply(call())

    async def test_an_unreachable_server_stops_the_run(self, stage: Stage) -> None:
        url = f"http://127.0.0.1:{free_port()}/v1"
        with pytest.raises(AccountError) as caught:
            await stage.model(url, attempts=3).reply(call())
        assert url in str(caught.value)
        assert "--base-url" in str(caught.value)
        assert len(stage.waits) == 2

    @pytest.mark.parametrize("bypass", [False, True])
    async def test_the_error_of_an_unreachable_local_server_names_the_proxy(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, bypass: bool
    ) -> None:
        monkeypatch.setenv("http_proxy", f"http://me:s3cret@127.0.0.1:{(proxy := free_port())}")
        monkeypatch.setenv("no_proxy", "127.0.0.1" if bypass else "")
        with pytest.raises(AccountError) as caught:
            await stage.model(f"http://127.0.0.1:{free_port()}/v1", attempts=1).reply(call())
        named = [word in str(caught.value) for word in (f"http://127.0.0.1:{proxy}", "NO_PROXY")]
        assert named == [not bypass] * 2
        assert "s3cret" not in str(caught.value)

    async def test_an_untrusted_certificate_stops_the_run_at_once(self, stage: Stage, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        with HTTPServer(ssl_context=context) as server:
            server.expect_request("/v1/chat/completions").respond_with_data(says("yes").body)
            url = server.url_for("/v1").replace("localhost", "127.0.0.1")
            with pytest.raises(AccountError, match="SSL_CERT_FILE"):
                await stage.model(url).reply(call())
            assert stage.waits == []
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
                assert (await stage.model(url).reply(call())).text == "yes"

    async def test_a_server_that_disappears_later_ends_only_the_pair(self, stage: Stage) -> None:
        model = stage(says("x"), attempts=2)
        await model.reply(call())
        await model.aclose()
        stage.servers[-1].__exit__()
        with pytest.raises(ModelUnavailable, match="ConnectError"):
            await model.reply(call())


class TestHostileServers:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_a_redirect_stops_the_run_and_sends_nothing_to_its_target(self, stage: Stage, status: int) -> None:
        with ChatServer(says("stolen")) as target:
            location = target.url.replace("//", f"//{'trusted.example.org' * 30}:secret@") + "/more"
            redirect = Answer(status=status, headers={"Location": location})
            with pytest.raises(AccountError) as caught:
                await stage(redirect, headers={"api-key": "second-key"}).reply(call())
            assert f"{target.url}/more" in str(caught.value)
            assert "trusted" not in str(caught.value)
            assert target.requests == []

    @pytest.mark.parametrize(
        "answer",
        [endless(), endless(500), compressed_bomb(), Answer(says("x").body, headers={"Content-Encoding": "zstd"})],
    )
    async def test_a_response_of_unlimited_size_is_a_billed_error(self, stage: Stage, answer: Answer) -> None:
        with pytest.raises(ModelError) as caught:
            await stage(answer).reply(call())
        assert (caught.value.usage.calls, len(stage.requests)) == (1, 1)

    async def test_a_compressed_reply_is_read(self, stage: Stage) -> None:
        answer = Answer(gzip.compress(says("yes").body), headers={"Content-Encoding": "gzip"})
        assert (await stage(answer).reply(call())).text == "yes"


class TestClients:
    def test_each_event_loop_has_its_own_client(self, stage: Stage) -> None:
        model = stage(says("x"))

        async def ask() -> str:
            try:
                return (await model.reply(call())).text
            finally:
                await model.aclose()

        assert [asyncio.run(ask()) for _ in range(2)] == ["x", "x"]

    @pytest.mark.parametrize("library", ["httpx", "httpx2"])
    async def test_a_users_client_is_used_and_left_open(self, stage: Stage, library: str) -> None:
        urls: list[str] = []

        async def record_url(response: Any) -> None:
            urls.append(str(response.request.url))

        httpx = pytest.importorskip(library)
        async with httpx.AsyncClient(event_hooks={"response": [record_url]}) as client:
            model = stage([garbage(), says("x")], http_client=client)
            reply = await model.reply(call())
            await model.aclose()
            assert (reply.text, reply.usage.calls, len(urls)) == ("x", 2, 2)
            assert not client.is_closed

    @pytest.mark.parametrize("library", ["httpx", "httpx2"])
    async def test_a_users_client_that_follows_redirects_is_rejected(self, stage: Stage, library: str) -> None:
        async with pytest.importorskip(library).AsyncClient(follow_redirects=True) as client:
            with pytest.raises(ConfigError, match="follow_redirects"):
                stage.model("http://127.0.0.1:9/v1", http_client=client)

    @pytest.mark.parametrize("library", ["httpx", "httpx2"])
    def test_a_users_client_that_is_closed_or_used_in_two_loops_is_a_usage_error(
        self, stage: Stage, library: str
    ) -> None:
        client = pytest.importorskip(library).AsyncClient()
        model = stage(says("x"), http_client=client)
        assert asyncio.run(model.reply(call())).text == "x"
        with pytest.raises(UsageError, match="http_client"):
            asyncio.run(model.reply(call()))
        asyncio.run(client.aclose())
        with pytest.raises(UsageError, match="http_client"):
            asyncio.run(model.reply(call()))


class TestIdentity:
    def test_the_identity_includes_everything_that_determines_replies(self, stage: Stage) -> None:
        def identity(**settings: Any) -> str:
            return json.dumps(stage.model("http://127.0.0.1:9/v1", **settings).identity(), sort_keys=True)

        changes: list[dict[str, Any]] = [
            {"name": "other"},
            {"temperature": 0.0},
            {"max_tokens": 5},
            {"thinking": "on"},
            {"thinking": "off"},
            {"extra_body": {"seed": 1}},
            {"reply_format": "text"},
        ]
        assert len({identity(), *(identity(**change) for change in changes)}) == len(changes) + 1

    def test_the_identity_excludes_timeout_attempts_headers_and_key(self, stage: Stage) -> None:
        url = "http://127.0.0.1:9/v1"
        patient = stage.model(url, attempts=9, call_timeout=99, headers={"X-Trace": "1"}, api_key="another")
        assert patient.identity() == stage.model(url).identity()

    def test_the_identity_is_the_same_for_all_servers(self, stage: Stage) -> None:
        addresses = ("http://127.0.0.1:11434/v1", "https://openrouter.ai/api/v1", "https://api.openai.com/v1")
        models = [stage.model(url, thinking="off", max_tokens=9) for url in addresses]
        assert [model.address for model in models] == list(addresses)
        assert all(model.identity() == models[0].identity() for model in models)
