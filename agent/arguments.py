"""What the arguments of `Annotator` may be, and what is said of one that is something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agent.checks import check_type
from agent.config import Config, ModelConfig
from agent.errors import UsageError
from agent.graph import Variant
from agent.languages.base import Language
from agent.llm.budget import Budget
from agent.llm.gateway import ReplyCache
from agent.sandbox.base import SandboxBackend
from agent.sandbox.session import SharedExecutions
from agent.state import Node

_PATH = (str, Path)
_TAKEN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "sandbox": ((str, SandboxBackend), "'auto', 'docker', 'bwrap' or a SandboxBackend"),
    "variant": ((str, Path, Mapping, Variant), "a name, a YAML file, a mapping or a Variant"),
    "without": ((list, tuple), "a list of the names of nodes"),
    "nodes": ((Mapping,), "a mapping of names to Node objects"),
    "prompts": (_PATH, "a folder"),
    "languages": ((list, tuple), "a list of Language objects"),
    "unsupported": ((str,), "'fail', 'judge' or 'skip'"),
    "run_dir": (_PATH, "a folder"),
    "cache": ((*_PATH, ReplyCache), "a file or a ReplyCache"),
    "retry_errors": ((bool,), "True or False"),
    "rounds": ((int,), "a whole number"),
    "concurrency": ((int, str), "a whole number or 'auto'"),
    "pair_timeout": ((int, float), "a number of seconds"),
    "config": ((Config, Mapping), 'a mapping such as {"runner.concurrency": 4}, or a Config'),
    "executions": ((SharedExecutions,), "SharedExecutions"),
    "engine": ((str,), "'local' or 'ray'"),
    "address": ((str,), "a Ray cluster's address"),
    "budget": ((int, float, Budget), "a number of dollars, or a Budget"),
    "on_event": ((Callable,), "a function"),  # type: ignore[dict-item]  # `isinstance` takes it
}
"""By argument the types that are taken, and those in words; None is where it is the default."""
_UNSUPPORTED = ("fail", "judge", "skip")
_OF_MODELS = {"api_key", "http_client", "prices", *ModelConfig.model_fields} - {"name"}


def check_all(given: Mapping[str, Any]) -> None:
    """Refuse arguments that there are not, or that are of other types than those that are taken.

    Raises:
        UsageError: names the argument, and what is taken.
    """
    for name, (kinds, taken) in _TAKEN.items():
        check_type(name, given[name], kinds, taken)
    if given["unsupported"] not in _UNSUPPORTED:
        raise UsageError(f"unsupported={given['unsupported']!r:.60}: unsupported takes {_TAKEN['unsupported'][1]}")
    for language in given["languages"] or ():
        check_type("languages", language, (Language,), _TAKEN["languages"][1])
    for node in (given["nodes"] or {}).values():
        check_type("nodes", node, (Node,), _TAKEN["nodes"][1])
    for name in given["model_options"].keys() - _OF_MODELS:
        near = ", ".join(get_close_matches(name, [*_TAKEN, *_OF_MODELS]))
        raise UsageError(f"there is no argument {name!r}" + (f" (near it: {near})" if near else ""))
