"""The immutable, validated specification of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.config import Config, SandboxConfig, build_config
from agent.errors import InputError, UsageError
from agent.events import Event
from agent.languages.base import Language
from agent.languages.registry import Languages
from agent.llm.budget import Budget
from agent.llm.gateway import ReplyCache, Transport
from agent.llm.models import Models, ModelSource
from agent.llm.prices import Prices
from agent.pipeline.graph import Pipeline, Variant, build, collect_known_roles
from agent.pipeline.nodes.generate_test import choose_test_role
from agent.pipeline.nodes.registry import BUILT_IN
from agent.pipeline.nodes.repair import choose_repair_role
from agent.pipeline.prompts import Prompts
from agent.pipeline.state import Node
from agent.runs.batches import ResultsOnDisk, check_batch_support
from agent.sandbox.base import EnvironmentBuilder, SandboxBackend
from agent.sandbox.dependencies.requirements import read_requirements
from agent.sandbox.session import SharedExecutions
from agent.tracing import UNTRACED, Tracer, create_tracer
from agent.types import Pair, normalise_language

if TYPE_CHECKING:
    from agent.llm.openai import ApiKey


class ModelOptions(TypedDict, total=False):
    """Arguments of `Annotator` for models that are chosen by name. See `agent.llm.models.parse_model`."""

    api_key: ApiKey | None
    http_client: Any
    prices: Prices | Path | str | Mapping[str, Any] | None
    base_url: str | None
    headers: dict[str, str] | None
    reply_format: Literal["json_object", "json_schema", "text"] | None
    thinking: Literal["on", "off"] | None
    temperature: float | None
    max_tokens: int | None
    extra_body: Mapping[str, Any] | str | None
    call_timeout: float | None
    attempts: int | None


class AnnotatorOptions(ModelOptions, total=False):
    """The arguments of `Annotator`, which describes them. None stands for the default."""

    model: ModelSource
    sandbox: str | SandboxBackend | None
    variant: str | Path | Mapping[str, Any] | Variant | None
    without: Sequence[str] | None
    nodes: Mapping[str, Node] | None
    prompts: Path | str | None
    languages: Sequence[Language] | None
    unsupported: Literal["fail", "judge", "skip"]
    run_dir: Path | str | None
    cache: Path | str | ReplyCache | None
    retry_errors: bool
    rounds: int | None
    concurrency: int | Literal["auto"] | None
    pair_timeout: float | None
    config: Config | Mapping[str, Any] | None
    executions: SharedExecutions | None
    engine: Literal["local", "ray"] | None
    address: str | None
    budget: float | Budget | None
    on_event: Callable[[Event], None] | None


_TYPES = get_type_hints(AnnotatorOptions, localns={"ApiKey": Any, "BaseChatModel": Any})
_CHECKED_BY_MODELS = frozenset({"model", *ModelOptions.__optional_keys__})
_SETTINGS = {
    "rounds": "runner.rounds",
    "concurrency": "runner.concurrency",
    "engine": "runner.engine",
    "address": "runner.address",
    "budget": "runner.budget_usd",
    "pair_timeout": "pipeline.pair_timeout",
    "sandbox": "sandbox.backend",
}
"""Arguments that are settings. The configuration validates their ranges."""
_SANDBOX_IDENTITY = ("image", "mount_ro", "requirements", "exclude_newer", "python")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that defines a run, except its pairs.

    `fallback` labels pairs in unsupported languages. It is `pipeline` if that pipeline neither writes nor runs
    programs. `backend` is a sandbox backend passed by the user. If `transport` is set, it handles all model calls;
    neither the models nor OpenAI's Batch API is called directly.
    """

    config: Config
    models: Models
    pipeline: Pipeline
    fallback: Pipeline | None
    prompts: Prompts
    nodes: Mapping[str, Node]
    user_languages: Mapping[str, Language]
    unsupported: str
    run_dir: Path | None
    cache: Path | ReplyCache | None
    retry_errors: bool
    budget: Budget | None
    backend: SandboxBackend | None
    executions: SharedExecutions | None
    emit: Callable[[Event], None]
    tracer: Tracer
    transport: Transport | None = None

    @classmethod
    def of(cls, options: AnnotatorOptions) -> RunSpec:
        """Validate the arguments of `Annotator` and return the specification.

        Raises:
            UsageError: an argument has a wrong type or value, or two arguments are mutually exclusive.
            InputError: a file of replies cannot be read.
        """
        _check_types(options)
        arguments: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        config, nodes = _merge_config(arguments), arguments.get("nodes", {})
        model_options = {name: arguments[name] for name in arguments.keys() & ModelOptions.__optional_keys__}
        models, roles = Models.of(arguments.get("model"), **model_options), collect_known_roles({**BUILT_IN, **nodes})
        models.check(role.name for role in roles)
        source, without = arguments.get("variant", config.variant), arguments.get("without", ())
        pipeline = build(source, without=without, nodes=nodes, context=config.pipeline.context)
        criterion = config.pipeline.criterion or pipeline.variant.criterion
        context = "module" if pipeline.variant.opens_context else "none"
        settings = config.pipeline.model_copy(update={"criterion": criterion, "context": context})
        fallback = None if pipeline.needs_language else pipeline
        unsupported = arguments.get("unsupported", "fail")
        if fallback is None and unsupported == "judge":
            fallback = build("single_llm", nodes=nodes)
        for role in (*pipeline.roles, *(fallback.roles if fallback else ())):
            models.for_role(role)
        values = map(arguments.get, ("run_dir", "cache", "prompts"))
        run_dir, cache, prompts = (Path(value) if isinstance(value, str) else value for value in values)
        budget, backend, executions = (arguments.get(name) for name in ("budget", "sandbox", "executions"))
        if executions is not None and config.runner.engine == "ray":
            raise UsageError("execution results can be shared only within one process: remove --engine ray (engine)")
        if config.runner.batch:
            check_batch_support(config.runner, models, run_dir, cache)
            executions = executions or SharedExecutions(ResultsOnDisk())
        return cls(
            config=config.model_copy(update={"pipeline": settings}),
            models=models,
            pipeline=pipeline,
            fallback=fallback,
            prompts=Prompts(prompts, roles),
            nodes=nodes,
            user_languages={normalise_language(language.name): language for language in arguments.get("languages", ())},
            unsupported=unsupported,
            run_dir=run_dir,
            cache=cache,
            retry_errors=arguments.get("retry_errors", False),
            budget=budget if isinstance(budget, Budget) else None,
            backend=None if isinstance(backend, str) else backend,
            executions=executions,
            emit=arguments.get("on_event", _ignore),
            tracer=create_tracer(config.tracing),
        )

    @cached_property
    def languages(self) -> Languages:
        """The known languages. Some of them may not be usable on this machine."""
        return Languages(self.user_languages)

    @cached_property
    def untestable(self) -> dict[str, str | None]:
        """The reasons why languages cannot be tested on this machine, or None, for each language checked so far."""
        return {}

    def find_language(self, name: str) -> Language | None:
        """Return a language, or None if snippets in this language cannot be tested on this machine.

        Raises:
            ConfigError: the language's package is not usable.
        """
        if name not in self.untestable:
            self.untestable[name] = self.languages.explain_untestable(name)
        return None if self.untestable[name] else self.languages[name]

    @property
    def sandbox(self) -> SandboxConfig | None:
        """The settings for choosing a sandbox backend; None if no sandbox is needed or the user passed a backend."""
        return self.config.sandbox if self.pipeline.uses_sandbox and self.backend is None else None

    def for_worker(self) -> RunSpec:
        """Return a copy for a worker, without the parts that only the driver uses and that may not be picklable."""
        # the driver sends the OpenTelemetry spans
        config = self.config.model_copy(update={"tracing": self.config.tracing.model_copy(update={"otel": False})})
        return replace(self, config=config, cache=None, budget=None, emit=_ignore, tracer=UNTRACED)

    def check_pair(self, pair: Pair) -> None:
        """Check that snippets in the language of a pair can be tested.

        Raises:
            InputError: they cannot, `unsupported` is `fail`, and the variant writes programs.
            ConfigError: the language's package is not usable.
        """
        language = self.find_language(pair.language)
        if language is None and self.fallback is None and self.unsupported == "fail":
            raise InputError(
                f"pair {pair.id!r}: language {pair.language!r} {self.untestable[pair.language]}; "
                "judge such pairs without a test (--unsupported judge) or skip them (--unsupported skip)"
            )

    def identity(self, languages: Iterable[str] = ()) -> dict[str, Any]:
        """Return the run identity: everything that affects labels, except the input.

        `languages` are the languages of the input. They are part of the identity only if the variant writes programs in
        them that do not follow the rules for Python.

        Raises:
            UsageError: a requirements file cannot be read.
        """
        user_parts = {"nodes": _identify_parts(self.nodes), "languages": self._identify_languages(languages)}
        in_module = self.pipeline.variant.opens_context
        excluded = {"pair_timeout", "sandbox_attempts", *(() if in_module else ("context", "context_lines"))}
        roles = collect_known_roles({**BUILT_IN, **self.nodes})
        versions = ("", "in_module") if in_module else ("",)
        templates = {"reask", *(role.template for role in roles if role.version in versions)}
        return {
            "variant": self.pipeline.variant.model_dump(mode="json", exclude={"title", "paper", "criterion"}),
            "model": self.models.identity(),
            "prompts": {name: digest for name, digest in self.prompts.hash_templates().items() if name in templates},
            "pipeline": self.config.pipeline.model_dump(mode="json", exclude=excluded, exclude_none=True),
            "unsupported": self.unsupported,
            **_identify_sandbox(self.config.sandbox, in_module),
            **{name: versions for name, versions in user_parts.items() if versions},
        }

    def _identify_languages(self, names: Iterable[str]) -> dict[str, str]:
        """Return the class of each of the user's languages, and the package and prompts of the input's languages."""
        identities = _identify_parts(self.user_languages)
        for name in sorted(names) if self.pipeline.needs_language else ():
            if (language := self.find_language(name)) is not None:
                parts = identities.get(name), self.languages.describe_package(name), self._hash_rules(language)
                if any(parts):
                    identities[name] = " ".join(filter(None, parts))
        return identities

    def _hash_rules(self, language: Language) -> str:
        """Return a hash of the prompts for a language that do not equal those for Python, or an empty string."""
        used = {role.template for role in (choose_test_role(language), choose_repair_role(language)) if role.version}
        if not used:
            return ""
        hashes = {name: digest for name, digest in self.prompts.hash_templates().items() if name in used}
        rules = [language.prompt_rules, language.packages, language.program_fence, hashes]
        return hashlib.sha256(json.dumps(rules).encode()).hexdigest()


