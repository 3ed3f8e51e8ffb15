"""Settings of a run: one object, from settings by their keys; and where the data files of the package are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from agent.deadline import Deadline
from agent.errors import ConfigError

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
_DAY = 86_400
LIMITS = ("memory_mb", "processes", "cpus", "files_mb", "output_kb", "inodes")
"""The settings of `SandboxConfig` that limit one sandbox."""


def _check_deadline(value: Any) -> Any:
    """Refuse what is no deadline; what one means is decided when a run starts."""
    if value is not None:
        Deadline.of(str(value))
    return value


def _parse_json(value: Any) -> Any:
    """Parse the JSON text of a command-line option."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise PydanticCustomError("json", "Input should be JSON") from error


class ModelSettings(BaseModel):
    """How language models are called."""

    model_config = _STRICT

    base_url: str | None = Field(default=None, description="URL of an OpenAI-compatible server, ending in /v1")
    reply_format: Literal["json_object", "json_schema", "text"] = Field(
        default="json_object", description="How requests ask for JSON"
    )
    thinking: Literal["on", "off"] | None = Field(default=None, description="Switch for a model's reasoning")
    temperature: float | None = Field(default=None, description="Sampling temperature; not sent by default")
    max_tokens: int | None = Field(default=None, ge=1, description="Maximum tokens per reply")
    extra_body: Annotated[dict[str, Any], BeforeValidator(_parse_json)] = Field(
        default_factory=dict, description="More fields for the body of every request"
    )
    call_timeout: float = Field(
        default=120.0, gt=0, le=_DAY, description="Seconds for one attempt of a model call, streaming included"
    )
    attempts: int = Field(default=6, ge=1, description="Maximum attempts per model call (transient errors only)")


class ModelConfig(ModelSettings):
    """How to call one language model. The API key is never part of it."""

    name: str
    headers: dict[str, str] = Field(default_factory=dict)


class PipelineConfig(BaseModel):
    """What the pipeline does with one pair."""

    model_config = _STRICT

    max_try_time: int = Field(default=3, ge=0, description="Maximum repair rounds of stage 2 (Algorithm 1)")
    reasks: int = Field(default=2, ge=0, description="Maximum further requests after a reply that cannot be parsed")
    test_timeout: float = Field(default=15.0, gt=0, le=_DAY, description="Seconds for one execution of a test program")
    command_timeout: float = Field(default=30.0, gt=0, le=_DAY, description="Seconds for one command of stage 2")
    sandbox_attempts: int = Field(default=3, ge=1, description="Sandboxes to try if they break under a program")
    pair_timeout: float | None = Field(default=None, gt=0, le=_DAY, description="Seconds for one pair in total")
    criterion: Literal["exact", "half"] = Field(
        default="exact", description="What counts as a match: the whole query, or at least half of it"
    )
    mutants: int = Field(
        default=12, ge=0, le=200, description="Maximum stand-ins and mutants of a snippet that test its program"
    )
    mutant_timeout: float = Field(
        default=3.0, gt=0, le=_DAY, description="Seconds for one mutant, extended if the snippet itself is slow"
    )
    votes: int = Field(default=3, ge=1, le=99, description="Arbiter votes behind a label with a confidence")
    flakiness_runs: int = Field(default=3, ge=1, le=100, description="Executions of a program that must agree")
    audit_screen: float | None = Field(
        default=None, gt=0, le=1, description="Share of the screener's verdicts to test, to estimate its error"
    )
    abstain: Literal["keep", "negative"] = Field(
        default="keep", description="Label of a pair on which the arbiter abstains: none (keep), or 0 (negative)"
    )


def _parse_concurrency(value: Any) -> Any:
    with suppress(ValueError, TypeError):
        if value == "auto" or (not isinstance(value, bool | float) and int(value) >= 1):
            return value if value == "auto" else int(value)
    raise PydanticCustomError("at_once", "Input should be auto, or an integer greater than or equal to 1")


