"""Families of LangChain chat models, and replies in the protocols that they speak."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.llm.server import Answer, ChatServer, Request, says

_KEY = SecretStr("sk-secret")

FAMILIES: Mapping[str, Callable[[ChatServer], BaseChatModel]] = {
    "openai": lambda server: ChatOpenAI(model="m", base_url=server.url, api_key=_KEY, max_retries=0),
    "ollama": lambda server: ChatOllama(model="m", base_url=server.url.removesuffix("/v1")),
    "anthropic": lambda server: ChatAnthropic(
        model="m", base_url=server.url.removesuffix("/v1"), api_key=_KEY, max_retries=0
    ),
}


def says_in_protocol(request: Request, text: str, prompt_tokens: int = 5000) -> Answer:
    """Return a reply in the protocol of the request's path."""
    if request.path == "/api/chat":
        message = {"role": "assistant", "content": text}
        counts = {"prompt_eval_count": prompt_tokens, "eval_count": 5}
        body = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
        return Answer(json.dumps({**body, "message": message, **counts}).encode() + b"\n")
    if request.path == "/v1/messages":
        content, usage = [{"type": "text", "text": text}], {"input_tokens": prompt_tokens, "output_tokens": 5}
        body = {"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        return Answer(json.dumps({**body, "stop_sequence": None, "content": content, "usage": usage}).encode())
    return says(text, prompt_tokens=prompt_tokens)