def _ignore(_event: Event) -> None:
    """Ignore an event."""


def _check_types(options: AnnotatorOptions) -> None:
    for name, value in options.items():
        if name not in _TYPES:
            near = ", ".join(get_close_matches(name, _TYPES))
            raise UsageError(f"unknown argument {name!r}" + (f", did you mean {near}?" if near else ""))
        try:
            if name not in _CHECKED_BY_MODELS and value is not None:
                _make_validator(name).validate_python(value)
        except ValidationError:
            expected = AnnotatorOptions.__annotations__[name].__forward_arg__
            raise UsageError(f"{name}={value!r:.60} is of type {type(value).__name__}; expected {expected}") from None
    for language in options.get("languages") or ():
        _check_attributes("languages", language, name=str, fence=str)
    for node in (options.get("nodes") or {}).values():
        _check_attributes("nodes", node, outcomes=Mapping)
    if isinstance(sandbox := options.get("sandbox"), SandboxBackend):
        _check_attributes("sandbox", sandbox, name=str, environments=EnvironmentBuilder)


@cache
def _make_validator(argument: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TYPES[argument], config=ConfigDict(arbitrary_types_allowed=True, strict=True))


def _check_attributes(argument: str, value: object, **kinds: type) -> None:
    for name, kind in kinds.items():
        if not isinstance(getattr(value, name, None), kind):
            raise UsageError(f"{argument}: {type(value).__name__}.{name} must be a {kind.__name__}")