class RunnerConfig(BaseModel):
    """How much happens at once, and when to stop."""

    model_config = _STRICT

    concurrency: Annotated[int | Literal["auto"], BeforeValidator(_parse_concurrency)] = Field(
        default="auto", description="Pairs in progress; auto follows what the model's server accepts"
    )
    llm_calls: int = Field(default=512, ge=1, description="Maximum model calls in flight")
    calls_per_minute: int | None = Field(default=None, ge=1, description="Maximum calls per minute and model")
    tokens_per_minute: int | None = Field(
        default=None, ge=1, description="Maximum tokens per minute and model, input and output"
    )
    sandboxes: int = Field(
        default=4, ge=1, description="Maximum sandboxes in use, besides those kept ready (sandbox.pool)"
    )
    engine: Literal["local", "ray"] = Field(
        default="local", description="Where pairs are annotated: in this process, or in Ray workers"
    )
    address: str | None = Field(
        default=None, min_length=1, description="Ray cluster to use, as HOST:6379 or auto; default: this machine"
    )
    workers: int | None = Field(
        default=None, ge=1, le=10_000, description="Ray workers of one CPU each; default: one per CPU"
    )
    rounds: int = Field(default=1, ge=1, le=1000, description="Number of rounds per pair; the majority label wins")
    batch: bool = Field(
        default=False, description="Send calls to OpenAI's Batch API: half the price, up to a day per step"
    )
    budget_usd: float | None = Field(
        default=None, gt=0, description="Maximum cost of the run in US dollars, over all its starts"
    )
    max_tokens_total: int | None = Field(
        default=None, ge=1, description="Maximum tokens of the run, input and output, over all its starts"
    )
    deadline: Annotated[str | None, BeforeValidator(_check_deadline)] = Field(
        default=None, description="When to stop: after a duration such as 8h or 2h30m, or at a time such as 07:30"
    )


class SandboxConfig(BaseModel):
    """Which sandbox runs programs, how many are kept ready, and the limits of one."""

    model_config = _STRICT

    backend: str = Field(
        default="auto", description="Where programs run; auto takes bwrap if all its limits hold, else docker"
    )
    memory_mb: int = Field(default=1024, ge=64, le=1 << 24, description="Memory limit of one sandbox, in MB")
    processes: int = Field(
        default=128, ge=4, le=1 << 20, description="Maximum processes and threads at once in one sandbox"
    )
    cpus: float = Field(default=1.0, ge=0.01, le=4096, description="Processors that one sandbox may use")
    files_mb: int = Field(default=256, ge=8, le=1 << 24, description="Maximum size of a sandbox's files, in MB")
    output_kb: int = Field(default=64, ge=1, le=1 << 15, description="Kept size of each output stream, in KB")
    inodes: int = Field(
        default=32768, ge=256, le=1 << 30, description="Maximum files and folders in each folder of a sandbox"
    )
    pool: int = Field(default=4, ge=0, le=1024, description="Sandboxes to keep ready")
    starts: int = Field(default=2, ge=1, le=256, description="Maximum sandboxes that start at once")
    image: str | None = Field(default=None, min_length=1, description="Docker image to run, with Python 3.8 or later")
    mount_ro: tuple[str, ...] = Field(
        default=(), description="Files and folders that programs may read, each as HOST:BOX"
    )
    requirements: str | None = Field(
        default=None, description="Requirements file whose packages every program can import"
    )
    exclude_newer: str | None = Field(default=None, description="Date or time; ignore wheels that were uploaded later")
    python: str | None = Field(
        default=None, pattern=r"^3\.\d{1,2}$", description="Version of the Python that runs programs, such as 3.9"
    )
    images: dict[str, str] = Field(default_factory=dict, description="Docker image for each Python version")
    store_mb: int = Field(
        default=20480,
        ge=0,
        description="Size to which environments are pruned, and downloads as well, in MB (0: unlimited)",
    )
    network_for_builds: bool = Field(default=True, description="Install missing dependencies from the package index")
    index_rule: bool = Field(
        default=True,
        description="Install packages outside the import map if the index shows that they are old and well released",
    )


