"""From options and `-c key=value` to a `Config`, and from model options to `Models`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agent.config import Config
from agent.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """Reads values as texts, which the settings make numbers of: 3.10 is a version, 2016-12-31 a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:null"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_config(options: Mapping[str, Any], settings: Iterable[str]) -> Config:
    """Return the configuration: options that were given, then `key=value` settings over them.

    Raises:
        ConfigError: a setting is not of the form key=value, is unknown, or has a value out of range.
    """
    tree: dict[str, Any] = {}
    for key, value in options.items():
        if value is not None:
            _set(tree, key, value)
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"-c {setting}: settings look like sandbox.memory_mb=512")
        try:
            value = yaml.load(text, _Loader)
        except yaml.YAMLError as error:
            raise ConfigError(f"-c {setting}: the value cannot be read: {error}") from error
        _set(tree, key.strip(), value)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("; ".join(_told(problem) for problem in error.errors())) from error


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *folders, name = key.split(".")
    for folder in folders:
        tree = tree.setdefault(folder, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"setting {key!r}: {folder!r} is a value, not a group of settings")
    tree[name] = value


def _told(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = [
            f"{group}.{name}"
            for group, held in Config()
            if isinstance(held, BaseModel)
            for name in type(held).model_fields
        ]
        return f"unknown setting {key!r}; there are: variant, {', '.join(known)}"
    if problem["type"] == "model_type":
        return f"setting {key} is a group: give one of its settings, as {key}.NAME=VALUE"
    given = "nothing" if problem["input"] in ("", None) else repr(problem["input"])
    return f"setting {key}: {problem['msg']}, not {given[:60]}"
