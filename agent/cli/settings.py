"""Builds the configuration and models from all sources of settings, and reports options that have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from agent.cli.options import ModelOptions, RunOptions, SettingOptions
from agent.cli.text import Console, print_text
from agent.config import Config, build_config
from agent.errors import ConfigError
from agent.llm.models import Models, are_scripted
from agent.pipeline.graph import Variant, collect_roles, find_readers, load_variant, writes_programs
from agent.runs.store.user_folder import get_default_cache
from agent.settings import EXTRA_SETTINGS, MODEL_SETTINGS, Source, describe_value, merge_sources, read_sources

_FORMER_CACHE = Path("runs/cache.sqlite")


class _Loader(yaml.SafeLoader):
    """Loads scalars as strings, so that the version 3.10 does not become 3.1. The settings convert the strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:null"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_config(settings: Mapping[str, Any], assignments: Iterable[str]) -> Config:
    """Return the configuration from `settings`, overridden by `key=value` assignments.

    Raises:
        ConfigError: an assignment does not have the form key=value, a key is unknown, or a value is out of range.
    """
    return build_config(_assign(settings, assignments))


def _assign(settings: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    values = dict(settings)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key.strip():
            raise ConfigError(
                f"-c {assignment}: not in the form KEY=VALUE. Pass a setting and a value, such as runner.rounds=3."
            )
        try:
            value = yaml.load(text, _Loader)
        except yaml.YAMLError as error:
            raise ConfigError(f"-c {assignment}: the value is not valid YAML: {error}") from error
        values.pop(key.strip(), None)  # the last assignment wins, even if it sets a whole group
        values[key.strip()] = value
    return values


class ChosenSettings:
    """The settings of a command. Options override all other sources (see `read_sources`).

    `names` contains the model names, either keyed by role or as passed on the command line. `overrides` takes
    precedence over all sources.

    Raises:
        ConfigError: a source is invalid.
        SettingsRefused: see `merge_sources`.
    """

    def __init__(
        self, console: Console, options: SettingOptions | None = None, *, overrides: Mapping[str, Any] | None = None
    ) -> None:
        options = options or SettingOptions()
        model_names = options.model if isinstance(options, ModelOptions) else None
        sources = read_sources(file=options.settings_file)
        _print_sources(console, sources)
        chosen = {*options.collect_flags(), *(overrides or {}), *(["model"] if model_names else [])}
        values = merge_sources(sources, chosen)
        values |= options.values
        model_settings = {key: values.pop(key) for key in EXTRA_SETTINGS if key in values}
        values = {**_assign(values, options.assignments), **(overrides or {})}
        self.config = build_config(values, labels=options.collect_flags())
        self._cache, self._console = model_settings.pop("cache", None), console
        self.prompts = model_settings.pop("prompts", None)
        default_names = model_settings.pop("model", None)
        self.names = model_names or default_names
        self._model_settings = model_settings

    @cached_property
    def cache(self) -> Path:
        """The reply cache. Prints a note if the folder has a cache that is not used by default."""
        cache: Path = self._cache or get_default_cache()
        if self._cache is None and _FORMER_CACHE.exists():
            text = f"note: replies are cached in {cache}. To use {_FORMER_CACHE}, pass --cache {_FORMER_CACHE}"
            print_text(self._console, text)
        return cache

    def models(self, **more: Any) -> Models:
        """Build the models. `more` overrides the settings.

        Raises:
            UsageError: see `Models.of`.
        """
        return Models.of(self.names, **{**self._model_settings, **more})


def _print_sources(console: Console, sources: Iterable[Source]) -> None:
    """Print which source sets what, with the values that come from files in the working folder."""
    for source in sources:
        values = source.values.items()
        sets = [key if source.is_trusted else f"{key}={describe_value(value)}" for key, value in values]
        for verb, names in ("sets", sets), ("may not set", source.refused):
            if names:
                print_text(console, f"note: {source.name} {verb} {', '.join(names)}")


def print_unused_options(console: Console, options: RunOptions, variants: Sequence[Variant], models: Models) -> None:
    """Print a note for each option that has no effect. Skip options that have their default value."""
    judging = options.unsupported == "judge" and any(writes_programs(variant) for variant in variants)
    calling_variants = [*variants, load_variant("single_llm")] if judging else variants
    for option, reason in (
        *_find_unused_settings(options, variants),
        *_find_unused_models(options, calling_variants, models),
    ):
        print_text(console, f"note: {option} has no effect: {reason}")


def _find_unused_settings(options: RunOptions, variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    for setting, flag in options.collect_flags().items():
        nodes = find_readers(setting)
        if nodes is not None and not any(find_readers(setting, variant) for variant in variants):
            yield flag, f"none of the nodes that read it ({', '.join(nodes)}) is in {_name_variants(variants)}"


def _find_unused_models(options: RunOptions, variants: Sequence[Variant], models: Models) -> Iterator[tuple[str, str]]:
    for role in models.roles:
        if not any(role in collect_roles(variant) for variant in variants):
            yield f"--model {role}=…", f"no node in {_name_variants(variants)} has this role"
    if are_scripted(models.list_models()):
        for flag in (flag for setting, flag in options.collect_flags().items() if setting in MODEL_SETTINGS):
            yield flag, f"{models.join_names()} is not a language model"


def _name_variants(variants: Sequence[Variant]) -> str:
    names = ", ".join(variant.name for variant in variants)
    return f"the {names} variant" if len(variants) == 1 else f"the variants {names}"
