"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent.sandbox.registry import CHOICES

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
else:
    Sandboxes = Literal[CHOICES]
SandboxName = Annotated[Sandboxes, typer.Option("--sandbox", help="Where programs run.")]
RecordedSandbox = Annotated[
    Sandboxes | None,
    typer.Option("--sandbox", help="Where programs run [default: where they ran in the run]."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="Any setting, such as sandbox.memory_mb=512. Repeatable."),
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
    str | None, typer.Option(metavar="DATE", help="Take no wheel that was uploaded later; the index must tell when.")
]
Python = Annotated[str | None, typer.Option(metavar="VERSION", help="The Python that runs programs, such as 3.9.")]
EraName = Annotated[
    Literal["run", "pair"], typer.Option("--era", help="pair: for pairs with a field `year`, its Python and packages.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on standard output.")]
