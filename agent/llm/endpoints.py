"""OpenAI-compatible servers: their URLs, and request fields that differ between them."""

from __future__ import annotations

import base64
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from agent.config import ModelConfig
from agent.errors import ConfigError
from agent.llm.base import Call

OPENAI_URL = "https://api.openai.com/v1"
_URL_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_OPENAI_HOSTS = ("api.openai.com", ".openai.azure.com", ".api.openai.com")
_OPENAI_REASONING = ("gpt-5", "gpt-6", "o1", "o3", "o4")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Endpoint:
    """A server: its URL without credentials, and headers with the credentials from the URL."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> str:
        """The host name in lower case."""
        return (urlsplit(self.url).hostname or "").lower()

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine or the local network, where keys are rarely needed."""
        host = self.host
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return "." not in host or host.endswith(_LOCAL_SUFFIXES)
        return address.is_private or address.is_loopback or address.is_link_local

    def explain_proxy(self) -> str:
        """Return a hint if this server is local but the environment names a proxy for it, or an empty string."""
        from urllib.request import getproxies, proxy_bypass

        parts, proxies = urlsplit(self.url), getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if not proxy or not self.is_local or proxy_bypass(parts.netloc):
            return ""
        return f"Requests pass through the proxy {strip_credentials(proxy)}. To avoid it, add {self.host} to NO_PROXY."


def resolve_endpoint(base_url: str | None) -> Endpoint:
    """Return the server at `base_url`.

    `base_url` defaults to the value of `OPENAI_BASE_URL` or, if that is unset, of `OPENAI_API_BASE`. If neither is set,
    OpenAI's URL is used.

    Raises:
        ConfigError: the URL is not an HTTP URL, or contains a query or fragment.
    """
    from_environment = next((value for name in _URL_VARIABLES if (value := os.environ.get(name))), OPENAI_URL)
    text = (base_url or from_environment).strip()
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not parts.query and not parts.fragment
    except ValueError:
        usable = False
    if not usable:
        place = text.rpartition("@")[2].partition("?")[0]
        raise ConfigError(
            f"the base URL {place!r} is invalid. Pass a URL such as http://localhost:11434/v1, without `?` or `#`"
        )
    return Endpoint(_format_url(parts), _build_auth_headers(parts))


def choose_max_tokens_field(model: str, server: Endpoint) -> str:
    """Return the name of the request field that limits a reply's length.

    OpenAI renamed `max_tokens`, and its reasoning models refuse the old name. Other servers accept the old name, and
    some accept only the old name.
    """
    name = model.rpartition("/")[2].lower()
    if server.host.endswith(_OPENAI_HOSTS) or name.startswith(_OPENAI_REASONING):
        return "max_completion_tokens"
    return "max_tokens"


def build_thinking_body(switch: Literal["on", "off"], model: str, server: Endpoint) -> dict[str, Any]:
    """Return the request fields that turn a model's reasoning on or off.

    The fields depend first on the server: OpenRouter accepts `reasoning.enabled`, OpenAI and Ollama accept
    `reasoning_effort`, and Alibaba accepts `enable_thinking`. On other servers they depend on the model: Qwen's chat
    template (vLLM, SGLang, llama.cpp) accepts `enable_thinking`. The fallback is the `thinking` field of DeepSeek's
    API, which other hosted models also accept. `extra_body` overrides the result.
    """
    is_on, name = switch == "on", model.lower()
    if server.host.endswith("openrouter.ai"):
        return {"reasoning": {"enabled": is_on}}
    if server.host.endswith(_OPENAI_HOSTS) or server.url.endswith(":11434/v1"):
        return {"reasoning_effort": "medium" if is_on else "none"}
    if server.host.endswith("dashscope.aliyuncs.com"):
        return {"enable_thinking": is_on}
    if "qwen" in name or (server.is_local and "deepseek" not in name):
        return {"chat_template_kwargs": {"enable_thinking": is_on}}
    return {"thinking": {"type": "enabled" if is_on else "disabled"}}


def build_extra_body(config: ModelConfig, server: Endpoint) -> dict[str, Any]:
    """Return the fields that a model's settings add to each request."""
    body: dict[str, Any] = {}
    if config.max_tokens is not None:
        body[choose_max_tokens_field(config.name, server)] = config.max_tokens
    if config.thinking is not None:
        body |= build_thinking_body(config.thinking, config.name, server)
    return merge(body, config.extra_body)


def build_response_format(call: Call, reply_format: str) -> dict[str, Any]:
    """Return the value of `response_format` that requests a JSON reply."""
    if reply_format == "json_schema" and call.schema is not None:
        name = _NOT_IN_A_NAME.sub("_", call.role)[:64] or "reply"
        return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(call.schema)}}
    return {"type": "json_object"}


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings recursively. Values in `overrides` take precedence."""
    result = dict(base)
    for key, value in overrides.items():
        known = result.get(key)
        result[key] = merge(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return result


def strip_credentials(address: str) -> str:
    """Return a URL without user, password, query or fragment.

    Text that is not a URL is returned unchanged. The result for an invalid URL is `?`.
    """
    try:
        parts = urlsplit(address)
        return _format_url(parts) if parts.scheme and parts.hostname else address
    except ValueError:
        return "?"


def _format_url(parts: SplitResult) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port is None else f":{parts.port}"
    return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))


def _build_auth_headers(parts: SplitResult) -> dict[str, str]:
    if parts.username is None and parts.password is None:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
