"""What users and programs build on stays: names, signatures, commands, options, settings, JSON keys, exit codes.

`python -m tests.test_contract` writes `contract.json` anew after a deliberate change; CHANGELOG.md names the change.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from typer.core import TyperGroup

import agent
from agent import errors
from agent.cli import DONE, SOME_ERRORS, STOPPED, WRONG_USAGE, exit_code
from agent.cli.app import app
from agent.config import collect_setting_fields
from agent.settings import Settings
from tests.cli.commands import Commands, serving
from tests.retrieval.pooled import make_folder, write_benchmark

CONTRACT = Path(__file__).with_name("contract.json")
EXAMPLES = Path(__file__).parents[1] / "examples"
OUTPUTS = (
    "annotate pairs.jsonl --model replay:replies.jsonl -o run --sandbox bwrap --limit 3",
    "annotate pairs.jsonl --model heuristic -o dry --dry-run",
    "ablate pairs.jsonl --gold gold.jsonl --model heuristic -o ablation --variants single_llm,ps_fa --sandbox bwrap",
    "exec program.py --sandbox bwrap",
    "doctor --quick --sandbox bwrap",
    "graph",
    "graph full",
    "show run",
    "show run chunks",
    "replay run chunks",
    "replay run --all",
    "score run --gold gold.jsonl",
    "report run -o report.html",
    "export run --to csv",
    "schema labels",
    "schema annotations",
    "env list --sandbox bwrap",
    "env prune --dry-run --sandbox bwrap",
    "runs list run",
    "runs verify run",
    "annotate a.jsonl --model heuristic --variant single_llm -o a",
    "annotate b.jsonl --model heuristic --variant single_llm -o b",
    "runs merge a b -o merged",
    "requests export pairs.jsonl -o asked.jsonl --variant ps_fa --model m --base-url http://[::1]:9 --cache c.sqlite",
    "requests import answers.jsonl --model m --cache c.sqlite",
    "retrieval run queries.jsonl --codes codes.jsonl -o r --searcher bow --searcher bm25",
    "retrieval score r",
    "retrieval compare r",
    "retrieval judge pooled/retrieval --depth 2 --model heuristic --variant single_llm",
)
"""The commands that print JSON, in an order in which each has what it reads (`review` serves a page)."""


def public(module: str, value: Any) -> Any:
    """Return a public name's parameters, and the members of a class or module."""
    if isinstance(value, ModuleType):
        return {name: members(each) for name, each in vars(value).items() if getattr(each, "__module__", "") == module}
    return {"parameters": parameters(value), "members": members(value)}


def parameters(function: Any) -> list[str]:
    """Return names and defaults; a keyword-only one begins with `*`. Annotations may change."""
    taken = []
    for each in inspect.signature(function).parameters.values():
        prefix = "*" if each.kind is each.KEYWORD_ONLY else "**" if each.kind is each.VAR_KEYWORD else ""
        plain = each.default is None or isinstance(each.default, bool | int | float | str | tuple)
        default = f"={each.default!r}" if plain else "=..."
        taken.append(f"{prefix}{each.name}{'' if each.default is each.empty else default}")
    return taken


def members(kind: Any) -> list[str]:
    if not isinstance(kind, type):
        return []
    base = {*dir(BaseModel)} if issubclass(kind, BaseModel) else {*dir(Exception)}
    return sorted(name for name in {*dir(kind), *getattr(kind, "model_fields", ())} - base if not name.startswith("_"))


def commands(group: TyperGroup, path: str = "") -> Iterator[tuple[str, list[str]]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{path}{name} ")
        else:
            words = [word for each in command.get_params(context) for word in (*each.opts, *each.secondary_opts)]
            yield f"{path}{name}", sorted({*words} - {"-h", "--help"})


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each key, as in `searchers[].name`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}".lstrip(".")
            yield from keys(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, f"{path}[]")


def below(kind: type[errors.AgentError]) -> Iterator[type[errors.AgentError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def interface() -> dict[str, Any]:
    """Return everything but the outputs as it is now."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        "python": {name: public(f"agent.{name}", getattr(agent, name)) for name in sorted(agent.__all__)},
        "commands": dict(commands(group)),
        "settings": sorted(collect_setting_fields(Settings)),
        "exit codes": {
            "done": DONE,
            "some errors": SOME_ERRORS,
            "wrong usage": WRONG_USAGE,
            "stopped": STOPPED,
            **{each.__name__: exit_code(each.__new__(each)) for each in below(errors.AgentError)},
        },
    }


def outputs(folder: Path) -> dict[str, list[str]]:
    """Run the commands in a folder; return the keys of what each prints, and of the lines of a run's files."""
    write_inputs(folder)
    command = Commands(folder)
    printed = {}
    for line in OUTPUTS:
        ended = command(*line.split(), "--json")
        assert ended.code in (DONE, SOME_ERRORS), f"{line}: {ended.err}"
        printed[line] = sorted(set(keys(ended.json)))
    for name in ("labels.jsonl", "annotations.jsonl"):
        lines = [json.loads(line) for line in (folder / "run" / name).read_text().splitlines()]
        printed[name] = sorted(set(keys(lines)))
    return printed


def write_inputs(folder: Path) -> None:
    wanted = ("clear-match", "clear-non-match", "chunks")
    pairs = [line for line in (EXAMPLES / "pairs.jsonl").read_text().splitlines() if json.loads(line)["id"] in wanted]
    (folder / "pairs.jsonl").write_text("".join(f"{line}\n" for line in pairs))
    for name, pair in zip("ab", pairs, strict=False):
        (folder / f"{name}.jsonl").write_text(f"{pair}\n")
    (folder / "gold.jsonl").write_text("".join(f'{{"id": "{name}", "label": 1}}\n' for name in wanted))
    (folder / "replies.jsonl").write_text((EXAMPLES / "replies.jsonl").read_text())
    (folder / "program.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    (folder / "answers.jsonl").write_text('{"custom_id": "another", "response": {"status_code": 200, "body": {}}}\n')
    write_benchmark(folder)
    (folder / "pooled").mkdir()
    make_folder(folder / "pooled")


def held() -> dict[str, Any]:
    return dict(json.loads(CONTRACT.read_text()))


@pytest.mark.parametrize("part", ["python", "commands", "settings", "exit codes"])
def test_the_interface_matches_the_contract(part: str) -> None:
    assert interface()[part] == held()[part]


@pytest.mark.bwrap
@pytest.mark.usefixtures("commands")
def test_every_output_matches_the_contract(tmp_path: Path) -> None:
    assert outputs(tmp_path) == held()["outputs"]


if __name__ == "__main__":
    import tempfile

    with serving(), tempfile.TemporaryDirectory() as name:
        document = {**interface(), "outputs": outputs(Path(name))}
    CONTRACT.write_text(json.dumps(document, indent=1) + "\n")
