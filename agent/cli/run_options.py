"""The options of commands that annotate, written once: a command takes them as one object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from agent.cli.options import (
    AsJson,
    BaseUrl,
    EraName,
    ExcludeNewer,
    Image,
    Memory,
    Models,
    MountRo,
    Python,
    Requirements,
    SandboxName,
    Settings,
)

_OBJECT = "options"


@dataclass(frozen=True)
class RunOptions:
    """What model annotates, where programs run, how much of it, and where it is kept."""

    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where it is kept [default: a folder in runs/].")] = (
        None
    )
    model: Models = None
    base_url: BaseUrl = None
    criterion: Annotated[
        Literal["exact", "half"] | None,
        typer.Option(help="What label 1 takes: the whole demand, or half of it [default: exact]."),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Annotate each pair so often; the majority counts [default: 1]."),
    ] = None
    sandbox: SandboxName = "auto"
    image: Image = None
    memory: Memory = None
    mount_ro: MountRo = None
    requirements: Requirements = None
    exclude_newer: ExcludeNewer = None
    python: Python = None
    era: EraName = "run"
    concurrency: Annotated[int, typer.Option(min=1, help="Pairs in progress at once.")] = 8
    timeout: Annotated[float, typer.Option(min=0.1, max=86400, help="Seconds for one execution of a test program.")] = (
        15.0
    )
    pair_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=86400, help="Seconds for one pair, all in all.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Annotate only the first N pairs.")] = None
    budget: Annotated[float | None, typer.Option(min=1e-6, metavar="USD", help="Stop before spending more.")] = None
    field_map: Annotated[
        str | None, typer.Option("--map", metavar="query=FIELD,code=FIELD", help="Names of the input's own fields.")
    ] = None
    on_bad_line: Annotated[Literal["fail", "skip"], typer.Option(help="What to do with malformed lines.")] = "fail"
    unsupported: Annotated[
        Literal["fail", "judge", "skip"], typer.Option(help="Pairs of a language that cannot be run here.")
    ] = "fail"
    retry_errors: Annotated[bool, typer.Option(help="Try pairs again that ended in an error before.")] = False
    cache: Annotated[Path, typer.Option(help="Keeps the model's replies over runs.")] = Path("runs/cache.sqlite")
    prompts: Annotated[Path | None, typer.Option(help="A folder of templates that replace the built-in ones.")] = None
    prices: Annotated[Path | None, typer.Option(help="A file of prices that adds to the built-in ones.")] = None
    reply_format: Annotated[
        Literal["json_object", "json_schema", "text"], typer.Option(help="How JSON is asked of the server.")
    ] = "json_object"
    thinking: Annotated[Literal["on", "off"] | None, typer.Option(help="Switch a model's reasoning.")] = None
    temperature: Annotated[float | None, typer.Option(help="Sent only when given.")] = None
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest reply.")] = None
    extra_body: Annotated[str | None, typer.Option(metavar="JSON", help="More fields of every request.")] = None
    deadline: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one try of a model call.")] = None
    attempts: Annotated[int | None, typer.Option(min=1, help="Tries of a model call on passing failures.")] = None
    settings: Settings = None
    as_json: AsJson = False

    def model_options(self) -> dict[str, Any]:
        """Return how models are reached, as `Models.from_options` takes it."""
        names = ("base_url", "prices", "reply_format", "thinking", "temperature", "max_tokens", "extra_body")
        return _given({name: getattr(self, name) for name in (*names, "deadline", "attempts")})

    def configured(self) -> Mapping[str, Any]:
        """Return the options that are settings, by the settings' names."""
        return _given(
            {
                "sandbox.backend": self.sandbox,
                "sandbox.image": self.image,
                "sandbox.memory_mb": self.memory,
                "sandbox.mount_ro": self.mount_ro,
                "sandbox.requirements": self.requirements and str(self.requirements),
                "sandbox.exclude_newer": self.exclude_newer,
                "sandbox.python": self.python,
                "sandbox.era": self.era,
                "runner.concurrency": self.concurrency,
                "runner.rounds": self.rounds,
                "runner.budget_usd": self.budget,
                "pipeline.test_timeout": self.timeout,
                "pipeline.pair_timeout": self.pair_timeout,
                "pipeline.criterion": self.criterion,
            }
        )


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter `options`, an option for each field of `RunOptions`."""
    own = inspect.signature(command)
    hints = get_type_hints(RunOptions, include_extras=True)
    added = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(RunOptions)
    ]
    assert all(parameter.default is not MISSING for parameter in added)

    @functools.wraps(command)
    def taking(**given: Any) -> None:
        options = RunOptions(**{field.name: given.pop(field.name) for field in fields(RunOptions)})
        command(**given, **{_OBJECT: options})

    resolved = get_type_hints(command, include_extras=True)
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


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
