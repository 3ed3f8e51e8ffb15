"""Defines and validates the settings of a run, and locates the package's data folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from agent.deadline import Deadline
from agent.errors import ConfigError

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
_DAY = 86_400


class InFolder(Enum):
    """What a settings file in the working folder may do with a setting. Such a file may come from a stranger.

    The file must not be able to send, run, read, mount or spend anything, or to weaken a sandbox.
    """

    FREE = "any value"
    LIMIT = "up to the default"
    NAME = "names"
    TRUSTED = "no"


T = TypeVar("T")
Free = Annotated[T, InFolder.FREE]
Limit = Annotated[T, InFolder.LIMIT]
Name = Annotated[T, InFolder.NAME]
Trusted = Annotated[T, InFolder.TRUSTED]
RENAMED = {
    "pipeline.reasks": "pipeline.format_retries",
    "pipeline.max_try_time": "pipeline.max_repairs",
    "pipeline.audit_screen": "pipeline.screen_audit_rate",
    "sandbox.network_for_builds": "sandbox.install_packages",
}
"""Settings of earlier versions with their new names."""
REMOVED_VARIANTS = ("full_plus",)
"""Variants of earlier versions. Their runs can be read, but not resumed."""
LIMITS = ("memory_mb", "processes", "cpus", "files_mb", "output_kb", "inodes")
"""The fields of `SandboxConfig` that limit one sandbox."""


def _check_deadline(value: Any) -> Any:
    """Validate a deadline and return it unparsed, because a duration is measured from the start of the run."""
    if value is not None:
        Deadline.of(str(value))
    return value


def _parse_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise PydanticCustomError("json", "Input should be JSON") from error


def _parse_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class ModelSettings(BaseModel):
    """Settings for calling language models."""

    model_config = _STRICT

    base_url: Trusted[str | None] = Field(
        default=None, description="Base URL of an OpenAI-compatible server, ending in /v1"
    )
    reply_format: Free[Literal["json_object", "json_schema", "text"]] = Field(
        default="json_object", description="How JSON replies are requested from the model"
    )
    thinking: Trusted[Literal["on", "off"] | None] = Field(
        default=None, description="Switch the model's reasoning on or off"
    )
    temperature: Free[float | None] = Field(
        default=None, description="Sampling temperature; omitted from requests unless set"
    )
    max_tokens: Trusted[int | None] = Field(default=None, ge=1, description="Maximum number of tokens per reply")
    extra_body: Trusted[Annotated[dict[str, Any], BeforeValidator(_parse_json)]] = Field(
        default_factory=dict, description="Additional fields for the body of every request, as JSON"
    )
    call_timeout: Limit[float] = Field(
        default=120.0,
        gt=0,
        le=_DAY,
        description="Time limit for each attempt at a model call, including streaming, in seconds",
    )
    attempts: Limit[int] = Field(
        default=6, ge=1, description="Maximum number of attempts per model call; only transient errors are retried"
    )


class ModelConfig(ModelSettings):
    """Settings for calling one language model. Never contains the API key."""

    name: str
    headers: dict[str, str] = Field(default_factory=dict)


class PipelineConfig(BaseModel):
    """Settings for annotating one pair."""

    model_config = _STRICT

    max_repairs: Limit[int] = Field(
        default=3, ge=0, description="Maximum number of repair rounds (stage 2 of Algorithm 1 in the CoSQA+ paper)"
    )
    format_retries: Limit[int] = Field(
        default=2, ge=0, description="Maximum number of retries after a reply that cannot be parsed"
    )
    test_timeout: Limit[float] = Field(
        default=15.0, gt=0, le=_DAY, description="Time limit per execution of a test program, in seconds"
    )
    command_timeout: Limit[float] = Field(
        default=30.0, gt=0, le=_DAY, description="Time limit per terminal command in a repair round, in seconds"
    )
    sandbox_attempts: Limit[int] = Field(
        default=3,
        ge=1,
        description="Maximum number of attempts per execution; after a sandbox failure, a new sandbox is used",
    )
    pair_timeout: Free[float | None] = Field(
        default=None, gt=0, le=_DAY, description="Total time limit per pair, in seconds"
    )
    criterion: Free[Literal["exact", "half"] | None] = Field(
        default=None,
        description="How much of the query a match must satisfy: all (exact) or at least half (half); "
        "the default depends on the variant",
    )
    screen_audit_rate: Trusted[float | None] = Field(
        default=None,
        gt=0,
        le=1,
        description="Fraction of the screener's verdicts to check with a test, to estimate the screener's error rate",
    )
    context: Trusted[Literal["none", "module"]] = Field(
        default="none",
        description="Where tests run: around the snippet alone (none), or in the snippet's own module (module)",
    )
    context_lines: Limit[int] = Field(
        default=150, ge=1, description="Maximum number of lines in prompts that describe the snippet's module"
    )


def _parse_concurrency(value: Any) -> Any:
    with suppress(ValueError, TypeError):
        if value == "auto" or (not isinstance(value, bool | float) and int(value) >= 1):
            return value if value == "auto" else int(value)
    raise PydanticCustomError("concurrency", "Input should be auto, or an integer greater than or equal to 1")


class RunnerConfig(BaseModel):
    """Settings for concurrency, rounds, budget and deadline."""

    model_config = _STRICT

    concurrency: Free[Annotated[int | Literal["auto"], BeforeValidator(_parse_concurrency)]] = Field(
        default="auto", description="Maximum number of pairs in progress; auto adapts to the model server"
    )
    llm_calls: Limit[int] = Field(default=512, ge=1, description="Maximum number of model calls in flight")
    calls_per_minute: Free[int | None] = Field(
        default=None, ge=1, description="Maximum number of calls per minute for each model"
    )
    tokens_per_minute: Free[int | None] = Field(
        default=None, ge=1, description="Maximum number of input and output tokens per minute for each model"
    )
    sandboxes: Limit[int] = Field(
        default=4,
        ge=1,
        description="Maximum number of sandboxes in use, not counting idle sandboxes in the pool (sandbox.pool)",
    )
    engine: Trusted[Literal["local", "ray"]] = Field(
        default="local", description="Where pairs are annotated: in this process (local) or in Ray workers (ray)"
    )
    address: Trusted[str | None] = Field(
        default=None,
        min_length=1,
        description="Address of the Ray cluster, such as HOST:6379 or auto; by default, Ray starts on this machine",
    )
    workers: Trusted[int | None] = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Number of Ray workers, which use one CPU each; by default, one per CPU",
    )
    rounds: Limit[int] = Field(
        default=1, ge=1, le=1000, description="Number of rounds per pair; the majority label wins"
    )
    batch: Trusted[bool] = Field(
        default=False,
        description="Send model calls through OpenAI's Batch API: half the price, but up to a day per step",
    )
    budget_usd: Free[float | None] = Field(
        default=None, gt=0, description="Maximum cost of the run in US dollars, including earlier sessions"
    )
    max_tokens_total: Free[int | None] = Field(
        default=None,
        ge=1,
        description="Maximum number of input and output tokens for the run, including earlier sessions",
    )
    deadline: Free[Annotated[str | None, BeforeValidator(_check_deadline)]] = Field(
        default=None, description="When to stop: a duration such as 8h or 2h30m, or a time such as 07:30"
    )


class SandboxConfig(BaseModel):
    """Settings for the sandbox backend, the sandbox pool, and the limits and packages of each sandbox."""

    model_config = _STRICT

    backend: Trusted[str] = Field(
        default="auto", description="Sandbox backend; auto uses bwrap if it can enforce all limits, otherwise docker"
    )
    memory_mb: Limit[int] = Field(default=1024, ge=64, le=1 << 24, description="Memory limit of a sandbox, in MB")
    processes: Limit[int] = Field(
        default=128, ge=4, le=1 << 20, description="Maximum number of processes and threads in a sandbox"
    )
    cpus: Limit[float] = Field(default=1.0, ge=0.01, le=4096, description="CPU limit of a sandbox, in cores")
    files_mb: Limit[int] = Field(
        default=256, ge=8, le=1 << 24, description="Maximum size of the files in a sandbox, in MB"
    )
    output_kb: Limit[int] = Field(
        default=64, ge=1, le=1 << 15, description="Maximum recorded size of each output stream, in KB"
    )
    inodes: Limit[int] = Field(
        default=32768,
        ge=256,
        le=1 << 30,
        description="Maximum number of files and folders in each writable folder of a sandbox",
    )
    pool: Limit[int] = Field(default=4, ge=0, le=1024, description="Number of idle sandboxes to keep ready")
    starts: Limit[int] = Field(
        default=2, ge=1, le=256, description="Maximum number of sandboxes that start at the same time"
    )
    image: Trusted[str | None] = Field(
        default=None, min_length=1, description="Docker image to run programs in, with Python 3.8 or later"
    )
    mount_ro: Trusted[Annotated[tuple[str, ...], BeforeValidator(_parse_list)]] = Field(
        default=(),
        description="File or folder to mount read-only, as HOST:BOX (its path on the host and in the sandbox)",
    )
    requirements: Trusted[str | None] = Field(
        default=None, description="Requirements file with packages that every program can import"
    )
    zygote: Trusted[Literal["auto", "off"]] = Field(
        default="auto",
        description="Import a snippet's module once and fork for the test and the sentinel run, where this is safe",
    )
    checkouts: Trusted[str | None] = Field(
        default=None, description="Folder with git clones, for testing functions in their module at a recorded commit"
    )
    exclude_newer: Trusted[str | None] = Field(
        default=None, description="Ignore wheels and npm packages that were uploaded after this date or time"
    )
    python: Trusted[str | None] = Field(
        default=None, pattern=r"^3\.\d{1,2}$", description="Python version that runs programs, such as 3.9"
    )
    images: Trusted[dict[str, str]] = Field(
        default_factory=dict, description="Docker image for each Python version, as a mapping"
    )
    store_mb: Trusted[int] = Field(
        default=20480,
        ge=0,
        description="Maximum total size of cached environments in MB (0: unlimited); also applies to cached downloads",
    )
    install_packages: Trusted[bool] = Field(
        default=True, description="Install missing dependencies from the package index"
    )
    index_rule: Trusted[bool] = Field(
        default=True,
        description="Also install packages that are not in the built-in list, if they are established on the index",
    )


class TracingConfig(BaseModel):
    """Settings for the spans and metrics that a run sends over OpenTelemetry."""

    model_config = _STRICT

    otel: Trusted[bool] = Field(
        default=False, description="Send spans and metrics to the OTLP endpoint that the OTEL_* variables specify"
    )
    content: Trusted[bool] = Field(
        default=False, description="Include prompts and replies, which contain queries and code, in spans"
    )


class Config(BaseModel):
    """All settings of a run."""

    model_config = _STRICT

    variant: Name[str] = Field(default="full", description="Name of a variant (see `agent graph`) or a YAML file")
    pipeline: PipelineConfig = PipelineConfig()
    runner: RunnerConfig = RunnerConfig()
    sandbox: SandboxConfig = SandboxConfig()
    tracing: TracingConfig = TracingConfig()


C = TypeVar("C", bound=Config)


def validate_settings(
    kind: type[C],
    settings: Mapping[str, Any],
    base: C | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> C:
    """Return `base`, or the defaults, updated with settings such as `{"variant": "ps_fa", "runner.concurrency": 4}`.

    `labels` maps keys to the names used in error messages, such as command-line options.

    Raises:
        ConfigError: a key is unknown or a value is invalid.
    """
    if base is not None and not settings:
        return base
    tree: dict[str, Any] = {} if base is None else base.model_dump()
    for key, value in settings.items():
        _set_value(tree, key, value)
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain_errors(error, kind, labels or {})) from error


build_config = partial(validate_settings, Config)
"""`validate_settings` for a `Config`."""


def explain_errors(error: ValidationError, kind: type[BaseModel], labels: Mapping[str, str]) -> str:
    """Return a message that names each invalid setting and its cause, and suggests names for unknown settings."""
    return "; ".join(_explain_error(problem, kind, labels) for problem in error.errors())


def collect_setting_fields(kind: type[BaseModel] = Config) -> dict[str, FieldInfo]:
    """Return a mapping from each setting's key, such as `variant` or `runner.concurrency`, to its field."""
    fields: dict[str, FieldInfo] = {}
    for name, field in kind.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            fields |= {f"{name}.{inner}": inner_field for inner, inner_field in group.model_fields.items()}
        else:
            fields[name] = field
    return fields


