"""Options that several commands share. A setting has an option only if many users change it. `-c` sets the others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agent.exports.registry import NAMES
from agent.retrieval.searchers.presets import Precision
from agent.sandbox.registry import CHOICES

if TYPE_CHECKING:
    Sandboxes = str
    Formats = str
else:
    Sandboxes, Formats = Literal[CHOICES], Literal[NAMES]

SETTINGS = {
    "base_url": "base_url",
    "prompts": "prompts",
    "cache": "cache",
    "variant": "variant",
    "concurrency": "runner.concurrency",
    "budget": "runner.budget_usd",
    "deadline": "runner.deadline",
    "batch": "runner.batch",
    "engine": "runner.engine",
    "address": "runner.address",
    "rounds": "runner.rounds",
    "criterion": "pipeline.criterion",
    "context": "pipeline.context",
    "timeout": "pipeline.test_timeout",
    "sandbox": "sandbox.backend",
    "python": "sandbox.python",
    "requirements": "sandbox.requirements",
    "checkouts": "sandbox.checkouts",
}
"""Settings that have an option of their own, keyed by the name of the option. `-c` sets all settings."""


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
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="Value for any setting, such as temperature=0.5; `-c help` lists the settings. Repeatable.",
        callback=_print_settings_on_help,
        is_eager=True,
    ),
]
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="Settings file that you trust.")]
Cache = Annotated[Path | None, typer.Option(help="File that caches model replies across runs.")]
Batch = Annotated[bool | None, typer.Option("--batch", help="Use OpenAI's Batch API, for half the price.")]
SandboxName = Annotated[Sandboxes | None, typer.Option(help="Sandbox backend [default: auto].")]
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
    typer.Option(metavar="FILE", help="File with the snippets of benchmarks that do not include them. Repeatable."),
]
Language = Annotated[
    str | None, typer.Option(help="Language of the snippets. Required if a benchmark has several languages.")
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
OnUnknownId = Annotated[
    Literal["fail", "skip"],
    typer.Option(help="What to do with a grade of a query or snippet that the benchmark does not contain."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


@dataclass(frozen=True)
class AccessOptions:
    """Options for access to embedding models. They have no effect on scores."""

    base_url: Annotated[str | None, typer.Option(help="Server for openai:MODEL [default: OPENAI_BASE_URL].")] = None
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf:NAME model contains.")
    ] = False


@dataclass(frozen=True)
class SearcherOptions(AccessOptions):
    """Options for searchers with an embedding model. The fields are those of `EmbedderOptions`."""

    pooling: Annotated[
        Literal["cls", "mean", "last", "own"] | None,
        typer.Option(help="Pooling for an hf:NAME model that has no built-in recipe."),
    ] = None
    query_prefix: Annotated[str | None, typer.Option(help="Text before each query [default: the model's].")] = None
    code_prefix: Annotated[str | None, typer.Option(help="Text before each snippet [default: the model's].")] = None


@dataclass(frozen=True)
class LocalModelOptions(SearcherOptions):
    """Options for searchers, including those with a model that runs on this machine."""

    precision: Annotated[
        Precision, typer.Option(help="Precision of models that run on this machine. `auto` chooses the fastest one.")
    ] = "float32"
    max_tokens: Annotated[
        int | None, typer.Option(min=4, help="Maximum number of tokens per text [default: the model's limit].")
    ] = None


@dataclass(frozen=True)
class SettingOptions:
    """Options for settings: those of the fields that `SETTINGS` lists, and `-c` for all settings."""

    settings_file: SettingsFile = None
    assignments: Assignments = None

    def collect_values(self) -> dict[str, Any]:
        """Return the settings that have been set by their own options."""
        return {SETTINGS[name]: value for name, value in vars(self).items() if name in SETTINGS and value is not None}

    def collect_flags(self) -> dict[str, str]:
        """Return the flag of each setting on the command line, or `-c` with the setting's name."""
        flag_of = {setting: f"--{name.replace('_', '-')}" for name, setting in SETTINGS.items()}
        assigned = [assignment.partition("=")[0].strip() for assignment in self.assignments or ()]
        flags = {setting: flag_of[setting] for setting in self.collect_values()}
        return {**flags, **{setting: f"-c {setting}" for setting in assigned}}


