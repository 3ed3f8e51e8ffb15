"""What is set once: in `agent.toml`, in `[tool.agent]` of `pyproject.toml`, or by variables `AGENT_*`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from agent.config import Config, explained
from agent.errors import ConfigError

FILE, PROJECT = "agent.toml", "pyproject.toml"
PREFIX, NESTED = "AGENT_", "__"
OF_MODELS = (
    "base_url", "reply_format", "thinking", "temperature", "max_tokens", "extra_body", "call_timeout", "attempts",
    "prices",
)  # fmt: skip
"""The settings that are options of `agent.llm.models.parse_model`."""
BESIDE = ("model", *OF_MODELS, "prompts", "cache")
"""The settings that are no part of `Config`."""


class Settings(Config):
    """All that can be set once: the settings of a run, which models are asked and how, and what is kept where.

    `model` is a name, or names by role (`default` for the rest).
    """

    model: str | dict[str, str] | None = None
    base_url: str | None = None
    reply_format: Literal["json_object", "json_schema", "text"] | None = None
    thinking: Literal["on", "off"] | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    extra_body: dict[str, Any] | None = None
    call_timeout: float | None = Field(default=None, gt=0)
    attempts: int | None = Field(default=None, ge=1)
    prices: Path | None = None
    prompts: Path | None = None
    cache: Path | None = None


_PATHS = ("prices", "prompts", "cache", "sandbox.requirements")
"""What a file names relative to its own folder."""


def settings_by_source(folder: Path | str = ".") -> dict[str, dict[str, Any]]:
    """Return by source, the one that counts least first, what it sets, by keys such as `runner.concurrency`.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value is out of range; names the source and the key.
    """
    folder = Path(folder)
    tool = _toml(folder / PROJECT).get("tool")
    project = tool.get("agent", {}) if isinstance(tool, dict) else {}
    sources = {f"{folder / PROJECT} [tool.agent]": project, str(folder / FILE): _toml(folder / FILE)}
    found = {source: _checked(source, values) for source, values in sources.items()}
    for values in found.values():
        values |= {key: type(path)(folder / path) for key in _PATHS if (path := values.get(key)) is not None}
    found["the environment"] = _variables()
    return {source: values for source, values in found.items() if values}


def read_settings(folder: Path | str = ".") -> dict[str, Any]:
    """Return what the files of a folder and the environment set, as arguments of `Annotator` and `annotate`.

    Raises:
        ConfigError: as `settings_by_source` raises.
    """
    merged = {key: value for values in settings_by_source(folder).values() for key, value in values.items()}
    arguments = {key: merged.pop(key) for key in BESIDE if key in merged}
    return {**arguments, "config": merged}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _variables() -> dict[str, Any]:
    """Read the variables that are settings. Others of that prefix are somebody else's (Azure Pipelines sets some)."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return {}
    # the import takes a tenth of a command's start
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

    class Variables(Settings, BaseSettings):  # type: ignore[misc]  # both have a `model_config`
        """The settings as they are looked for."""

    try:
        values = EnvSettingsSource(Variables, env_prefix=PREFIX, env_nested_delimiter=NESTED, env_ignore_empty=True)()
    except SettingsError as error:
        hint = f"set one of a group as {PREFIX}SANDBOX{NESTED}BACKEND, lists and tables as JSON"
        raise ConfigError(f"environment variables {PREFIX}*: {error}; {hint}") from error
    return _checked("environment variables", values, PREFIX)


def _checked(source: str, values: Any, prefix: str = "") -> dict[str, Any]:
    """Return settings by their keys, groups dissolved."""
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: holds {values!r:.60}, where a table of settings belongs")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        named = [prefix + NESTED.join(map(str, problem["loc"])).upper() for problem in error.errors()]
        where = f"{source} {', '.join(named)}" if prefix else source
        raise ConfigError(f"{where}: {explained(error, Settings)}") from error
    found: dict[str, Any] = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            found |= {f"{name}.{key}": getattr(value, key) for key in value.model_fields_set}
        else:
            found[name] = value
    return dict(sorted(found.items()))