def _set_value(tree: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"setting {key!r}: {parent!r} is a value, not a group of settings")
    group = tree.get(name) if not parents else None
    if isinstance(value, Mapping):  # settings that the mapping omits keep their current values
        value = {**group, **value} if isinstance(group, dict) else dict(value)
    tree[name] = value


def _suggest_settings(key: str, known: list[str]) -> list[str]:
    """Return known settings that resemble the key or, if there are none, settings that resemble its last part."""
    if near := get_close_matches(key, known, cutoff=0.75):
        return near
    last = {name.rpartition(".")[2]: name for name in known}
    return [last[name] for name in get_close_matches(key.rpartition(".")[2], last)]


def _explain_error(problem: Any, kind: type[BaseModel], labels: Mapping[str, str]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        if key in RENAMED:
            return f"setting {key!r} has been renamed to {RENAMED[key]!r}"
        near = ", ".join(_suggest_settings(key, [*collect_setting_fields(kind)]))
        suggestion = f", did you mean {near}?" if near else ""
        return f"unknown setting {key!r}{suggestion} (agent annotate -c help lists all settings)"
    if problem["type"] == "model_type":
        return f"setting {key} is a group; set one of its settings, as in {key}.NAME=VALUE"
    value = "nothing" if problem["input"] in ("", None) else repr(problem["input"])
    name = labels.get(key, f"setting {key}")
    return f"{name}: {problem['msg'].removeprefix('Value error, ')}, not {value[:60]}"


_PACKAGE = Path(__file__).resolve().parent


def find_data_folder(name: str) -> Path:
    """Return the path of a data folder (`prompts`, `graphs` or `sandbox_images`) in the installed wheel or checkout.

    Raises:
        FileNotFoundError: the folder is missing from the installation.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the data folder {name!r} is missing from the installation. Reinstall the package")