def _merge_config(arguments: Mapping[str, Any]) -> Config:
    """Build the configuration once: from `config`, overridden by the arguments that are settings."""
    names = {
        key: name
        for name, key in _SETTINGS.items()
        if name in arguments and not isinstance(arguments[name], SandboxBackend | Budget)
    }
    config, settings = arguments.get("config", {}), {key: arguments[name] for key, name in names.items()}
    if not isinstance(config, Config):
        return build_config({**config, **settings}, labels=names)
    return build_config(settings, config, labels=names)


def _identify_sandbox(sandbox: SandboxConfig, in_module: bool) -> dict[str, Any]:
    """Return the sandbox settings that affect programs and differ from their defaults."""
    names = {*_SANDBOX_IDENTITY, *(("checkouts",) if in_module else ())}
    settings = sandbox.model_dump(mode="json", include=names, exclude_defaults=True)
    if "requirements" in settings:
        settings["requirements"] = list(read_requirements(Path(settings["requirements"])))
    if "checkouts" in settings:
        settings["checkouts"] = True  # pairs name their commits, so the path does not matter
    return {"sandbox": settings} if settings else {}


def _identify_parts(parts: Mapping[str, object]) -> dict[str, str]:
    """Return the class and, if it has one, the version of each of the user's nodes or languages, keyed by name."""
    kinds = {name: f"{type(part).__module__}.{type(part).__qualname__}" for name, part in parts.items()}
    versions = {name: getattr(part, "version", None) for name, part in parts.items()}
    return {name: kind if versions[name] is None else f"{kind} {versions[name]}" for name, kind in kinds.items()}
