"""Every option that several commands have, written once; a command takes those of annotating as one object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import typer

from agent.exports.registry import NAMES
from agent.sandbox.registry import CHOICES


def _listed_on_request(settings: list[str] | None) -> list[str] | None:
    if "help" in (settings or ()):
        from agent.cli.settings import print_settings

        print_settings()
        raise typer.Exit
    return settings


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[ROLE=]NAME",
        help="A model's name at --base-url, `heuristic`, or `replay:FILE`; per role as `screen=NAME`. Repeatable.",
    ),
]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="An OpenAI-compatible server, ending in /v1.")]
if TYPE_CHECKING:
    Sandboxes = str
    Formats = str
else:
    Sandboxes, Formats = Literal[CHOICES], Literal[NAMES]
SandboxName = Annotated[
    Sandboxes | None,
    typer.Option("--sandbox", help="Where programs run [default: auto, bwrap if all its limits hold, else docker]."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Any setting, such as sandbox.memory_mb=512; `-c help` lists them. Repeatable.",
        callback=_listed_on_request,
        is_eager=True,
    ),
]
Image = Annotated[str | None, typer.Option(metavar="NAME", help="Docker: the image to run, with Python 3.8 or later.")]
Memory = Annotated[int | None, typer.Option(min=64, metavar="MB", help="What one sandbox may use [default: 1024].")]
MountRo = Annotated[
    list[str] | None,
    typer.Option("--mount-ro", metavar="HOST:BOX", help="Show programs a folder or file, read-only. Repeatable."),
]
Requirements = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A requirements file: every program has what it names.")
]
ExcludeNewer = Annotated[
    str | None, typer.Option(metavar="DATE", help="Take no wheel that was uploaded later; the index must say when.")
]
Python = Annotated[str | None, typer.Option(metavar="VERSION", help="The Python that runs programs, such as 3.9.")]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="Leave a node out, or put the plain one in its place. Repeatable."),
]
PairsFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="PAIRS...",
        help="Pairs of query and code: .jsonl, .json, .csv, .tsv or .parquet, also .gz; folders of Hugging Face "
        "datasets; patterns such as 'more/*.jsonl'; - for JSON lines on standard input.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on standard output.")]

_OBJECT = "options"


@dataclass(frozen=True)
class ModelOptions:
    """Which models are asked, and how."""

    model: Models = None
    base_url: BaseUrl = None
    reply_format: Annotated[
        Literal["json_object", "json_schema", "text"] | None,
        typer.Option(help="How JSON is asked of the server [default: json_object]."),
    ] = None
    thinking: Annotated[Literal["on", "off"] | None, typer.Option(help="Switch a model's reasoning.")] = None
    temperature: Annotated[float | None, typer.Option(help="Sent only when given.")] = None
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest reply.")] = None
    extra_body: Annotated[str | None, typer.Option(metavar="JSON", help="More fields of every request.")] = None
    call_timeout: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one try of a model call.")] = None

    def model_options(self) -> dict[str, Any]:
        """Return how models are reached, as `Models.from_options` takes it."""
        return _given({name: getattr(self, name) for name in self._of_models()})

    def model_flags(self) -> list[str]:
        """Return the options for reaching models that were given."""
        return [_flag(name) for name in self._of_models() if self._chosen(name)]

    @classmethod
    def _of_models(cls) -> list[str]:
        return [each.name for each in fields(ModelOptions) if each.name != "model"]

    def _chosen(self, name: str) -> bool:
        return getattr(self, name) is not None


@dataclass(frozen=True)
class RunOptions(ModelOptions):
    """What model annotates, where programs run, how much of it, and where it is kept."""

    attempts: Annotated[int | None, typer.Option(min=1, help="Tries of a model call whose failures pass.")] = None
    prices: Annotated[Path | None, typer.Option(help="A file of prices that adds to the built-in ones.")] = None
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder [default: a new one in runs/].")] = (
        None
    )
    criterion: Annotated[
        Literal["exact", "half"] | None,
        typer.Option(help="What label 1 takes: the whole demand, or half of it [default: exact]."),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Times that each pair is annotated; the majority counts [default: 1]."),
    ] = None
    sandbox: SandboxName = None
    image: Image = None
    memory: Memory = None
    mount_ro: MountRo = None
    requirements: Requirements = None
    exclude_newer: ExcludeNewer = None
    python: Python = None
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="auto|N", help="Pairs in progress: as many as the model's server takes [default], or N."),
    ] = None
    calls_per_minute: Annotated[int | None, typer.Option(min=1, help="Most calls of each model in a minute.")] = None
    tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of each model in a minute, in and out.")
    ] = None
    engine: Annotated[
        Literal["local", "ray"] | None,
        typer.Option(help="ray: in workers on this machine's cores, or on a cluster [default: local, one process]."),
    ] = None
    address: Annotated[str | None, typer.Option(metavar="HOST:PORT|auto", help="The Ray cluster.")] = None
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, max=86400, help="Seconds for one execution of a test program [default: 15]."),
    ] = None
    pair_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=86400, help="Seconds for one pair, all in all.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Annotate only the first N pairs.")] = None
    budget: Annotated[
        float | None, typer.Option(min=1e-6, metavar="USD", help="What the run may cost, all its starts together.")
    ] = None
    max_tokens_total: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens, in and out, that the run may use, all its starts together."),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Stop after a while, as 8h or 2h30m, or at a time, as 07:30."),
    ] = None
    batch: Annotated[
        bool | None,
        typer.Option("--batch", help="Ask by OpenAI's Batch API: half the price, up to a day per question."),
    ] = None
    field_map: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="query=FIELD,code=FIELD,…",
            help="The input's own names of query, code, id, language, context, and of label (gold).",
        ),
    ] = None
    abstain: Annotated[
        Literal["keep", "negative"] | None,
        typer.Option(help="Where the arbiter may abstain and does: no label, or 0 [default: keep]."),
    ] = None
    audit_screen: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Test this share of the pairs settled by the screener, to estimate its error.",
        ),
    ] = None
    on_bad_line: Annotated[Literal["fail", "skip"], typer.Option(help="What to do with malformed lines.")] = "fail"
    unsupported: Annotated[
        Literal["fail", "judge", "skip"], typer.Option(help="Pairs of a language that cannot be run here.")
    ] = "fail"
    retry_errors: Annotated[bool, typer.Option(help="Annotate pairs again that ended in an error.")] = False
    cache: Annotated[
        Path | None, typer.Option(help="Keeps the model's replies over runs [default: runs/cache.sqlite].")
    ] = None
    prompts: Annotated[Path | None, typer.Option(help="A folder of templates that replace the built-in ones.")] = None
    otel: Annotated[
        bool | None, typer.Option(help="Send spans and metrics by OpenTelemetry, to where its own variables say.")
    ] = None
    settings: Settings = None
    as_json: AsJson = False

    def setting_flags(self) -> dict[str, str]:
        """Return by the name of its setting how each was given: as an option of its own, or by `-c`."""
        flags = {setting: _flag(name) for setting, name in _SETTINGS.items() if self._chosen(name)}
        named = [each.partition("=")[0].strip() for each in self.settings or ()]
        return {**flags, **{setting: f"-c {setting}" for setting in named}}

    @classmethod
    def _of_models(cls) -> list[str]:
        return [*super()._of_models(), "attempts", "prices"]

    def configured(self) -> Mapping[str, Any]:
        """Return the options that are settings, by the settings' names."""
        given = _given({setting: getattr(self, name) for setting, name in _SETTINGS.items()})
        if self.requirements is not None:
            given["sandbox.requirements"] = str(self.requirements)
        return given


