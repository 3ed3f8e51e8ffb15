"""Settings of a run: one object, from settings by their keys; and where the data files of the package are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from agent.deadline import Deadline
from agent.errors import ConfigError

_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
_DAY = 86_400.0
LIMITS = ("memory_mb", "processes", "cpus", "files_mb", "output_kb", "inodes")
"""The settings of `SandboxConfig` that limit one sandbox."""


def _deadline(value: Any) -> Any:
    """Refuse what is no deadline; what one means is decided when a run starts."""
    if value is not None:
        Deadline.of(str(value))
    return value


class ModelConfig(BaseModel):
    """How to reach a language model. `api_key` is never written anywhere."""

    model_config = _STRICT

    name: str
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    reply_format: Literal["json_object", "json_schema", "text"] = "json_object"
    thinking: Literal["on", "off"] | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    call_timeout: float = Field(default=120.0, gt=0, le=_DAY, description="seconds for one try of a call")
    attempts: int = Field(default=6, ge=1, description="tries of one call on failures worth retrying")


class PipelineConfig(BaseModel):
    """What the pipeline does with one pair."""

    model_config = _STRICT

    max_try_time: int = Field(default=3, ge=0, description="stage-2 repair rounds (Algorithm 1)")
    reasks: int = Field(default=2, ge=0, description="times an unparsable reply is asked again")
    test_timeout: float = Field(default=15.0, gt=0, le=_DAY, description="seconds for one execution")
    command_timeout: float = Field(default=30.0, gt=0, le=_DAY, description="seconds for one stage-2 command")
    sandbox_attempts: int = Field(default=3, ge=1, description="fresh sandboxes tried when one breaks")
    pair_timeout: float | None = Field(default=None, gt=0, le=_DAY, description="seconds for a pair, all in all")
    criterion: Literal["exact", "half"] = Field(
        default="exact", description="what label 1 takes: the whole demand, or half of it"
    )
    mutants: int = Field(
        default=12, ge=0, le=200, description="stand-ins and mutants of the snippet that a program is tried on"
    )
    mutant_timeout: float = Field(
        default=3.0, gt=0, le=_DAY, description="seconds for one of them; more where the snippet itself took long"
    )
    votes: int = Field(
        default=3,
        ge=1,
        le=99,
        description="times in all that the arbiter is asked for a label whose confidence is rated",
    )
    flakiness_runs: int = Field(default=3, ge=1, le=100, description="runs of one program, which must agree")
    audit_screen: float | None = Field(
        default=None, gt=0, le=1, description="share of the pairs settled by the screener that are tested all the same"
    )
    abstain: Literal["keep", "negative"] = Field(
        default="keep", description="label of a pair that the evidence does not decide: none, or 0"
    )


def _auto_or_number(value: Any) -> Any:
    with suppress(ValueError, TypeError):
        if value == "auto" or (not isinstance(value, bool | float) and int(value) >= 1):
            return value if value == "auto" else int(value)
    raise PydanticCustomError("at_once", "Input should be auto, or an integer greater than or equal to 1")


class RunnerConfig(BaseModel):
    """How much happens at once, and when to stop."""

    model_config = _STRICT

    concurrency: Annotated[int | Literal["auto"], BeforeValidator(_auto_or_number)] = Field(
        default="auto", description="pairs in progress; auto: as many as keep the calls that the server takes in flight"
    )
    llm_calls: int = Field(default=512, ge=1, description="most model calls in flight")
    calls_per_minute: int | None = Field(default=None, ge=1, description="most calls of a model in a minute")
    tokens_per_minute: int | None = Field(default=None, ge=1, description="most tokens of a model in a minute")
    sandboxes: int = Field(
        default=4, ge=1, description="sandboxes in use; those that wait ready (sandbox.pool) come on top"
    )
    engine: Literal["local", "ray"] = Field(default="local", description="local: in this process; ray: in workers")
    address: str | None = Field(
        default=None, min_length=1, description="Ray: a cluster, as HOST:6379 or auto; none: this machine"
    )
    workers: int | None = Field(default=None, ge=1, le=10_000, description="Ray: workers, of one CPU each [all CPUs]")
    rounds: int = Field(default=1, ge=1, le=1000, description="times each pair is annotated, each with its own samples")
    batch: bool = Field(default=False, description="ask by the batches of OpenAI's Batch API, at half the price")
    budget_usd: float | None = Field(default=None, gt=0, description="what a run may cost, all its starts together")
    max_tokens_total: int | None = Field(
        default=None, ge=1, description="tokens, in and out, that a run may use, all its starts together"
    )
    deadline: Annotated[str | None, BeforeValidator(_deadline)] = Field(
        default=None, description="when a run stops: after a while, as 8h or 2h30m, or at a time, as 07:30"
    )


class SandboxConfig(BaseModel):
    """Which sandbox, how many wait, and the limits of one."""

    model_config = _STRICT

    backend: str = Field(
        default="auto", description="docker, bwrap or auto: bwrap where all its limits hold, else docker"
    )
    memory_mb: int = Field(default=1024, ge=64, le=1 << 24, description="memory of one sandbox, in MB")
    processes: int = Field(default=128, ge=4, le=1 << 20, description="processes and threads at once in one sandbox")
    cpus: float = Field(default=1.0, ge=0.01, le=4096, description="processors that one sandbox may keep busy")
    files_mb: int = Field(default=256, ge=8, le=1 << 24, description="what one sandbox may write to files, in MB")
    output_kb: int = Field(default=64, ge=1, le=1 << 15, description="what is kept of each output stream, in KB")
    inodes: int = Field(
        default=32768, ge=256, le=1 << 30, description="files and folders in each of a sandbox's folders"
    )
    pool: int = Field(default=4, ge=0, le=1024, description="sandboxes kept started ahead of need")
    starts: int = Field(default=2, ge=1, le=256, description="sandboxes starting at once")
    image: str | None = Field(default=None, min_length=1, description="an image to run in place of ours; Docker only")
    mount_ro: tuple[str, ...] = Field(default=(), description="what of the host sandboxes may read, each as HOST:BOX")
    requirements: str | None = Field(default=None, description="a requirements file: part of every environment")
    exclude_newer: str | None = Field(default=None, description="a day or moment; wheels uploaded later are not taken")
    python: str | None = Field(
        default=None, pattern=r"^3\.\d{1,2}$", description="the Python that runs programs, as 3.9"
    )
    images: dict[str, str] = Field(default_factory=dict, description="Docker: which image has which Python")
    store_mb: int = Field(
        default=20480,
        ge=0,
        description="environments kept, those unused longest go first; so many downloads are kept, too (0: all)",
    )
    network_for_builds: bool = Field(default=True, description="fetch missing dependencies from the package index")
    index_rule: bool = Field(
        default=True,
        description="fetch what is not in the map of imports, too, if the index shows it to be old and often released",
    )


class TracingConfig(BaseModel):
    """What is sent of a run, by OpenTelemetry, while it is in progress."""

    model_config = _STRICT

    otel: bool = Field(default=False, description="give spans and metrics to OpenTelemetry (its own variables: where)")
    content: bool = Field(default=False, description="prompts and replies, and so queries and code, too")


class Config(BaseModel):
    """All settings of a run."""

    model_config = _STRICT

    variant: str = Field(default="full", description="a pipeline's name (see `agent graph`) or a YAML file")
    pipeline: PipelineConfig = PipelineConfig()
    runner: RunnerConfig = RunnerConfig()
    sandbox: SandboxConfig = SandboxConfig()
    tracing: TracingConfig = TracingConfig()


def configured(settings: Mapping[str, Any], base: Config | None = None) -> Config:
    """Return `base` (the defaults) with settings by their keys, as in `{"variant": "ps_fa", "runner.concurrency": 4}`.

    Raises:
        ConfigError: a key is unknown, or a value is out of range.
    """
    tree: dict[str, Any] = {} if base is None else base.model_dump()
    for key, value in settings.items():
        if not isinstance(key, str):
            raise ConfigError(f"setting {key!r}: a key is text, as in 'runner.concurrency'")
        _set(tree, key, value)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explained(error, Config)) from error


def explained(error: ValidationError, kind: type[BaseModel]) -> str:
    """Return which settings are wrong and why; of an unknown one, which there are."""
    return "; ".join(_explained(problem, kind) for problem in error.errors())


def setting_keys(kind: type[BaseModel] = Config) -> list[str]:
    """Return the keys of all settings, as in `variant`, `runner.concurrency`."""
    groups = {name: type(held) for name, held in Config() if isinstance(held, BaseModel)}
    keys = [
        [f"{name}.{each}" for each in groups[name].model_fields] if name in groups else [name]
        for name in kind.model_fields
    ]
    return [key for each in keys for key in each]


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *folders, name = key.split(".")
    for folder in folders:
        tree = tree.setdefault(folder, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"setting {key!r}: {folder!r} is a value, not a group of settings")
    tree[name] = dict(value) if isinstance(value, Mapping) else value


def _near(key: str, known: list[str]) -> list[str]:
    """Return the settings that may have been meant: by the whole name, else by its last part."""
    if near := get_close_matches(key, known, cutoff=0.75):
        return near
    last = {name.rpartition(".")[2]: name for name in known}
    return [last[each] for each in get_close_matches(key.rpartition(".")[2], last)]


def _explained(problem: Any, kind: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        near = ", ".join(_near(key, setting_keys(kind)))
        beside = [name for name in kind.model_fields if name not in Config.model_fields]
        listed = f"{', '.join(beside)}, and those of agent annotate -c help" if beside else "-c help"
        return f"unknown setting {key!r} ({f'near it: {near}; ' if near else ''}all of them: {listed})"
    if problem["type"] == "model_type":
        return f"setting {key} is a group: give one of its settings, as {key}.NAME=VALUE"
    given = "nothing" if problem["input"] in ("", None) else repr(problem["input"])
    return f"setting {key}: {problem['msg'].removeprefix('Value error, ')}, not {given[:60]}"


_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Return the folder `prompts`, `graphs` or `sandbox_images`: the wheel's copy, else the checkout's.

    Raises:
        FileNotFoundError: the installation lacks the folder.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the installation lacks its data folder {name!r}: install the package again")