@dataclass(frozen=True)
class ServerOptions(SettingOptions):
    """Options for models."""

    model: Models = None
    base_url: Annotated[str | None, typer.Option(help="URL of the model server, ending in /v1.")] = None


@dataclass(frozen=True)
class ImportOptions(ServerOptions):
    """Options for `agent requests import`."""

    cache: Cache = None


@dataclass(frozen=True)
class CallOptions(ServerOptions):
    """Options for models and model calls."""

    prompts: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder with your own prompt templates.")] = (
        None
    )
    cache: Cache = None
    concurrency: Annotated[str | None, typer.Option(help="Pairs in progress at a time [default: auto].")] = None
    budget: Annotated[float | None, typer.Option(help="Maximum cost of the run in US dollars.")] = None
    deadline: Annotated[str | None, typer.Option(help="When to stop, such as 8h or 07:30.")] = None


@dataclass(frozen=True)
class ExecOptions(SettingOptions):
    """Options for `agent exec`."""

    sandbox: SandboxName = None
    python: Annotated[str | None, typer.Option(help="Python version that runs programs, such as 3.9.")] = None
    requirements: Annotated[str | None, typer.Option(help="File with packages for all programs.")] = None
    timeout: Annotated[float | None, typer.Option(help="Seconds per execution of a program [default: 15].")] = None


@dataclass(frozen=True)
class EnvOptions(SettingOptions):
    """Options for `agent env`."""

    sandbox: SandboxName = None


@dataclass(frozen=True)
class RunOptions(ExecOptions, CallOptions):
    """Options for models, sandboxes, pairs and the run folder."""

    batch: Batch = None
    engine: Annotated[Literal["local", "ray"] | None, typer.Option(help="Annotate here, or in Ray workers.")] = None
    address: Annotated[str | None, typer.Option(help="Ray cluster: HOST:6379 or auto [default: new].")] = None
    checkouts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with git clones of the pairs' repositories.")
    ] = None
    rounds: Annotated[int | None, typer.Option(help="Rounds per pair; the majority wins [default: 1].")] = None
    criterion: Annotated[Literal["exact", "half"] | None, typer.Option(help="Match all of the query, or half.")] = None
    context: Annotated[Literal["none", "module"] | None, typer.Option(help="Test alone, or in its own module.")] = None
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

    variant: Annotated[str | None, typer.Option(help="Variant, as in `agent graph` [default: full].")] = None


@dataclass(frozen=True)
class ExportOptions(AnnotateOptions):
    """Options for `agent requests export`, which sends no request and has no run folder."""

    budget: float | None = None
    deadline: str | None = None
    batch: bool | None = None
    engine: Literal["local", "ray"] | None = None
    address: str | None = None
    retry_errors: bool = False
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write (required).")] = None


@dataclass(frozen=True)
class PoolOptions(AnnotateOptions):
    """Options for annotating the pool of a retrieval folder, that is, the top results that have no grade yet.

    The retrieval folder determines the run folder and the pairs.
    """

    out: Path | None = None
    field_map: str | None = None
    on_bad_line: Literal["fail", "skip"] = "fail"


@dataclass(frozen=True)
class ReplayOptions(SettingOptions):
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
class PreferOptions(PageOptions, CallOptions):
    """Options for `agent prefer`. Without a model, a person chooses on the review page."""

    batch: Batch = None
    field_map: Map = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the choices [default: runs/prefer-A-B].")
    ] = None
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Compare the snippets of N random queries.")] = 1000
    seed: Annotated[int, typer.Option(help="Random seed for queries, snippets and their order.")] = 0
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
            metavar="FIELD,…",
            help="Fields that define the strata of the sample, or evidence [default: decided_by,label].",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Random seed for the sample [default: 0].")] = None
    new_sample: Annotated[bool, typer.Option("--new-sample", help="Replace the current sample with a new one.")] = False
    queries: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Review N whole queries in a random order. For runs of `agent retrieval judge`, whose searchers "
            "`agent retrieval score --reviews` then scores.",
        ),
    ] = None
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="undecided|disputed",
            help="Kind of pairs to review instead of a sample, in order to correct labels. Repeatable.",
        ),
    ] = None
    only: Annotated[
        Literal["generated", "equivalents"] | None,
        typer.Option(
            help="Review only matches with generated code, or the proposed pairs of `agent corpus equivalents`."
        ),
    ] = None
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
    per_page: Annotated[int, typer.Option(min=1, metavar="N", help="Number of annotations per page.")] = 40

    def list_changed_flags(self) -> list[str]:
        """Return the flags of the options that differ from their defaults."""
        return [
            f"--{option.name.replace('_', '-')}"
            for option in fields(self)
            if getattr(self, option.name) != option.default
        ]