@dataclass(frozen=True)
class PoolOptions(RunOptions):
    """How a pool of a retrieval folder is annotated. The folder decides files and fields, so they are no options."""

    out: Path | None = None
    field_map: str | None = None


@dataclass(frozen=True)
class ReplayOptions:
    """Which recorded executions run again, and what is otherwise than it was."""

    everything: Annotated[bool, typer.Option("--all", help="Replay every pair that was executed.")] = False
    sample: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --all: a random sample of N pairs.")] = (
        None
    )
    seed: Annotated[int, typer.Option(help="The sample's seed.")] = 0
    execution: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Which of the pair's executions [default: the last].")
    ] = None
    round: Annotated[int | None, typer.Option(min=0, metavar="N", help="Which round [default: the first].")] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Executions at once.")] = 4
    sandbox: Annotated[
        Sandboxes | None, typer.Option(help="Where programs run [default: where they ran in the run].")
    ] = None
    image: Image = None
    memory: Annotated[
        int | None, typer.Option(min=64, metavar="MB", help="What one sandbox may use [default: as in the run].")
    ] = None
    mount_ro: MountRo = None
    python: Python = None
    settings: Settings = None
    as_json: AsJson = False

    def configured(self) -> Mapping[str, Any]:
        """Return the options that are settings, by the settings' names."""
        return _given({f"sandbox.{_SANDBOX[name]}": getattr(self, name) for name in _SANDBOX})


