"""Any LangChain chat model works as a model of the pipeline."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Any

import pytest
from langchain_core import exceptions
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr

from agent import Annotation, Annotator, Pair, annotate, stream
from agent.errors import AccountError, ModelError, ModelTimeout, ModelUnavailable
from agent.llm.base import LLM, Call
from agent.llm.langchain import LangChainModel
from agent.llm.parsing import UnreadableReply, parse_label
from agent.llm.prices import Prices
from agent.pipeline.asker import read_reply
from agent.types import Message
from tests.llm.families import FAMILIES, says_in_protocol
from tests.llm.server import ChatServer, no_credit, rate_limited, says, slow
from tests.scripts import label

ODD = object()
CALL = Call(role="screen", messages=(Message("system", "Judge."), Message("user", "Is it {a} match?\ud800")))


class Recorder(BaseChatModel):
    """Returns its configured answer and records the messages."""

    answer: Any
    model_name: str = "mine-1"
    token: SecretStr = SecretStr("hidden-token")
    received: list[Any] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> ChatResult:
        self.received.append([(message.type, message.content) for message in messages])
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


def make_failing(error: Exception) -> LangChainModel:
    return LangChainModel(Recorder(answer=error))


class StatusError(Exception):
    def __init__(self, status: int, **fields: Any) -> None:
        super().__init__(f"refused with {status}")
        self.status_code = status
        vars(self).update(fields)


async def test_messages_are_not_treated_as_templates() -> None:
    model = Recorder(answer=AIMessage("yes"))
    assert (await LangChainModel(model).reply(CALL)).text == "yes"
    assert model.received == [[("system", "Judge."), ("human", "Is it {a} match?\ufffd")]]


async def test_usage_cost_and_served_model_are_copied() -> None:
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


@pytest.mark.parametrize("usage_metadata", [None, {"input_tokens": -5, "output_tokens": 10**40, "total_tokens": 0}])
async def test_missing_or_invalid_usage_counts_as_one_call(usage_metadata: Any) -> None:
    usage = (await LangChainModel(Recorder(answer=AIMessage("yes", usage_metadata=usage_metadata))).reply(CALL)).usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.cost_usd) == (1, 0, 0, None)


async def test_content_blocks_are_text_and_reasoning() -> None:
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


def define_error(name: str) -> Exception:
    """Return an error of a class that a provider derives from one of langchain-core's classes."""
    return type("Provider", (getattr(exceptions, name),), {})("no")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((StatusError(status), AccountError) for status in (401, 402, 403, 404)),
        (StatusError(429, code="insufficient_quota"), AccountError),
        (StatusError(429), ModelUnavailable),
        (StatusError(500), ModelUnavailable),
        (TimeoutError("too slow"), ModelTimeout),
        (KeyError("choices"), ModelError),
        (RuntimeError("odd"), ModelError),
        (define_error("ModelAuthenticationError"), AccountError),
        (define_error("ModelPermissionDeniedError"), AccountError),
        (define_error("ModelNotFoundError"), AccountError),
        (define_error("ModelRateLimitError"), ModelUnavailable),
        (define_error("ModelAPIError"), ModelUnavailable),
        (define_error("ModelConnectionError"), ModelUnavailable),
        (define_error("ModelTimeoutError"), ModelTimeout),
        (define_error("ModelInvalidRequestError"), ModelError),
        (define_error("ContextOverflowError"), ModelError),
    ],
)
async def test_errors_are_classified_and_keep_their_cause(error: Exception, expected: type[Exception]) -> None:
    with pytest.raises((ModelError, AccountError), match=type(error).__name__) as caught:
        await make_failing(error).reply(CALL)
    assert type(caught.value) is expected
    assert repr(caught.value.__cause__) == repr(error)


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY"])
async def test_the_ending_of_a_gemini_reply_explains_that_it_is_unusable(finish: str) -> None:
    message = AIMessage('{"reason": "it', response_metadata={"finish_reason": finish, "model_name": "gemini"})
    reply = await LangChainModel(Recorder(answer=message)).reply(CALL)
    with pytest.raises(UnreadableReply, match="length limit" if finish == "MAX_TOKENS" else "filter"):
        read_reply(reply, parse_label)


