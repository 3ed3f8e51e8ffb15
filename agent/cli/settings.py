"""From options and `-c key=value` to a `Config`, and which of them make no difference to what runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agent.cli.options import RunOptions
from agent.cli.text import Console, say
from agent.config import Config
from agent.errors import ConfigError
from agent.graph import Variant, load_variant, readers, roles
from agent.llm.models import Models, unreached


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
        raise ConfigError("; ".join(_explained(problem) for problem in error.errors())) from error


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *folders, name = key.split(".")
    for folder in folders:
        tree = tree.setdefault(folder, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"setting {key!r}: {folder!r} is a value, not a group of settings")
    tree[name] = value


def _explained(problem: Any) -> str:
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


def note_without_effect(console: Console, options: RunOptions, variants: Sequence[Variant], models: Models) -> None:
    """Say once of each option without effect why it has none; options with their default value are not spoken of."""
    asked = [*variants, load_variant("single_llm")] if options.unsupported == "judge" else variants
    for option, why in (*_settings(options, variants), *_models(options, asked, models)):
        say(console, f"note: {option} has no effect: {why}")


def _settings(options: RunOptions, variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    for setting, flag in options.setting_flags().items():
        found = readers(setting)
        if found is not None and not any(readers(setting, variant) for variant in variants):
            yield flag, f"of the nodes that it is for ({', '.join(found)}) none is in {_named(variants)}"


def _models(options: RunOptions, variants: Sequence[Variant], models: Models) -> Iterator[tuple[str, str]]:
    for role in models.roles:
        if not any(role in roles(variant) for variant in variants):
            yield f"--model {role}=…", f"nothing asks in this role in {_named(variants)}"
    if unreached(models.all()):
        for flag in options.model_flags():
            yield flag, f"{models.label()} is no language model, and takes no such option"


def _named(variants: Sequence[Variant]) -> str:
    names = ", ".join(variant.name for variant in variants)
    return f"{'variant' if len(variants) == 1 else 'variants'} {names}"
