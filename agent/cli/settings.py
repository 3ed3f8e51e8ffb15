"""From options and `-c key=value` to a `Config`, and which of them make no difference to what runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from agent.cli.options import ModelOptions, RunOptions
from agent.cli.text import Console, one_line, say
from agent.config import Config, configured
from agent.errors import ConfigError
from agent.graph import Variant, load_variant, readers, roles
from agent.llm.models import Models, unreached
from agent.settings import BESIDE, OF_MODELS, settings_by_source

_CACHE = Path("runs/cache.sqlite")

_PIPED_WIDTH = 160
_REACHED = ("base_url", "sandbox.mount_ro")
"""What a stranger's file could have your key sent to, and programs read."""
_TYPES = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true|false",
    tuple: "list of texts",
    dict: "mapping of texts",
}


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
    given = {key: value for key, value in options.items() if value is not None}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"-c {setting}: settings look like sandbox.memory_mb=512")
        try:
            value = yaml.load(text, _Loader)
        except yaml.YAMLError as error:
            raise ConfigError(f"-c {setting}: the value cannot be read: {error}") from error
        given.pop(key.strip(), None)  # the last one counts, also where it is of a whole group
        given[key.strip()] = value
    return configured(given)


def described() -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each setting, its type, its default, and what it is."""
    for name, field in Config.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            yield from (_described(f"{name}.{inner}", each) for inner, each in group.model_fields.items())
        else:
            yield _described(name, field)


def _described(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = field.get_default(call_default_factory=True)
    shown = "none" if default in (None, (), {}) else json.dumps(default).strip('"')
    return name, _type(field.annotation), shown, field.description or ""


def _type(annotation: Any) -> str:
    """Name a type for people."""
    found = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is Literal:
        return "|".join(map(str, found))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_type, found))
    return _TYPES[get_origin(annotation) or annotation]


def print_settings() -> None:
    """Print the settings, one in a line."""
    table = Table.grid(padding=(0, 2))
    for row in (("setting", "type", "default", ""), *described()):
        table.add_row(*map(Text, row))
    (Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)).print(table)


class Defaults:
    """What files of the working folder and the environment set for commands whose options do not say otherwise."""

    def __init__(self, console: Console) -> None:
        """Read them, and print who sets what.

        Raises:
            ConfigError: one of them is wrong.
        """
        self._values: dict[str, Any] = {}
        for source, values in settings_by_source().items():
            named = (f"{key}={one_line(str(values[key]), 80)}" if key in _REACHED else key for key in values)
            say(console, f"note: {source} sets {', '.join(named)}")
            self._values |= values

    def config(self, options: Mapping[str, Any], settings: Iterable[str] | None) -> Config:
        """Return the configuration with these options and `key=value` settings over the defaults.

        Raises:
            ConfigError: as `read_config` raises.
        """
        own = {key: value for key, value in self._values.items() if key not in BESIDE}
        given = {key: value for key, value in options.items() if value is not None}
        return read_config({**own, **given}, settings or ())

    @property
    def model(self) -> str | dict[str, str] | None:
        """The model's name, or names by role; None where none is set."""
        return self._values.get("model")

    def models(self, options: ModelOptions, **more: Any) -> Models:
        """Return the models; options of the command line, and `more`, go over the defaults.

        Raises:
            UsageError: as `Models.of` raises.
        """
        own = {name: self._values[name] for name in OF_MODELS if name in self._values}
        return Models.of(options.model or self.model, **{**own, **options.model_options(), **more})

    def cache(self, given: Path | None) -> Path:
        """Return the file that keeps replies over runs."""
        return given or self._values.get("cache") or _CACHE

    def prompts(self, options: RunOptions) -> Path | None:
        """Return the folder of templates that replace the built-in ones."""
        return options.prompts or self._values.get("prompts")


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
