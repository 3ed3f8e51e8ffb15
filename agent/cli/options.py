"""Options that several commands share. An option for a setting declares only its flag and the setting."""

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
CALL_FLAGS = {
    **MODEL_FLAGS,
    "--attempts": "attempts",
    "--prices": "prices",
    "--prompts": "prompts",
    "--cache": "cache",
    "--concurrency": "runner.concurrency",
    "--calls-per-minute": "runner.calls_per_minute",
    "--tokens-per-minute": "runner.tokens_per_minute",
    "--budget": "runner.budget_usd",
    "--max-tokens-total": "runner.max_tokens_total",
    "--deadline": "runner.deadline",
}
RUN_FLAGS = {
    **CALL_FLAGS,
    **SANDBOX_FLAGS,
    **PACKAGE_FLAGS,
    "--criterion": "pipeline.criterion",
    "--timeout": "pipeline.test_timeout",
    "--pair-timeout": "pipeline.pair_timeout",
    "--audit-screen": "pipeline.audit_screen",
    "--rounds": "runner.rounds",
    "--engine": "runner.engine",
    "--address": "runner.address",
    "--batch": "runner.batch",
    "--otel/--no-otel": "tracing.otel",
}
"""Settings, keyed by flag. The type, bounds, default and help text of an option are taken from the setting's field."""


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
        help="Model: a name on the server at --base-url, `heuristic`, or `replay:FILE`. Prepend a role to set the "
        "model for that role only, as in screen=NAME. Repeatable.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Value for any setting, such as sandbox.memory_mb=512; `-c help` lists the settings. Repeatable.",
        callback=_print_settings_on_help,
        is_eager=True,
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings file that you trust. It overrides your own settings file and those in the working folder.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NODE", help="Node to remove from the variant, or to replace with its simpler counterpart. Repeatable."
    ),
]
PairsFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="PAIRS",
        help="Files with pairs (.jsonl, .json, .csv, .tsv or .parquet, optionally .gz), folders with Hugging Face "
        "datasets, or patterns such as 'more/*.jsonl'. Pass - to read JSON Lines from standard input.",
    ),
]
Codes = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="File with the codes of benchmarks that do not include them. Repeatable."),
]
Language = Annotated[
    str | None, typer.Option(help="Language of the codes. Required if a benchmark has several languages.")
]
Split = Annotated[str | None, typer.Option(help="Split to read from a folder with splits [default: test].")]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="query=FIELD,code=FIELD,…",
        help="Names of the input fields that contain the query, code, id, language, context and label.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


@dataclass(frozen=True)
class SearcherOptions:
    """Options for searchers with an embedding model. The fields are those of `EmbedderOptions`."""

    base_url: Annotated[
        str | None, typer.Option(help="URL of the server for openai:MODEL [default: OPENAI_BASE_URL].")
    ] = None
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf:NAME model contains.")
    ] = False
    pooling: Annotated[
        Literal["cls", "mean", "last", "own"] | None,
        typer.Option(help="Pooling for an hf:NAME model that has no built-in recipe."),
    ] = None
    query_prefix: Annotated[
        str | None,
        typer.Option(
            help="Text that an embedding model receives before each query [default: from the model or its recipe]."
        ),
    ] = None
    code_prefix: Annotated[
        str | None,
        typer.Option(
            help="Text that an embedding model receives before each snippet [default: from the model or its recipe]."
        ),
    ] = None


@dataclass(frozen=True)
class SettingOptions:
    """Options for settings.

    `flags` maps each flag to its setting. `values` maps settings to the values from the command line.
    """

    flags: ClassVar[Mapping[str, str]] = {}
    default: ClassVar[str | None] = None
    """The default to print in help texts instead of the field's default."""

    values: Mapping[str, Any] = field(default_factory=dict)
    settings_file: SettingsFile = None

    @property
    def assignments(self) -> list[str]:
        """The values of `-c`."""
        return []

    def collect_flags(self) -> dict[str, str]:
        """Return the flag of each setting on the command line, or `-c` with the setting's name."""
        flags = {setting: flag.partition("/")[0] for flag, setting in self.flags.items() if setting in self.values}
        assigned = [assignment.partition("=")[0].strip() for assignment in self.assignments]
        return {**flags, **{setting: f"-c {setting}" for setting in assigned}}


@dataclass(frozen=True)
class ConfigOptions(SettingOptions):
    """Options for some settings, and `-c` for all settings."""

    settings: Settings = None

    @property
    def assignments(self) -> list[str]:
        """The values of `-c`."""
        return self.settings or []


@dataclass(frozen=True)
class ModelOptions(SettingOptions):
    """Options for models and model calls."""

    flags: ClassVar[Mapping[str, str]] = MODEL_FLAGS
    model: Models = None


@dataclass(frozen=True)
class ImportOptions(ModelOptions):
    """Options for `agent requests import`."""

    flags: ClassVar[Mapping[str, str]] = {**MODEL_FLAGS, "--prices": "prices", "--cache": "cache"}


@dataclass(frozen=True)
class AnswerOptions(ModelOptions):
    """Options for `agent corpus answer`."""

    flags: ClassVar[Mapping[str, str]] = {flag: CALL_FLAGS[flag] for flag in CALL_FLAGS if flag != "--reply-format"}
    language: Annotated[str | None, typer.Option(help="Language of the questions [default: all].")] = None
    split: Annotated[str, typer.Option(help="Split with the questions.")] = "test"
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Ask only the first N questions.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output file.")] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class ExecOptions(ConfigOptions):
    """Options for `agent exec`."""

    flags: ClassVar[Mapping[str, str]] = {**SANDBOX_FLAGS, **PACKAGE_FLAGS, "--timeout": "pipeline.test_timeout"}


