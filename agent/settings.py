"""Settings from `agent.toml`, `[tool.agent]` in `pyproject.toml`, and `AGENT_*` environment variables."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from agent.config import Config, ModelSettings, explain_errors
from agent.errors import ConfigError

FILE, PROJECT = "agent.toml", "pyproject.toml"
PREFIX, NESTED = "AGENT_", "__"


class Settings(Config, ModelSettings):
    """All settings that can come from files and environment variables: run settings, model settings and paths.

    `model` is a name, or a mapping from roles to names (the `default` key applies to all other roles).
    """

    model: str | dict[str, str] | None = Field(
        default=None, description="Name of the model, or a mapping from roles to names"
    )
    prices: Path | None = Field(
        default=None, description="File with token prices that extend or replace the built-in prices"
    )
    prompts: Path | None = Field(
        default=None, description="Folder with prompt templates that replace the built-in ones"
    )
    cache: Path | None = Field(
        default=None,
        description="File that caches model replies across runs; commands use runs/cache.sqlite by default",
    )


MODEL_SETTINGS = (*ModelSettings.model_fields, "prices")
"""Settings that are parameters of `agent.llm.models.parse_model`."""
EXTRA_SETTINGS = ("model", *MODEL_SETTINGS, "prompts", "cache")
"""Settings that are not part of `Config`."""
_PATHS = ("prices", "prompts", "cache", "sandbox.requirements")
"""Settings that are paths. In a settings file, they are relative to the file's folder."""


def read_settings_by_source(folder: Path | str = ".") -> dict[str, dict[str, Any]]:
    """Return the settings from each source, keyed by names such as `runner.concurrency`. Later sources take precedence.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, or a value is invalid. The message names the source and
            the key.
    """
    folder = Path(folder)
    tool = _read_toml(folder / PROJECT).get("tool")
    project = tool.get("agent", {}) if isinstance(tool, dict) else {}
    sources = {f"{folder / PROJECT} [tool.agent]": project, str(folder / FILE): _read_toml(folder / FILE)}
    settings = {source: _parse_settings(source, values) for source, values in sources.items()}
    for values in settings.values():
        values |= {key: type(path)(folder / path) for key in _PATHS if (path := values.get(key)) is not None}
    settings["the environment"] = _read_variables()
    return {source: values for source, values in settings.items() if values}


def read_settings(folder: Path | str = ".") -> dict[str, Any]:
    """Return the settings from a folder's files and the environment as arguments for `Annotator` and `annotate`.

    Raises:
        ConfigError: see `read_settings_by_source`.
    """
    merged = {key: value for values in read_settings_by_source(folder).values() for key, value in values.items()}
    arguments = {key: merged.pop(key) for key in EXTRA_SETTINGS if key in merged}
    return {**arguments, "config": merged}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror}") from error
    except ValueError as error:  # invalid TOML or UTF-8
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _read_variables() -> dict[str, Any]:
    """Read the environment variables that are settings.

    Other variables are ignored, because Azure Pipelines sets variables with the same prefix.
    """
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return {}
    # imported only when needed: it takes a tenth of a command's start-up time
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

    class Variables(Settings, BaseSettings):  # type: ignore[misc]  # both have a `model_config`
        """The settings as environment variables."""

    try:
        values = EnvSettingsSource(Variables, env_prefix=PREFIX, env_nested_delimiter=NESTED, env_ignore_empty=True)()
    except SettingsError as error:
        hint = f"write a setting in a group as {PREFIX}SANDBOX{NESTED}BACKEND; write lists and tables as JSON"
        raise ConfigError(f"environment variables {PREFIX}*: {error}; {hint}") from error
    return _parse_settings("environment variables", values, PREFIX)


def _parse_settings(source: str, values: Any, prefix: str = "") -> dict[str, Any]:
    """Validate a table of settings and return the values, keyed by names such as `runner.concurrency`."""
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: {values!r:.60} is not a table of settings")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        names = [prefix + NESTED.join(map(str, problem["loc"])).upper() for problem in error.errors()]
        place = f"{source} {', '.join(names)}" if prefix else source
        raise ConfigError(f"{place}: {explain_errors(error, Settings, {})}") from error
    by_key: dict[str, Any] = {}
    for name in sorted(settings.model_fields_set):
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            by_key |= {f"{name}.{key}": getattr(value, key) for key in sorted(value.model_fields_set)}
        else:
            by_key[name] = value
    return by_key