@dataclass(frozen=True)
class TrainOptions:
    """Options for `agent train`. Fields that are also in `Hyperparameters` override the defaults of the recipe."""

    base: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model to start from: minilm, a folder, or a name on the Hub.")
    ] = None
    pairs: Annotated[
        Literal["labels", "docstrings"],
        typer.Option(help="Labelled pairs, or the docstring of each snippet with the rest of the snippet."),
    ] = "labels"
    field_map: Map = None
    codes: Codes = None
    language: Annotated[str | None, typer.Option(help="Language of the snippets [default: all languages].")] = None
    validation: Annotated[
        Path | None, typer.Option(metavar="BENCHMARK", help="Selects the best epoch [default: the split's own].")
    ] = None
    test: Annotated[
        list[Path] | None, typer.Option(metavar="BENCHMARK", help="Benchmark to check for leaks, and to measure.")
    ] = None
    hard_negatives: Annotated[
        str | None, typer.Option(metavar="N|none", help="Snippets with label 0 for each relevant snippet.")
    ] = None
    epochs: Annotated[int | None, typer.Option(min=0, help="Maximum number of epochs; 0 does not train.")] = None
    batch_size: Annotated[int | None, typer.Option(min=2, help="Number of rows per batch.")] = None
    mini_batch: Annotated[int | None, typer.Option(min=1, help="Number of texts to embed at once.")] = None
    learning_rate: Annotated[float | None, typer.Option(min=0, max=100, help="Highest learning rate.")] = None
    warmup: Annotated[float | None, typer.Option(min=0, max=1, help="Share of steps in which the rate rises.")] = None
    max_tokens: Annotated[int | None, typer.Option("--text-tokens", min=4, help="Maximum length of a text.")] = None
    precision: Annotated[
        Precision | None, typer.Option(help="Precision of the model [default: auto, the fastest on this machine].")
    ] = None
    pooling: Annotated[
        Literal["cls", "mean", "last"] | None, typer.Option(help="How token vectors become the vector of a text.")
    ] = None
    in_batch: Annotated[bool | None, typer.Option(help="Use other snippets of a batch as negatives (siamese).")] = None
    rewrite: Annotated[
        Literal["none", "delete", "copy", "switch"] | None, typer.Option(help="How queries are rewritten (siamese).")
    ] = None
    temperature: Annotated[
        float | None, typer.Option("--softmax-temperature", min=1e-4, max=100, help="Divisor of cosine similarities.")
    ] = None
    alpha: Annotated[float | None, typer.Option(min=0, max=10, help="Exponent α for languages (macp).")] = None
    contrast: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Mutants to tell from right code (biencoder, macp).")
    ] = None
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="Metric of the best epoch, such as RR@10.")] = None
    best: Annotated[
        Literal["trained", "any"] | None, typer.Option(help="Whether the untrained model may be the best epoch.")
    ] = None
    mix: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, metavar="W", help="Share of the trained weights, with the rest from the base."),
    ] = None
    patience: Annotated[int | None, typer.Option(min=1, help="Epochs without improvement until the end.")] = None
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Seed of weights, batches and dropout.")] = None
    drop_leaks: Annotated[bool, typer.Option("--drop-leaks", help="Leave out pairs with held-out texts.")] = False
    allow_leaks: Annotated[bool, typer.Option("--allow-leaks", help="Train on held-out texts.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print data, leaks and steps without training.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace the model of another training.")] = False
    as_json: AsJson = False
