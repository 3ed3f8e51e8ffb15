"""What a run's folder records besides its input: what decides labels, by which runs are told apart, and the machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent.config import Config, SandboxConfig
from agent.graph import Variant
from agent.languages import Language
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.select import limit_settings
from agent.state import Node

_RECORDED = ("test-driven-annotator", "langgraph", "langchain-openai", "openai", "docker")
_SUPPLIED = ("image", "mount_ro", "requirements", "exclude_newer", "python", "era")


def identity(
    variant: Variant,
    models: Models,
    prompts: Prompts,
    config: Config,
    *,
    unsupported: str,
    nodes: Mapping[str, Node],
    languages: Mapping[str, Language],
) -> dict[str, Any]:
    """Return what a run's folder is compared by; `nodes` and `languages` are those that are not the package's own.

    Raises:
        UsageError: a requirements file cannot be read.
    """
    own = {"nodes": _versions(nodes), "languages": _versions(languages)}
    return {
        "variant": variant.model_dump(mode="json", exclude={"title", "paper"}),
        "model": models.identity(),
        "prompts": prompts.hashes(),
        "pipeline": config.pipeline.model_dump(mode="json", exclude={"pair_timeout", "sandbox_attempts"}),
        "unsupported": unsupported,
        **_supplied(config.sandbox),
        **{name: versions for name, versions in own.items() if versions},
    }


def environment(backend: SandboxBackend | None, models: Models) -> dict[str, Any]:
    """Return what a run's folder records besides: versions, the sandbox and its limits, the models' servers."""
    servers = models.addresses()
    return {
        "versions": {name: version(name) for name in _RECORDED} | {"python": platform.python_version()},
        "sandbox": None if backend is None else dict(backend.describe()),
        "limits": {} if backend is None else limit_settings(backend),
        **({"servers": servers} if servers else {}),
    }


def _supplied(sandbox: SandboxConfig) -> dict[str, Any]:
    """What programs were given besides the defaults; a run without any is compared as ever."""
    given = sandbox.model_dump(mode="json", include=set(_SUPPLIED), exclude_defaults=True)
    if "requirements" in given:
        given["requirements"] = list(read_requirements(Path(given["requirements"])))
    return {"sandbox": given} if given else {}


def _versions(parts: Mapping[str, object]) -> dict[str, str]:
    """Tell parts of the user's from others of the same name: by their class and, where they have one, their version."""
    kinds = {name: f"{type(part).__module__}.{type(part).__qualname__}" for name, part in parts.items()}
    versions = {name: getattr(part, "version", None) for name, part in parts.items()}
    return {name: kind if versions[name] is None else f"{kind} {versions[name]}" for name, kind in kinds.items()}