@dataclass(frozen=True)
class EnvOptions(ConfigOptions):
    """Options for `agent env`."""

    flags: ClassVar[Mapping[str, str]] = {"--sandbox": "sandbox.backend"}


@dataclass(frozen=True)
class RunOptions(ModelOptions, ConfigOptions):
    """Options for models, sandboxes, pairs and the run folder."""

    flags: ClassVar[Mapping[str, str]] = RUN_FLAGS
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder [default: a folder in runs/ that is named after the pairs]."),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Annotate only the first N pairs.")] = None
    field_map: Map = None
    on_bad_line: Annotated[Literal["fail", "skip"], typer.Option(help="How to handle malformed lines.")] = "fail"
    unsupported: Annotated[
        Literal["fail", "judge", "skip"], typer.Option(help="How to handle pairs whose language cannot be executed.")
    ] = "fail"
    retry_errors: Annotated[bool, typer.Option(help="Retry pairs that ended in an error.")] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class AnnotateOptions(RunOptions):
    """Options for a run of one variant."""

    flags: ClassVar[Mapping[str, str]] = {"--variant": "variant", **RUN_FLAGS}


@dataclass(frozen=True)
class ExportOptions(AnnotateOptions):
    """Options for `agent requests export`."""

    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write (required).")] = None


@dataclass(frozen=True)
class PoolOptions(AnnotateOptions):
    """Options for annotating the pool of a retrieval folder, that is, the top results that have no grade yet.

    The retrieval folder determines the run folder and the input fields.
    """

    out: Path | None = None
    field_map: str | None = None


@dataclass(frozen=True)
class FillOptions(PoolOptions):
    """Options for `agent corpus fill`, which tests each code once and has its own --variant and --attempts."""

    flags: ClassVar[Mapping[str, str]] = {k: v for k, v in RUN_FLAGS.items() if k not in ("--attempts", "--rounds")}
    limit: Annotated[int | None, typer.Option(min=1, help="Fill only the first N queries without a match.")] = None
    on_bad_line: Literal["fail", "skip"] = "fail"
    unsupported: Literal["fail", "judge", "skip"] = "fail"


@dataclass(frozen=True)
class ReplayOptions(ConfigOptions):
    """Options for `agent replay`."""

    settings_file: Path | None = None
    concurrency: Annotated[int, typer.Option(min=1, help="Number of parallel executions.")] = 4
    as_json: AsJson = False


@dataclass(frozen=True)
class PageOptions:
    """Options for commands that serve the review page."""

    reviewer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the reviewer [default: your user name].")
    ] = None
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 selects a free port.")] = 0
    browser: Annotated[bool, typer.Option(help="Open the page in a browser if a desktop is available.")] = True
    as_json: AsJson = False


@dataclass(frozen=True)
class PreferOptions(PageOptions, ModelOptions, ConfigOptions):
    """Options for `agent prefer`. Without a model, a person chooses on the review page."""

    flags: ClassVar[Mapping[str, str]] = {
        flag: name for flag, name in RUN_FLAGS.items() if not name.startswith(("pipeline", "sandbox", "runner.rounds"))
    }
    field_map: Map = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the choices [default: runs/prefer-A-B].")
    ] = None
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Compare the codes of N random queries.")] = 1000
    seed: Annotated[int, typer.Option(help="Random seed for the queries, the codes and their order.")] = 0
    retry_errors: Annotated[bool, typer.Option(help="Ask the model again where it ended in an error.")] = False


@dataclass(frozen=True)
class ReviewOptions(PageOptions):
    """Options for `agent review`."""

    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Review a random sample of N pairs [default: 100].")
    ] = None
    stratify: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD,…", help="Fields that define the strata of the sample [default: decided_by,label]."
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Random seed for the sample [default: 0].")] = None
    new_sample: Annotated[bool, typer.Option("--new-sample", help="Replace the current sample with a new one.")] = False
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="undecided|disputed",
            help="Kind of pairs to review instead of a sample, in order to correct labels. Repeatable.",
        ),
    ] = None
    only: Annotated[Literal["generated"] | None, typer.Option(help="Review only matches with generated code.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Review only the first N pairs of the --queue.")] = None
    blind: Annotated[bool, typer.Option(help="Hide the label and the evidence until you commit a review.")] = True


@dataclass(frozen=True)
class ListOptions:
    """Options that filter the list of a run's annotations."""

    label: Annotated[Literal["1", "0", "null"] | None, typer.Option(help="List only annotations with this label.")] = (
        None
    )
    errors: Annotated[bool, typer.Option("--errors", help="List only annotations that ended in an error.")] = False
    status: Annotated[
        Literal["passed", "failed", "error", "timeout", "not_run"] | None,
        typer.Option(help="List only annotations whose test has this status."),
    ] = None
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="List only pairs whose query contains this text, ignoring case.")
    ] = None
    page: Annotated[int, typer.Option(min=1, metavar="N", help="Page of the list to print.")] = 1
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Number of annotations per page.")] = 40

    def list_changed_flags(self) -> list[str]:
        """Return the flags of the options that differ from their defaults."""
        return [f"--{option.name}" for option in fields(self) if getattr(self, option.name) != option.default]
