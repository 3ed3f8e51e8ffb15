"""Settings from files and `AGENT_*` environment variables.

A settings file in the working folder may come from a stranger, so it may set only what `InFolder` allows. All other
sources belong to the user.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from agent.config import Config, InFolder, ModelSettings, Name, Trusted, collect_setting_fields, explain_errors
from agent.errors import ConfigError, SettingsRefused

FILE, PROJECT = "agent.toml", "pyproject.toml"
PREFIX, NESTED = "AGENT_", "__"


class Settings(Config, ModelSettings):
    """All settings that can come from files and environment variables: run settings, model settings and paths.

    `model` is a name, or a mapping from roles to names (the `default` key applies to all other roles).
    """

    model: Name[str | dict[str, str] | None] = Field(
        default=None, description="Name of the model, or a mapping from roles to names"
    )
    prices: Trusted[Path | None] = Field(
        default=None, description="File with token prices that extend or replace the built-in prices"
    )
    prompts: Trusted[Path | None] = Field(
        default=None, description="Folder with prompt templates that replace the built-in ones"
    )
    cache: Trusted[Path | None] = Field(
        default=None,
        description="File that caches model replies across runs; by default, commands use a file in your cache folder",
    )

    def to_config(self) -> Config:
        """Return the settings that are part of `Config`."""
        return Config(**{name: getattr(self, name) for name in Config.model_fields})


MODEL_SETTINGS = (*ModelSettings.model_fields, "prices")
"""Settings that are parameters of `agent.llm.models.parse_model`."""
EXTRA_SETTINGS = ("model", *MODEL_SETTINGS, "prompts", "cache")
"""Settings that are not part of `Config`."""
_PATHS = ("prices", "prompts", "cache", "sandbox.requirements", "sandbox.checkouts")
_NOT_A_NAME = re.compile(r"replay:|\.ya?ml")
"""Text in a model or variant that makes it a path."""
_REFUSED = """a settings file in the working folder may come from someone else, so it may not set these values:
{values}
If you want them, set them in {user_file}, in a file that you pass with --settings FILE
(in Python: read_settings(file=...)), in AGENT_* variables such as {variable}, or with options."""
_USER_INFORMATION = re.compile(r'//(?:[^/?#"\\]|\\.)*@')
"""User information of a URL in JSON."""


@dataclass(frozen=True)
class Source:
    """The settings from one source, keyed by names such as `runner.concurrency`.

    `is_trusted` is false for a file in the working folder. `refused` contains the settings that such a file may not
    set. They never take effect.
    """

    name: str
    values: Mapping[str, Any]
    refused: Mapping[str, Any] = field(default_factory=dict)
    is_trusted: bool = True


def find_user_file() -> Path | None:
    """Return the path of the user's settings file, which may not exist, or None for a user without a home folder."""
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".config") / "test-driven-annotator" / FILE
    except RuntimeError:
        return None


def read_sources(folder: Path | str = ".", file: Path | str | None = None) -> list[Source]:
    """Return the sources that contain settings. Later sources take precedence.

    The sources are the files in the working folder `folder`, the user's file, `file`, and the environment. A file in
    the working folder is trusted if it is also one of the user's files.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, or a value is invalid. The message names the source and
            the key.
    """
    user_file, file = find_user_file(), None if file is None else Path(file)
    trusted_files = [path for path in (user_file, file) if path is not None]
    trusted_places = {os.path.realpath(path) for path in trusted_files}
    local_files = [Path(folder, name) for name in (PROJECT, FILE)]
    sources = [
        *(_read_local_file(path) for path in local_files if os.path.realpath(path) not in trusted_places),
        *(_read_file(path, required=path is file) for path in trusted_files),
        Source("the environment", _read_variables()),
    ]
    return [source for source in sources if source.values or source.refused]