async def test_secrets_are_masked_in_messages_and_identity() -> None:
    model = make_failing(RuntimeError("bad token hidden-token"))
    with pytest.raises(ModelError) as caught:
        await model.reply(CALL)
    assert "hidden-token" not in str(caught.value) + repr(model) + json.dumps(model.identity())


def test_the_identity_is_stable_and_depends_on_model_and_parameters() -> None:
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

    async def test_errors_are_classified_by_status(self) -> None:
        with ChatServer([no_credit(), rate_limited()]) as server:
            model = LangChainModel(self.chat(server))
            with pytest.raises(AccountError, match="Insufficient Balance"):
                await model.reply(CALL)
            with pytest.raises(ModelError, match="Rate limit"):
                await model.reply(CALL)

    async def test_the_call_timeout_is_enforced(self) -> None:
        with ChatServer(slow(30)) as server, pytest.raises(ModelTimeout, match=r"0\.2 s"):
            await LangChainModel(self.chat(server), call_timeout=0.2).reply(CALL)


PAIRS = [
    Pair(id=str(number), query=f"add {number}", code=f"def add(x):\n    return x + {number}\n") for number in range(20)
]


async def annotate_in_loop(model: BaseChatModel) -> list[Annotation]:
    async with Annotator(model=model, variant="single_llm") as annotator:
        return [annotation async for annotation in annotator.annotate(PAIRS)]


@pytest.mark.parametrize("family", FAMILIES)
class TestEventLoops:
    """A model's pooled connections belong to an event loop. The model works in any number of loops all the same."""

    @pytest.fixture
    def model(self, family: str) -> Any:
        with ChatServer(lambda request: says_in_protocol(request, label(1))) as server:
            yield FAMILIES[family](server)

    def test_a_model_can_be_used_again_after_its_loop_closed(self, model: BaseChatModel) -> None:
        options: dict[str, Any] = {"model": model, "variant": "single_llm"}
        results = [
            annotate(PAIRS, **options),
            annotate(PAIRS, **options),
            stream(PAIRS, **options),
            asyncio.run(annotate_in_loop(model)),
            asyncio.run(annotate_in_loop(model)),
        ]
        assert [Counter(row.error or row.label for row in rows) for rows in results] == [{1: len(PAIRS)}] * 5

    def test_the_callers_live_loop_can_use_the_same_object_meanwhile(self, model: BaseChatModel) -> None:
        async def call_directly(count: int) -> list[str]:
            return [str(reply.text) for reply in await asyncio.gather(*(model.ainvoke("hi") for _ in range(count)))]

        async def use() -> tuple[list[str], list[list[Annotation]]]:
            texts, results = await call_directly(10), []
            for work in (
                asyncio.to_thread(annotate, PAIRS, model=model, variant="single_llm"),
                annotate_in_loop(model),
            ):
                rows, more = await asyncio.gather(work, call_directly(20))
                results.append(list(rows))
                texts += more
            return texts + await call_directly(10), results

        texts, results = asyncio.run(use())
        assert Counter(texts) == {label(1): 60}
        assert [Counter(row.error or row.label for row in rows) for rows in results] == [{1: len(PAIRS)}] * 2


def annotate_all(model: BaseChatModel) -> None:
    assert {row.label for row in annotate(PAIRS, model=model, variant="single_llm")} == {1}


def test_a_forked_process_can_use_the_model() -> None:
    with ChatServer(lambda request: says_in_protocol(request, label(1))) as server:
        model = FAMILIES["ollama"](server)
        annotate_all(model)
        child = get_context("fork").Process(target=annotate_all, args=(model,), daemon=True)
        child.start()
        annotate_all(model)
        child.join(60)
        assert child.exitcode == 0


class AsyncRecorder(Recorder):
    """Awaits its configured answer, a coroutine function."""

    async def _agenerate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self.answer())])


SETTING: ContextVar[str] = ContextVar("SETTING", default="none")


async def test_a_call_has_the_context_variables_of_the_caller() -> None:
    async def respond() -> AIMessage:
        return AIMessage(SETTING.get())

    SETTING.set("mine")
    assert (await LangChainModel(AsyncRecorder(answer=respond)).reply(CALL)).text == "mine"


async def test_cancelling_the_caller_cancels_the_call() -> None:
    async def wait() -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    called, cancelled = threading.Event(), threading.Event()
    task = asyncio.ensure_future(LangChainModel(AsyncRecorder(answer=wait)).reply(CALL))
    assert await asyncio.to_thread(called.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 30)
