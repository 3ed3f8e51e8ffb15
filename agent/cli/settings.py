"""Builds the configuration and models from all sources of settings, and reports options that have no effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from agent.cli.options import RunOptions, ServerOptions, SettingOptions
from agent.cli.text import Console, print_text
from agent.config import Config, validate_settings
from agent.errors import ConfigError
from agent.llm.models import Models, are_scripted, parse_choices
from agent.pipeline.graph import Variant, collect_roles, find_readers, load_variant, writes_programs
from agent.runs.store.user_folder import get_default_cache
from agent.settings import MODEL_SETTINGS, Settings, Source, describe_value, merge_sources, read_sources

_FORMER_CACHE = Path("runs/cache.sqlite")


class _Loader(yaml.SafeLoader):
    """Loads scalars as strings, so that the version 3.10 does not become 3.1. The settings convert the strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:null"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_config(
    settings: Mapping[str, Any], assignments: Iterable[str], labels: Mapping[str, str] | None = None
) -> Settings:
    """Return the configuration from `settings`, overridden by `key=value` assignments.

    `labels` maps keys to the names used in error messages.

    Raises:
        ConfigError: an assignment does not have the form key=value, a key is unknown, or a value is out of range.
    """
    values = dict(settings)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key.strip():
            raise ConfigError(
                f"-c {assignment}: not in the form KEY=VALUE. Pass a setting and a value, such as runner.rounds=3."
            )
        values.pop(key.strip(), None)  # the last assignment wins, even if it sets a whole group
        values[key.strip()] = _parse_value(assignment, key, text)
    return validate_settings(Settings, values, labels=labels)


def _parse_value(assignment: str, key: str, text: str) -> Any:
    try:
        # unlike other settings, the fields of a request have no declared types
        return json.loads(text) if key.partition(".")[0].strip() == "extra_body" else yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"-c {assignment}: the value is not valid YAML or JSON: {error}") from error


class ChosenSettings:
    """The settings of a command. Options override all other sources (see `read_sources`), and `-c` overrides options.

    `names` contains the model names, keyed by role unless there is only one. `overrides` takes precedence over all
    sources.

    Raises:
        ConfigError: a source is invalid.
        SettingsRefused: see `merge_sources`.
    """

    def __init__(
        self, console: Console, options: SettingOptions | None = None, *, overrides: Mapping[str, Any] | None = None
    ) -> None:
        options = options or SettingOptions()
        sources = read_sources(file=options.settings_file)
        _print_sources(console, sources)
        flags, chosen = options.collect_flags(), options.collect_values()
        if isinstance(options, ServerOptions) and options.model:
            chosen["model"] = parse_choices(options.model)
        values = {**merge_sources(sources, {*flags, *chosen, *(overrides or {})}), **chosen}
        settings = read_config(values, options.assignments or (), flags)
        self.config = validate_settings(Config, overrides or {}, settings.to_config())
        self._cache, self._console = settings.cache, console
        self.prompts, self.names = settings.prompts, settings.model
        self._model_settings = settings.model_dump(include={*MODEL_SETTINGS}, exclude_unset=True)

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
