"""Construction of the models for a run's roles, from names or objects."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from pydantic import ValidationError

from agent.config import ModelConfig
from agent.errors import ConfigError
from agent.llm.base import LLM, Call, Reply, get_address
from agent.llm.endpoints import resolve_endpoint
from agent.llm.prices import Prices
from agent.text import describe_error
from agent.types import Usage

if TYPE_CHECKING:
    from agent.llm.langchain import BaseChatModel
    from agent.llm.openai import ApiKey

DEFAULT = "default"

ModelSpec: TypeAlias = Union[str, LLM, "BaseChatModel"]
ModelSource: TypeAlias = Union[ModelSpec, Sequence[str], Mapping[str, ModelSpec], "Models", None]

_WAYS = """Choose a model in one of these ways:
  OPENAI_API_KEY=... and --model NAME                OpenAI, or any compatible server with --base-url
  --model NAME --base-url http://localhost:11434/v1  a local server; no key needed
  --model heuristic                                  built-in rules: no network, a baseline for comparison
  --model replay:FILE                                replies from a file
  model = "NAME" in agent.toml                       for all commands in this folder"""
_MOST_CHECKED = 10_000
_WITHOUT_LITELLM_CACHE = '{"cache": {"no-cache": true}}'
_SCRIPTED = frozenset({"replay", "scripted"})
_AUTHORIZING = frozenset({"authorization", "api-key", "x-api-key"})
_ROLE_CHOICE = re.compile(r"(?P<role>[A-Za-z_]+)=(?P<name>.*)", re.DOTALL)


def parse_model(
    spec: ModelSpec,
    *,
    api_key: ApiKey | None = None,
    http_client: Any = None,
    prices: Prices | Path | str | Mapping[str, Any] | None = None,
    **settings: Any,
) -> LLM:
    """Return the model for a name or an object.

    `heuristic` and `replay:FILE` are built in. Any other name refers to a model on an OpenAI-compatible server. A
    LangChain chat model is wrapped. An object with the two methods of `LLM` is returned unchanged.

    Args:
        spec: the name or the object.
        api_key: the key, or a function that returns it. The default is the value of `OPENAI_API_KEY`.
        http_client: an `httpx2.AsyncClient` or `httpx.AsyncClient` for the calls.
        prices: prices that extend or override the built-in prices.
        settings: fields of `ModelConfig` except `name`; `extra_body` may be JSON text. Fields that are None are unset.

    Raises:
        ConfigError: the name, a setting or a key is missing or invalid.
        InputError: the file after `replay:` is missing or invalid.
    """
    table = Prices.of(prices)
    settings = {name: value for name, value in settings.items() if value is not None}
    if not isinstance(spec, str):
        return _wrap_model(spec, table, settings)
    name = spec.strip()
    if not name:
        raise ConfigError(f"the model name is empty. {_WAYS}")
    config = _build_config(name, settings)
    if name == "heuristic":
        from agent.llm.heuristic import HeuristicModel

        return HeuristicModel()
    if name.startswith("replay:"):
        from agent.llm.replay import ReplayModel

        if name == "replay:":
            raise ConfigError("`replay:` needs a file of replies, for example replay:examples/replies.jsonl")
        return ReplayModel(name.removeprefix("replay:"))
    key = api_key or os.environ.get("OPENAI_API_KEY") or None
    _check_key(config, key)
    from agent.llm.openai import OpenAIModel

    return OpenAIModel(config, api_key=key, http_client=http_client, prices=table)


class Models:
    """The models of a run, keyed by role. Roles without their own model use the default model.

    Raises:
        ConfigError: there is no model at all.
    """

    def __init__(self, default: LLM | None, by_role: Mapping[str, LLM] | None = None) -> None:
        self._default = default
        self._by_role = dict(by_role or {})
        if default is None and not self._by_role:
            raise ConfigError(f"no model was chosen. {_WAYS}")

    @classmethod
    def of(cls, source: ModelSource, **options: Any) -> Models:
        """Build the models from a name, an object, a list of names, or a mapping from roles to names or objects.

        In a mapping, the `default` key covers the remaining roles. Names in a list have the same form as on the command
        line: `NAME` or `ROLE=NAME`. `options` are passed to `parse_model`.

        Raises:
            ConfigError: the list contains two names for the same role; see also `parse_model` and `Models`.
            InputError: see `parse_model`.
        """
        if isinstance(source, Models):
            if any(value is not None for value in options.values()):
                raise ConfigError(f"these options do not apply to a Models object: {', '.join(options)}")
            return source
        if isinstance(source, str):
            source = [source]
        if isinstance(source, list | tuple):
            source = parse_choices(source)
        elif not isinstance(source, Mapping):
            source = {} if source is None else {DEFAULT: source}  # type: ignore[dict-item]
        by_spec: dict[ModelSpec | int, LLM] = {}
        models: dict[str, LLM] = {}
        for role, spec in source.items():
            key = spec if isinstance(spec, str) else id(spec)
            models[role] = by_spec[key] = by_spec.get(key) or parse_model(spec, **options)
        return cls(models.pop(DEFAULT, None), models)

    def check(self, roles: Iterable[str]) -> None:
        """Check that every role with its own model is among `roles`.

        Raises:
            ConfigError: a role is unknown.
        """
        known = list(dict.fromkeys(roles))
        for role in self._by_role:
            if role not in known:
                raise ConfigError(f"unknown role {role!r}; known roles: {', '.join(known)}")

    def for_role(self, role: str) -> LLM:
        """Return the model for a role.

        Raises:
            ConfigError: the role has no model, and there is no default.
        """
        model = self._by_role.get(role, self._default)
        if model is None:
            raise ConfigError(f"no model for role {role!r}: add --model NAME for all roles, or --model {role}=NAME")
        return model

    def list_models(self) -> list[LLM]:
        """Return the models without duplicates, starting with the default model."""
        models = [self._default, *self._by_role.values()]
        return list({id(model): model for model in models if model is not None}.values())

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have their own model."""
        return tuple(self._by_role)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the default model, and of each role's own model if it differs from the default.

        These identities determine the replies.
        """
        default = None if self._default is None else dict(self._default.identity())
        roles = {role: dict(model.identity()) for role, model in sorted(self._by_role.items())}
        return {DEFAULT: default, "roles": {role: identity for role, identity in roles.items() if identity != default}}

    def list_addresses(self) -> list[str]:
        """Return the URLs of the models' servers, without duplicates."""
        return list(dict.fromkeys(filter(None, map(get_address, self.list_models()))))

    def price(self, role: str, served: str, usage: Usage) -> float | None:
        """Return the cost of tokens used in a role in US dollars, or None if the price is unknown."""
        price = getattr(self._by_role.get(role, self._default), "price", None)
        return None if price is None else price(usage, served)

    def join_names(self) -> str:
        """Return the models' names, joined by `+`."""
        names = (str(model.identity().get("model") or type(model).__name__) for model in self.list_models())
        return "+".join(dict.fromkeys(names))


