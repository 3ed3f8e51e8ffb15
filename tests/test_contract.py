"""The public interface is stable: names, signatures, commands, options, settings, JSON keys and exit codes.

After a deliberate change, `python -m tests.test_contract` rewrites `contract.json`; mention it in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import json
import shutil
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
from agent.cli.app import app
from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED, WRONG_USAGE, exit_code
from agent.config import collect_setting_fields
from agent.runs.spec import AnnotatorOptions
from agent.settings import Settings
from tests.cli.commands import Commands, serve_commands
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
    "replay run",
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
    "retrieval audit pooled/retrieval --against pairs.jsonl",
    "corpus queries corpus/queries.txt -o corpus/queries.jsonl",
    "corpus code corpus/code -o corpus/codes.jsonl",
    "corpus candidates corpus/queries.jsonl corpus/codes.jsonl --searcher bm25 --combine rrf -o corpus/pairs.jsonl",
    "corpus decontaminate corpus/pairs.jsonl --benchmark pairs.jsonl -o corpus/clean.jsonl",
    "corpus split run -o split --to jsonl",
    "corpus describe run",
    "corpus stackexchange corpus/Posts.xml -o answers --languages c",
    "corpus answer answers --model replay:corpus/replies.jsonl -o generated.jsonl",
    "score generated.jsonl",
    "annotate corpus/unmatched.jsonl --model heuristic -o gaps --sandbox bwrap",
    "corpus fill gaps --model heuristic --model write_code=replay:corpus/written.jsonl -o filled.jsonl --sandbox bwrap",
    "prefer labelled-a.jsonl labelled-b.jsonl --model replay:preferences.jsonl -o preferences",
)
"""Commands that print JSON, in the order of their dependencies. `review` is missing, as it serves a page."""


def describe(module: str, value: Any) -> Any:
    """Return the parameters of a public name, and the members if it is a class or module."""
    if isinstance(value, ModuleType):
        public = {name: member for name, member in vars(value).items() if getattr(member, "__module__", "") == module}
        return {name: list_members(member) for name, member in public.items()}
    return {"parameters": list_parameters(value), "members": list_members(value)}


def list_parameters(function: Any) -> list[str]:
    """Return names and defaults of parameters. A keyword-only parameter starts with `*`. Annotations may change."""
    descriptions = []
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.kind
        if "AnnotatorOptions" in str(parameter.annotation):
            descriptions += [f"*{name}" for name in sorted(AnnotatorOptions.__optional_keys__)]
            continue
        prefix = "*" if kind is parameter.KEYWORD_ONLY else "**" if kind is parameter.VAR_KEYWORD else ""
        plain = parameter.default is None or isinstance(parameter.default, bool | int | float | str | tuple)
        default = f"={parameter.default!r}" if plain else "=..."
        descriptions.append(f"{prefix}{parameter.name}{'' if parameter.default is parameter.empty else default}")
    return descriptions


def list_members(kind: Any) -> list[str]:
    if not isinstance(kind, type):
        return []
    base = {*dir(BaseModel)} if issubclass(kind, BaseModel) else {*dir(Exception)}
    return sorted(name for name in {*dir(kind), *getattr(kind, "model_fields", ())} - base if not name.startswith("_"))


def iterate_commands(group: TyperGroup, path: str = "") -> Iterator[tuple[str, list[str]]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, TyperGroup):
            yield from iterate_commands(command, f"{path}{name} ")
        else:
            words = [word for option in command.get_params(context) for word in (*option.opts, *option.secondary_opts)]
            yield f"{path}{name}", sorted({*words} - {"-h", "--help"})


def iterate_keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each key, as in `searchers[].name`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}".lstrip(".")
            yield from iterate_keys(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_keys(inner, f"{path}[]")


def iterate_subclasses(kind: type[errors.AgentError]) -> Iterator[type[errors.AgentError]]:
    yield kind
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("agent."):  # Ray derives classes from the errors of its workers
            yield from iterate_subclasses(subclass)


def describe_interface() -> dict[str, Any]:
    """Return the current interface, except the outputs."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        "python": {name: describe(f"agent.{name}", getattr(agent, name)) for name in sorted(agent.__all__)},
        "commands": dict(iterate_commands(group)),
        "settings": sorted(collect_setting_fields(Settings)),
        "exit codes": {
            "done": DONE,
            "some errors": SOME_ERRORS,
            "wrong usage": WRONG_USAGE,
            "stopped": STOPPED,
            **{error.__name__: exit_code(error.__new__(error)) for error in iterate_subclasses(errors.AgentError)},
        },
    }


def collect_outputs(folder: Path) -> dict[str, list[str]]:
    """Run the commands in a folder. Return the keys in the output of each, and in the lines of a run's files."""
    write_inputs(folder)
    command = Commands(folder)
    keys = {}
    for line in OUTPUTS:
        result = command(*line.split(), "--json")
        assert result.code in (DONE, SOME_ERRORS), f"{line}: {result.err}"
        keys[line] = sorted(set(iterate_keys(result.json)))
    for name in ("labels.jsonl", "annotations.jsonl"):
        lines = [json.loads(line) for line in (folder / "run" / name).read_text().splitlines()]
        keys[name] = sorted(set(iterate_keys(lines)))
    return keys


def write_inputs(folder: Path) -> None:
    ids = ("clear-match", "clear-non-match", "chunks")
    pairs = [line for line in (EXAMPLES / "pairs.jsonl").read_text().splitlines() if json.loads(line)["id"] in ids]
    (folder / "pairs.jsonl").write_text("".join(f"{line}\n" for line in pairs))
    for name, pair in zip("ab", pairs, strict=False):
        (folder / f"{name}.jsonl").write_text(f"{pair}\n")
    (folder / "gold.jsonl").write_text("".join(f'{{"id": "{name}", "label": 1}}\n' for name in ids))
    (folder / "replies.jsonl").write_text((EXAMPLES / "replies.jsonl").read_text())
    for name in "ab":
        (folder / f"labelled-{name}.jsonl").write_text(f'{{"query": "q", "code": "{name}", "label": 1}}\n')
    replies = [{"pair": f"1{order}", "role": "prefer", "reply": '{"better": "first"}'} for order in ("ab", "ba")]
    (folder / "preferences.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    (folder / "program.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
    (folder / "answers.jsonl").write_text('{"custom_id": "another", "response": {"status_code": 200, "body": {}}}\n')
    shutil.copytree(EXAMPLES / "corpus", folder / "corpus")
    write_benchmark(folder)
    (folder / "pooled").mkdir()
    make_folder(folder / "pooled")


def read_contract() -> dict[str, Any]:
    return dict(json.loads(CONTRACT.read_text()))


@pytest.mark.parametrize("part", ["python", "commands", "settings", "exit codes"])
def test_the_interface_matches_the_contract(part: str) -> None:
    assert describe_interface()[part] == read_contract()[part]


@pytest.mark.bwrap
@pytest.mark.usefixtures("commands")
def test_every_output_matches_the_contract(tmp_path: Path) -> None:
    assert collect_outputs(tmp_path) == read_contract()["outputs"]


if __name__ == "__main__":
    import tempfile

    with serve_commands() as Commands.commands, tempfile.TemporaryDirectory() as name:
        document = {**describe_interface(), "outputs": collect_outputs(Path(name))}
    CONTRACT.write_text(json.dumps(document, indent=1) + "\n")
