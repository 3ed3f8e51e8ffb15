"""The options that several commands share. An option that is a setting names only its flag and its setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from agent.exports.registry import NAMES
from agent.sandbox.registry import CHOICES

if TYPE_CHECKING:
    Sandboxes = str
    Formats = str
else:
    Sandboxes, Formats = Literal[CHOICES], Literal[NAMES]

MODEL_FLAGS = {
    "--base-url": "base_url",
    "--reply-format": "reply_format",
    "--thinking": "thinking",
    "--temperature": "temperature",
    "--max-tokens": "max_tokens",
    "--extra-body": "extra_body",
    "--call-timeout": "call_timeout",
}
SANDBOX_FLAGS = {
    "--sandbox": "sandbox.backend",
    "--image": "sandbox.image",
    "--memory": "sandbox.memory_mb",
    "--mount-ro": "sandbox.mount_ro",
    "--python": "sandbox.python",
}
PACKAGE_FLAGS = {"--requirements": "sandbox.requirements", "--exclude-newer": "sandbox.exclude_newer"}
RUN_FLAGS = {
    **MODEL_FLAGS,
    "--attempts": "attempts",
    "--prices": "prices",
    "--prompts": "prompts",
    "--cache": "cache",
    **SANDBOX_FLAGS,
    **PACKAGE_FLAGS,
    "--criterion": "pipeline.criterion",
    "--timeout": "pipeline.test_timeout",
    "--pair-timeout": "pipeline.pair_timeout",
    "--abstain": "pipeline.abstain",
    "--audit-screen": "pipeline.audit_screen",
    "--rounds": "runner.rounds",
    "--concurrency": "runner.concurrency",
    "--calls-per-minute": "runner.calls_per_minute",
    "--tokens-per-minute": "runner.tokens_per_minute",
    "--engine": "runner.engine",
    "--address": "runner.address",
    "--budget": "runner.budget_usd",
    "--max-tokens-total": "runner.max_tokens_total",
    "--deadline": "runner.deadline",
    "--batch": "runner.batch",
    "--otel/--no-otel": "tracing.otel",
}
"""The setting that each option sets. Type, bounds, default and help text are those of the setting's field."""


def _print_settings_on_help(settings: list[str] | None) -> list[str] | None:
    if "help" in (settings or ()):
        from agent.cli.reference import print_settings

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
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Any setting, such as sandbox.memory_mb=512; `-c help` lists them. Repeatable.",
        callback=_print_settings_on_help,
        is_eager=True,
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
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


@dataclass(frozen=True)
class SettingOptions:
    """Options of a command that are settings.

    `flags` maps each flag to its setting. `given` has the values from the command line, by setting.
    """

    flags: ClassVar[Mapping[str, str]] = {}
    default: ClassVar[str | None] = None
    """What the help texts name as the default, if it is not the field's."""

    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def assignments(self) -> list[str]:
        """The values of `-c`."""
        return []

    def collect_flags(self) -> dict[str, str]:
        """Return how each setting of the command line was given: its flag, or `-c`."""
        flags = {setting: flag.partition("/")[0] for flag, setting in self.flags.items() if setting in self.values}
        assigned = [assignment.partition("=")[0].strip() for assignment in self.assignments]
        return {**flags, **{setting: f"-c {setting}" for setting in assigned}}


@dataclass(frozen=True)
class ConfigOptions(SettingOptions):
    """Options that are settings, with `-c` for the others."""

    settings: Settings = None

    @property
    def assignments(self) -> list[str]:
        """The values of `-c`."""
        return self.settings or []


@dataclass(frozen=True)
class ModelOptions(SettingOptions):
    """Which models are asked, and how."""

    flags: ClassVar[Mapping[str, str]] = MODEL_FLAGS
    model: Models = None


@dataclass(frozen=True)
class ImportOptions(ModelOptions):
    """Whose replies are imported, and where to."""

    flags: ClassVar[Mapping[str, str]] = {**MODEL_FLAGS, "--prices": "prices", "--cache": "cache"}


@dataclass(frozen=True)
class ExecOptions(ConfigOptions):
    """Where one program runs."""

    flags: ClassVar[Mapping[str, str]] = {**SANDBOX_FLAGS, **PACKAGE_FLAGS, "--timeout": "pipeline.test_timeout"}


@dataclass(frozen=True)
class EnvOptions(ConfigOptions):
    """Whose environments are meant."""

    flags: ClassVar[Mapping[str, str]] = {"--sandbox": "sandbox.backend"}


@dataclass(frozen=True)
class RunOptions(ModelOptions, ConfigOptions):
    """Which models annotate, where programs run, which pairs, and where results go."""

    flags: ClassVar[Mapping[str, str]] = RUN_FLAGS
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder [default: a new one in runs/].")] = (
        None
    )
    limit: Annotated[int | None, typer.Option(min=1, help="Annotate only the first N pairs.")] = None
    field_map: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="query=FIELD,code=FIELD,…",
            help="The input's own names of query, code, id, language, context, and of label (gold).",
        ),
    ] = None
    on_bad_line: Annotated[Literal["fail", "skip"], typer.Option(help="What to do with malformed lines.")] = "fail"
    unsupported: Annotated[
        Literal["fail", "judge", "skip"], typer.Option(help="What to do with pairs of a language that cannot run here.")
    ] = "fail"
    retry_errors: Annotated[bool, typer.Option(help="Annotate pairs again that ended in an error.")] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class AnnotateOptions(RunOptions):
    """The options of a run of one variant."""

    flags: ClassVar[Mapping[str, str]] = {"--variant": "variant", **RUN_FLAGS}


@dataclass(frozen=True)
class PoolOptions(AnnotateOptions):
    """How a pool of a retrieval folder is annotated. The folder decides files and fields, so they are no options."""

    out: Path | None = None
    field_map: str | None = None


@dataclass(frozen=True)
class ReplayOptions(ConfigOptions):
    """Which recorded executions run again, and what differs from the recording."""

    flags: ClassVar[Mapping[str, str]] = SANDBOX_FLAGS
    default: ClassVar[str | None] = "as in the run"
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
    as_json: AsJson = False


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

    def list_changed(self) -> list[str]:
        """Return the options that were given and choose what is listed."""
        return [f"--{option.name}" for option in fields(self) if getattr(self, option.name) != option.default]