def merge_sources(sources: Iterable[Source], overrides: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings from all sources. `overrides` are settings and groups that the caller sets in another way.

    Raises:
        SettingsRefused: a file in the working folder sets a setting that it may not set, and neither a trusted source
            nor `overrides` contains this setting.
    """
    trusted = {*overrides, *(key for source in sources if source.is_trusted for key in source.values)}
    refused = [
        (key, f"  {source.name}: {key} = {describe_value(value)}")
        for source in sources
        for key, value in source.refused.items()
        if trusted.isdisjoint((key, key.partition(".")[0]))
    ]
    if refused:
        keys, lines = zip(*refused, strict=True)
        variable = PREFIX + keys[0].replace(".", NESTED).upper()
        message = _REFUSED.format(values="\n".join(lines), user_file=find_user_file(), variable=variable)
        raise SettingsRefused(message, settings=keys)
    return {key: value for source in sources for key, value in source.values.items()}


def read_settings(folder: Path | str = ".", *, file: Path | str | None = None) -> dict[str, Any]:
    """Return the settings from all sources as arguments for `Annotator` and `annotate`.

    Args:
        folder: the working folder. Its settings files may contain only settings that a stranger may choose.
        file: a settings file that you trust. It overrides the files in the working folder and the user's own file.

    Raises:
        ConfigError: see `read_sources`.
        SettingsRefused: see `merge_sources`.
    """
    merged = merge_sources(read_sources(folder, file))
    arguments = {key: merged.pop(key) for key in EXTRA_SETTINGS if key in merged}
    return {**arguments, "config": merged}


def describe_value(value: Any) -> str:
    """Return a value in full and escaped. A URL follows its host name and lacks user information."""
    text = _USER_INFORMATION.sub("//", json.dumps(value, default=str))
    try:
        host = urlsplit(value).hostname if isinstance(value, str) else None
    except ValueError:
        host = None
    return text if host is None else f"{json.dumps(host)[1:-1]}, from {text}"


def _read_local_file(path: Path) -> Source:
    """Read a settings file in the working folder, and separate the settings that it may not set."""
    source, fields = _read_file(path), collect_setting_fields(Settings)
    refused = {key: value for key, value in source.values.items() if not _is_allowed(fields[key], value)}
    values = {key: value for key, value in source.values.items() if key not in refused}
    return replace(source, values=values, refused=refused, is_trusted=False)


def _is_allowed(setting: FieldInfo, value: Any) -> bool:
    rule = find_rule(setting)
    is_low = rule is InFolder.LIMIT and value <= setting.default
    is_name = rule is InFolder.NAME and not _NOT_A_NAME.search(json.dumps(value))
    return rule is InFolder.FREE or is_low or is_name


def find_rule(setting: FieldInfo) -> InFolder | None:
    """Return what a file in the working folder may do with a setting. None means the same as `TRUSTED`."""
    return next((mark for mark in setting.metadata if isinstance(mark, InFolder)), None)


def _read_file(path: Path, *, required: bool = False) -> Source:
    table, name = _read_toml(path, required=required), str(path)
    if path.name == PROJECT:
        tool = table.get("tool")
        table, name = (tool.get("agent", {}) if isinstance(tool, dict) else {}), f"{path} [tool.agent]"
    values = _parse_settings(name, table)
    return Source(name, {key: _resolve_paths(key, value, path.parent) for key, value in values.items()})


def _resolve_paths(key: str, value: Any, folder: Path) -> Any:
    """Return a setting's value with paths relative to `folder` instead of the file that contains the setting."""
    if value is not None and key in _PATHS:
        return type(value)(folder / value)
    if key == "variant" and Path(value).suffix in (".yaml", ".yml"):
        return str(folder / value)
    if key == "model" and isinstance(value, dict):
        return {role: _resolve_paths(key, name, folder) for role, name in value.items()}
    if key == "model" and value is not None:
        role, separator, file = value.partition("replay:")
        if file and role.strip()[-1:] in ("", "="):
            return f"{role}{separator}{folder / file}"
    return value


def _read_toml(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: not a regular file")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if required:
            raise ConfigError(f"{path}: the file does not exist") from error
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
