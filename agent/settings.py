"""Settings from `agent.toml`, from `[tool.agent]` in `pyproject.toml`, and from variables `AGENT_*`."""

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
    """All that files and the environment can set: the settings of a run, its models, and where files are.

    `model` is a name, or names by role (`default` for the rest).
    """

    model: str | dict[str, str] | None = Field(default=None, description="Name of the model, or names by role")
    prices: Path | None = Field(default=None, description="File of prices to add to the built-in ones")
    prompts: Path | None = Field(default=None, description="Folder of templates that replace the built-in ones")
    cache: Path | None = Field(
        default=None, description="File that keeps the model's replies across runs; commands use runs/cache.sqlite"
    )


MODEL_SETTINGS = (*ModelSettings.model_fields, "prices")
"""The settings that are options of `agent.llm.models.parse_model`."""
EXTRA_SETTINGS = ("model", *MODEL_SETTINGS, "prompts", "cache")
"""The settings that are no part of `Config`."""
_PATHS = ("prices", "prompts", "cache", "sandbox.requirements")
"""What a file names relative to its own folder."""


def read_settings_by_source(folder: Path | str = ".") -> dict[str, dict[str, Any]]:
    """Return what each source sets, by keys such as `runner.concurrency`; later sources override earlier ones.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, a value is out of range; names the source and the key.
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
    """Return the settings of a folder's files and the environment as arguments of `Annotator` and `annotate`.

    Raises:
        ConfigError: as `settings_by_source` raises.
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
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _read_variables() -> dict[str, Any]:
    """Read the variables that are settings; other programs use the prefix too, such as Azure Pipelines."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return {}
    # Importing this library takes a tenth of a command's start.
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

    class Variables(Settings, BaseSettings):  # type: ignore[misc]  # both have a `model_config`
        """The settings as variables."""

    try:
        values = EnvSettingsSource(Variables, env_prefix=PREFIX, env_nested_delimiter=NESTED, env_ignore_empty=True)()
    except SettingsError as error:
        hint = f"set one of a group as {PREFIX}SANDBOX{NESTED}BACKEND, lists and tables as JSON"
        raise ConfigError(f"environment variables {PREFIX}*: {error}; {hint}") from error
    return _parse_settings("environment variables", values, PREFIX)


def _parse_settings(source: str, values: Any, prefix: str = "") -> dict[str, Any]:
    """Validate a table of settings; return its values by dotted keys."""
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: {values!r:.60} is not a table of settings")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        named = [prefix + NESTED.join(map(str, problem["loc"])).upper() for problem in error.errors()]
        where = f"{source} {', '.join(named)}" if prefix else source
        raise ConfigError(f"{where}: {explain_errors(error, Settings, {})}") from error
    by_key: dict[str, Any] = {}
    for name in sorted(settings.model_fields_set):
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            by_key |= {f"{name}.{key}": getattr(value, key) for key in sorted(value.model_fields_set)}
        else:
            by_key[name] = value
    return by_key