class TracingConfig(BaseModel):
    """What a run sends by OpenTelemetry."""

    model_config = _STRICT

    otel: bool = Field(default=False, description="Send spans and metrics to the exporter that OTEL_* variables name")
    content: bool = Field(default=False, description="Include prompts and replies, and so queries and code")


class Config(BaseModel):
    """All settings of a run."""

    model_config = _STRICT

    variant: str = Field(default="full", description="Name of a pipeline (see `agent graph`), or a YAML file")
    pipeline: PipelineConfig = PipelineConfig()
    runner: RunnerConfig = RunnerConfig()
    sandbox: SandboxConfig = SandboxConfig()
    tracing: TracingConfig = TracingConfig()


def build_config(
    settings: Mapping[str, Any],
    base: Config | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    strict: bool = False,
) -> Config:
    """Return `base` (the defaults) with settings by their keys, as in `{"variant": "ps_fa", "runner.concurrency": 4}`.

    `labels` are the names of settings for error messages, such as the options that set them. If `strict`, text is no
    number.

    Raises:
        ConfigError: a key is unknown, or a value is out of range.
    """
    tree: dict[str, Any] = {} if base is None else base.model_dump()
    for key, value in settings.items():
        if not isinstance(key, str):
            raise ConfigError(f"setting {key!r}: a key is text, as in 'runner.concurrency'")
        _set_value(tree, key, value)
    try:
        return Config.model_validate(tree, strict=strict)
    except ValidationError as error:
        raise ConfigError(explain_errors(error, Config, labels or {})) from error


def explain_errors(error: ValidationError, kind: type[BaseModel], labels: Mapping[str, str]) -> str:
    """Return which settings are wrong and why; for an unknown one, the settings it may mean."""
    return "; ".join(_explain_error(problem, kind, labels) for problem in error.errors())


def collect_setting_fields(kind: type[BaseModel] = Config) -> dict[str, FieldInfo]:
    """Return the field of each setting by its key, such as `variant` or `runner.concurrency`."""
    fields: dict[str, FieldInfo] = {}
    for name, field in kind.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            fields |= {f"{name}.{inner}": each for inner, each in group.model_fields.items()}
        else:
            fields[name] = field
    return fields


def _set_value(tree: dict[str, Any], key: str, value: Any) -> None:
    *folders, name = key.split(".")
    for folder in folders:
        tree = tree.setdefault(folder, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"setting {key!r}: {folder!r} is a value, not a group of settings")
    group = tree.get(name) if not folders else None
    if isinstance(value, Mapping):  # a whole group changes the settings that it names, and no others
        value = {**group, **value} if isinstance(group, dict) else dict(value)
    tree[name] = value


def _suggest_settings(key: str, known: list[str]) -> list[str]:
    """Return the settings that may have been meant: by the whole name, else by its last part."""
    if near := get_close_matches(key, known, cutoff=0.75):
        return near
    last = {name.rpartition(".")[2]: name for name in known}
    return [last[each] for each in get_close_matches(key.rpartition(".")[2], last)]


def _explain_error(problem: Any, kind: type[BaseModel], labels: Mapping[str, str]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = ", ".join(_suggest_settings(key, [*collect_setting_fields(kind)]))
        beside = [name for name in kind.model_fields if name not in Config.model_fields]
        listed = f"{', '.join(beside)}, and those of agent annotate -c help" if beside else "-c help"
        return f"unknown setting {key!r} ({f'near it: {near}; ' if near else ''}all of them: {listed})"
    if problem["type"] == "model_type":
        return f"setting {key} is a group: give one of its settings, as {key}.NAME=VALUE"
    given = "nothing" if problem["input"] in ("", None) else repr(problem["input"])
    name = labels.get(key, f"setting {key}")
    return f"{name}: {problem['msg'].removeprefix('Value error, ')}, not {given[:60]}"


_PACKAGE = Path(__file__).resolve().parent


def find_data_folder(name: str) -> Path:
    """Return the folder `prompts`, `graphs` or `sandbox_images`: the wheel's copy, else the checkout's.

    Raises:
        FileNotFoundError: the installation lacks the folder.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the installation lacks its data folder {name!r}: install the package again")