@dataclass(frozen=True)
class ReviewOptions:
    """Which pairs a person reviews, and how the page is served."""

    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Review a random sample of N pairs [default: 100].")
    ] = None
    stratify: Annotated[
        str | None, typer.Option(metavar="FIELD,…", help="Strata of the sample [default: decided_by,label].")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Of the sample [default: 0].")] = None
    new_sample: Annotated[bool, typer.Option("--new-sample", help="Draw again, in place of an earlier sample.")] = False
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="undecided|disputed|low-confidence", help="For cleaning: these pairs, not a sample. Repeatable."
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Of the queue, only the first N pairs.")] = None
    blind: Annotated[bool, typer.Option(help="Hide label and evidence until a review is committed.")] = True
    reviewer: Annotated[str | None, typer.Option(metavar="NAME", help="Who reviews [default: your user name].")] = None
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0
    browser: Annotated[bool, typer.Option(help="Open the page where there is a desktop.")] = True
    as_json: AsJson = False


@dataclass(frozen=True)
class ListOptions:
    """Which annotations of a run are listed."""

    label: Annotated[Literal["1", "0", "null"] | None, typer.Option(help="List those with this label.")] = None
    errors: Annotated[bool, typer.Option("--errors", help="List those that ended in an error.")] = False
    status: Annotated[
        Literal["passed", "failed", "error", "timeout", "not_run"] | None,
        typer.Option(help="List those whose test ended so."),
    ] = None
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="List those whose query holds this text, in any case.")
    ] = None
    page: Annotated[int, typer.Option(min=1, metavar="N", help="The page of the list.")] = 1
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Pairs on a page.")] = 40

    def narrows(self) -> bool:
        """Say whether not every annotation is listed, whatever its query."""
        return self.label is not None or self.errors or self.status is not None

    def given(self) -> list[str]:
        """Return the options that were given and choose what is listed."""
        return [_flag(each.name) for each in fields(self) if getattr(self, each.name) != each.default]


_SANDBOX = {"image": "image", "memory": "memory_mb", "mount_ro": "mount_ro", "python": "python"}
_SETTINGS = {
    "sandbox.backend": "sandbox",
    **{f"sandbox.{setting}": name for name, setting in _SANDBOX.items()},
    "sandbox.requirements": "requirements",
    "sandbox.exclude_newer": "exclude_newer",
    "runner.concurrency": "concurrency",
    "runner.calls_per_minute": "calls_per_minute",
    "runner.tokens_per_minute": "tokens_per_minute",
    "runner.engine": "engine",
    "runner.address": "address",
    "runner.rounds": "rounds",
    "runner.budget_usd": "budget",
    "runner.batch": "batch",
    "runner.max_tokens_total": "max_tokens_total",
    "runner.deadline": "deadline",
    "pipeline.test_timeout": "timeout",
    "pipeline.pair_timeout": "pair_timeout",
    "pipeline.criterion": "criterion",
    "pipeline.abstain": "abstain",
    "pipeline.audit_screen": "audit_screen",
    "tracing.otel": "otel",
}
"""The options that are settings too."""


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter `options`, an option for each annotated field of that class."""
    own = inspect.signature(command)
    resolved = get_type_hints(command, include_extras=True)
    taken = resolved[_OBJECT]
    hints = get_type_hints(taken, include_extras=True)
    added = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(taken)
        if get_origin(hints[each.name]) is Annotated
    ]
    assert all(parameter.default is not MISSING for parameter in added)

    @functools.wraps(command)
    def taking(**given: Any) -> None:
        options = taken(**{parameter.name: given.pop(parameter.name) for parameter in added})
        command(**given, **{_OBJECT: options})

    kept = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=resolved[name])
        for name, parameter in own.parameters.items()
        if name != _OBJECT
    ]
    # typer reads the signature, and where it stands the annotations
    taking.__signature__ = inspect.Signature([*kept, *added])  # type: ignore[attr-defined]
    taking.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *added)}
    del taking.__wrapped__
    return taking


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
