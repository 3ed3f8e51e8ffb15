"""Any LangChain chat model works as a model of the pipeline."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr

from agent.errors import AccountError, ModelError, ModelTimeout
from agent.llm.base import LLM, Call
from agent.llm.langchain import LangChainModel
from agent.llm.prices import Prices
from agent.types import Message
from tests.llm.server import ChatServer, no_credit, rate_limited, says, slow

ODD = object()
CALL = Call(role="screen", messages=(Message("system", "Judge."), Message("user", "Is it {a} match?\ud800")))


class Recorder(BaseChatModel):
    """Answers with what it was made with, and keeps the messages."""

    answer: Any
    model_name: str = "mine-1"
    token: SecretStr = SecretStr("hidden-token")
    seen: list[Any] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> ChatResult:
        self.seen.append([(message.type, message.content) for message in messages])
        if isinstance(self.answer, Exception):
            raise self.answer
        return ChatResult(generations=[ChatGeneration(message=self.answer)])

    @property
    def _llm_type(self) -> str:
        return "recorder"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model": self.model_name,
            "token": self.token,
            "key": "hidden-token",
            "odd": {ODD},
            "nan": float("nan"),
        }


def failing(error: Exception) -> LangChainModel:
    return LangChainModel(Recorder(answer=error))


class Refused(Exception):
    def __init__(self, status: int, **fields: Any) -> None:
        super().__init__(f"refused with {status}")
        self.status_code = status
        vars(self).update(fields)


async def test_messages_arrive_as_they_are_without_templating() -> None:
    model = Recorder(answer=AIMessage("yes"))
    assert (await LangChainModel(model).reply(CALL)).text == "yes"
    assert model.seen == [[("system", "Judge."), ("human", "Is it {a} match?\ufffd")]]


async def test_usage_cost_and_what_served_it_are_carried_over() -> None:
    read, written = {"cache_read": 60}, {"reasoning": 8}
    usage: Any = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    message = AIMessage(
        "yes",
        usage_metadata={**usage, "input_token_details": read, "output_token_details": written},
        response_metadata={"model_name": "mine-1-2026", "finish_reason": "stop", "system_fingerprint": "fp"},
        additional_kwargs={"reasoning_content": "hm"},
    )
    model = LangChainModel(Recorder(answer=message), prices=Prices.of({"mine-1": {"input": 1, "output": 2}}))
    reply = await model.reply(CALL)
    assert reply.usage.model_dump(exclude={"cost_usd"}) == {
        "calls": 1, "input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 20, "reasoning_tokens": 8,
    }  # fmt: skip
    assert reply.usage.cost_usd == pytest.approx(140 / 1_000_000)
    assert (reply.model, reply.finish_reason, reply.fingerprint, reply.reasoning) == ("mine-1-2026", "stop", "fp", "hm")
    assert json.loads(json.dumps(reply.raw))["usage_metadata"]["total_tokens"] == 120


@pytest.mark.parametrize("found", [None, {"input_tokens": -5, "output_tokens": 10**40, "total_tokens": 0}])
async def test_a_call_counts_without_usage_or_with_one_that_cannot_be(found: Any) -> None:
    usage = (await LangChainModel(Recorder(answer=AIMessage("yes", usage_metadata=found))).reply(CALL)).usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.cost_usd) == (1, 0, 0, None)


async def test_content_in_blocks_gives_text_and_reasoning() -> None:
    blocks: list[Any] = [{"type": "thinking", "thinking": "first this"}, {"type": "text", "text": "yes"}]
    reply = await LangChainModel(Recorder(answer=AIMessage(blocks))).reply(CALL)
    assert (reply.text, reply.reasoning) == ("yes", "first this")


async def test_a_reply_from_langchains_cache_is_not_billed_again() -> None:
    from langchain_core.caches import InMemoryCache

    message = AIMessage("yes", usage_metadata={"input_tokens": 5, "output_tokens": 1, "total_tokens": 6})
    model = LangChainModel(Recorder(answer=message, cache=InMemoryCache()))
    first, second = await model.reply(CALL), await model.reply(CALL)
    assert (first.cached, first.usage.calls) == (False, 1)
    assert (second.text, second.cached, second.usage.calls) == ("yes", True, 0)


@pytest.mark.parametrize("error", [*map(Refused, (401, 402, 403, 404)), Refused(429, code="insufficient_quota")])
async def test_an_error_that_no_call_can_mend_stops_the_run(error: Exception) -> None:
    with pytest.raises(AccountError, match="refused with 4"):
        await failing(error).reply(CALL)


@pytest.mark.parametrize("error", [Refused(429), Refused(500), KeyError("choices"), RuntimeError("odd")])
async def test_any_other_error_ends_the_pair_with_its_cause(error: Exception) -> None:
    with pytest.raises(ModelError, match=type(error).__name__) as caught:
        await failing(error).reply(CALL)
    assert caught.value.__cause__ is error


async def test_a_timeout_of_the_models_own_is_a_timeout() -> None:
    with pytest.raises(ModelTimeout):
        await failing(TimeoutError("too slow")).reply(CALL)


async def test_secrets_of_the_model_are_in_no_message_and_no_identity() -> None:
    model = failing(RuntimeError("bad token hidden-token"))
    with pytest.raises(ModelError) as caught:
        await model.reply(CALL)
    assert "hidden-token" not in str(caught.value) + repr(model) + json.dumps(model.identity())


def test_the_identity_tells_models_and_parameters_apart_and_is_stable() -> None:
    identities = [
        json.dumps(LangChainModel(Recorder(answer=AIMessage(""), model_name=name)).identity(), sort_keys=True)
        for name in ("a", "b", "a")
    ]
    assert identities[0] == identities[2] != identities[1]
    assert isinstance(LangChainModel(Recorder(answer=AIMessage(""))), LLM)


class TestOverHttp:
    def chat(self, server: ChatServer, **options: Any) -> ChatOpenAI:
        url = server.url.replace("http://", "http://me:word@")
        return ChatOpenAI(model="m", base_url=url, api_key=SecretStr("sk-secret"), max_retries=0, **options)

    async def test_a_real_chat_model_answers(self) -> None:
        with ChatServer(says("yes", prompt_tokens=12)) as server:
            model = LangChainModel(self.chat(server, temperature=0.5))
            reply = await model.reply(CALL)
            assert (reply.text, reply.usage.input_tokens, reply.model) == ("yes", 12, "served-model")
            assert model.address == server.url
            assert model.identity()["parameters"]["temperature"] == 0.5
            assert "sk-secret" not in json.dumps(model.identity())

    async def test_its_errors_are_told_apart(self) -> None:
        with ChatServer([no_credit(), rate_limited()]) as server:
            model = LangChainModel(self.chat(server))
            with pytest.raises(AccountError, match="Insufficient Balance"):
                await model.reply(CALL)
            with pytest.raises(ModelError, match="Rate limit"):
                await model.reply(CALL)

    async def test_the_call_timeout_holds(self) -> None:
        with ChatServer(slow(30)) as server, pytest.raises(ModelTimeout, match=r"within 0\.2 s"):
            await LangChainModel(self.chat(server), call_timeout=0.2).reply(CALL)