def parse_choices(choices: Iterable[str]) -> dict[str, str]:
    """Return the models for roles from names such as `NAME` (the key is `default`) or `ROLE=NAME`.

    Raises:
        ConfigError: there are two names for a role.
    """
    chosen: dict[str, str] = {}
    for choice in choices:
        if not isinstance(choice, str):
            raise ConfigError(f"a list of models must contain names, not {type(choice).__name__}")
        match = _ROLE_CHOICE.fullmatch(choice)
        role, name = (match["role"], match["name"]) if match else (DEFAULT, choice)
        if role in chosen:
            target = "all roles" if role == DEFAULT else f"role {role!r}"
            raise ConfigError(f"two models for {target}: {chosen[role]!r} and {name!r}")
        chosen[role] = name
    return chosen


def _wrap_model(spec: Any, prices: Prices, settings: Mapping[str, Any]) -> LLM:
    if isinstance(spec, LLM) and not isinstance(spec, type):
        return spec
    from agent.llm.langchain import LangChainModel, is_chat_model

    if is_chat_model(spec):
        timeout = {"call_timeout": settings["call_timeout"]} if "call_timeout" in settings else {}
        return LangChainModel(spec, prices=prices, **timeout)
    actual = f"the class {spec.__name__} (create an instance)" if isinstance(spec, type) else type(spec).__name__
    raise ConfigError(
        f"a model must be a name, a LangChain BaseChatModel or an object with `identity` and `reply`, not {actual}"
    )


