"""What a model's answers can show: whether they are a language model's at all, and whether rounds of them differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.llm.base import LLM

_SCRIPTED = frozenset({"replay", "scripted"})


def scripted(models: Iterable[LLM]) -> str | None:
    """Return a sentence on models that are no language models, None when all may be.

    A server that answers from a script cannot be told from one that does not.
    """
    found = [_name(each.identity()) for each in models if _is_scripted(each.identity())]
    if not found:
        return None
    listed = ", ".join(dict.fromkeys(found))
    return (
        f"The replies are no language model's ({listed}): accuracy, agreement and differences between variants "
        "mean nothing for a real model."
    )


def unreached(models: Iterable[LLM]) -> bool:
    """Say whether none of the models is reached in a way that can be set."""
    return all(_is_scripted(each.identity()) for each in models)


def independence(models: Iterable[LLM]) -> str | None:
    """Return why rounds of these models are hardly independent samples, None when nothing speaks against it."""
    for model in models:
        identity = model.identity()
        if _is_scripted(identity):
            return f"{_name(identity)} answers the same in every round: the rounds agree by themselves"
        if identity.get("kind") != "openai":
            continue
        temperature = _temperature(identity)
        if temperature is None:
            return (
                f"no temperature is set for {_name(identity)}: its server decides how independent the rounds are "
                "(--temperature)"
            )
        if temperature == 0:
            return f"at temperature 0 rounds of {_name(identity)} are hardly independent: their agreement says little"
    return None


def _is_scripted(identity: Mapping[str, Any]) -> bool:
    return identity.get("kind") in _SCRIPTED or ("kind" not in identity and identity.get("model") == "heuristic")


def _temperature(identity: Mapping[str, Any]) -> Any:
    body, parameters = identity.get("extra_body") or {}, identity.get("parameters") or {}
    return body.get("temperature", parameters.get("temperature"))


def _name(identity: Mapping[str, Any]) -> str:
    return str(identity.get("model") or "the model")