def _build_config(name: str, settings: dict[str, Any]) -> ModelConfig:
    body = settings.get("extra_body")
    try:
        fields = {**settings, "extra_body": json.loads(body)} if isinstance(body, str) else settings
        return ModelConfig(name=name, **fields)
    except ValidationError as error:
        raise ConfigError(f"model option {describe_error(error)}") from error
    except ValueError as error:
        raise ConfigError(f"the extra body is not valid JSON: {error}") from error


def _check_key(config: ModelConfig, key: Any) -> None:
    server = resolve_endpoint(config.base_url)
    headers = {name.lower() for name in (*server.headers, *config.headers)}
    if key is None and not server.is_local and not headers & _AUTHORIZING:
        raise ConfigError(f"no API key for model {config.name!r} at {server.url}. {_WAYS}")


def describe_scripted(models: Iterable[LLM]) -> str | None:
    """Return a sentence that names the models that are not language models, or None if there are none.

    Does not recognise a server that replies from a script.
    """
    names = [_name(model.identity()) for model in models if _is_scripted(model.identity())]
    if not names:
        return None
    joined = ", ".join(dict.fromkeys(names))
    return (
        f"The replies do not come from a language model ({joined}). Accuracy, agreement and differences between "
        "variants say nothing about a real model."
    )


def are_scripted(models: Iterable[LLM]) -> bool:
    """Return whether all models are built in. Options for model calls then have no effect."""
    return all(_is_scripted(model.identity()) for model in models)


class RepeatedReplies:
    """Detects a server that sends the same response in several rounds, as a gateway with a cache does.

    Responses are compared with the first 10,000 responses of the run.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, int] = {}  # the first round of each response to each prompt
        self._was_reported = False

    def check(self, call: Call, reply: Reply) -> str | None:
        """Return a warning the first time that a response is byte-identical to the response of another round."""
        body = dict(reply.raw)
        if isinstance(metadata := body.get("response_metadata"), Mapping):  # LangChain numbers its messages itself
            body["id"] = metadata.get("id")
        if self._was_reported or reply.cached or not body.get("id"):
            return None
        response = hash((call.role, call.messages, json.dumps(body, sort_keys=True)))
        if len(self._rounds) < _MOST_CHECKED:
            self._rounds.setdefault(response, call.sample)
        self._was_reported = self._rounds.get(response, call.sample) != call.sample
        if not self._was_reported:
            return None
        return (
            f"the server of {reply.model!r} sent byte-identical responses in different rounds. If a gateway answered "
            "from its cache, agreement between rounds is meaningless. Turn off that cache. For LiteLLM, pass "
            f"-c 'extra_body={_WITHOUT_LITELLM_CACHE}'"
        )


def explain_dependence(models: Iterable[LLM]) -> str | None:
    """Explain why rounds with these models are hardly independent samples. Return None if no reason is known."""
    for model in models:
        identity = model.identity()
        if _is_scripted(identity):
            return (
                f"{_name(identity)} returns the same replies in every round, so agreement between rounds is meaningless"
            )
        if identity.get("kind") != "openai":
            continue
        body, parameters = identity.get("extra_body") or {}, identity.get("parameters") or {}
        temperature = body.get("temperature", parameters.get("temperature"))
        if temperature is None:
            return (
                f"no temperature is set for {_name(identity)}, so the server's default determines how "
                "independent the rounds are (set one with -c temperature=T)"
            )
        if temperature == 0:
            return (
                f"at temperature 0, rounds with {_name(identity)} are hardly independent, so agreement between them "
                "means little"
            )
    return None


def _is_scripted(identity: Mapping[str, Any]) -> bool:
    return identity.get("kind") in _SCRIPTED or ("kind" not in identity and identity.get("model") == "heuristic")


def _name(identity: Mapping[str, Any]) -> str:
    return str(identity.get("model") or "the model")
