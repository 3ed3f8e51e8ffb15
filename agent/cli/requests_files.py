"""`agent requests`: exports requests as batch files, and imports the replies into the cache."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from agent.cli.annotate import read_run
from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.options import ImportOptions, RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, one_line, print_json, print_text
from agent.datasets.reading import Dataset
from agent.datasets.sources import open_source, read_lines
from agent.errors import ConfigError, Deferred, UsageError
from agent.events import Note
from agent.llm.base import LLM, Call, Reply
from agent.llm.batch import build_request_line, extract_reply, read_line, select_batch_models
from agent.llm.failures import Failure
from agent.llm.gateway import ReplyCache
from agent.llm.models import Models
from agent.runs.run import Run
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.files import replacing
from agent.temp_database import TempDatabase
from agent.text import plural
from agent.tracing import export_traces

if TYPE_CHECKING:
    from agent.llm.openai import OpenAIModel

_MAX_SHOWN = 5


class _ExportTransport:
    """A `Transport` that writes each call to a file instead of sending it. It does not claim prepaid replies."""

    def __init__(self, model: OpenAIModel, file: BinaryIO) -> None:
        self._model = model
        self._file = file
        self._written = TempDatabase("CREATE TABLE written (key TEXT PRIMARY KEY)")
        self.requests = 0

    async def send(self, model: LLM, call: Call, key: str) -> Reply:  # noqa: ARG002
        if self._written.execute_many("INSERT OR IGNORE INTO written VALUES (?)", [(key,)]):
            self._file.write(build_request_line(key, self._model.build_body(call)))
            self.requests += 1
        raise Deferred(f"the {call.role} call for pair {call.pair_id!r} is waiting for a reply")

    def claim(self, key: str, reply: Reply, cache: ReplyCache) -> bool:  # noqa: ARG002
        return False


def export(pairs: list[Path], without: tuple[str, ...], options: RunOptions) -> None:
    """Advance the pairs as far as cached replies allow, and write their next requests to a file.

    Raises:
        UsageError: invalid options or input, `options.out` is None, or there are several models.
    """
    if options.out is None:
        raise UsageError("no output file. Pass one, such as -o requests.jsonl.")
    console = Console(stderr=True)
    overrides = {"runner.batch": False, "runner.engine": "local"}  # this command sends no requests
    dataset, spec, _ = read_run(pairs, without, options, console, overrides=overrides, api_key="none")
    check_writable(options.out.parent, spec.cache)
    model = _require_one_model(spec.models)
    with ExitStack() as stack:
        file = stack.enter_context(stack.enter_context(replacing(options.out)).open("wb"))
        display = stack.enter_context(Display(console))
        stack.enter_context(export_traces(spec.config.tracing, lambda text: display(Note(text))))
        transport = _ExportTransport(model, file)
        run = Run(replace(spec, run_dir=None, emit=display, transport=transport))
        counts = run_interruptible(_count_by_success(run, dataset, options.limit))
    rounds = spec.config.runner.rounds
    waiting = min(len(dataset), options.limit or len(dataset)) * rounds - counts.total()
    if options.as_json:
        print_json(
            {"requests": transport.requests, "waiting": waiting, "answered": counts[True], "errors": counts[False]}
        )
        return
    print_text(Console(), f"{options.out}: {plural(transport.requests, 'request')}")
    unit = "pair" if rounds == 1 else "annotation"
    errors = f", {plural(counts[False], 'error')}" if counts[False] else ""
    print_text(
        Console(), f"{plural(waiting, unit)} waiting for replies, {counts[True]:,} finished with cached replies{errors}"
    )


def _require_one_model(models: Models) -> OpenAIModel:
    model, *others = select_batch_models(models).values()
    if others:
        raise ConfigError("a batch file supports only one model. Pass the same --model NAME for all roles.")
    return model


async def _count_by_success(run: Run, pairs: Dataset, limit: int | None) -> Counter[bool]:
    """Count the annotations without an error (True) and with an error (False)."""
    async with run:
        return Counter([annotation.error is None async for annotation in run.annotate(pairs, limit=limit)])


def import_(outputs: list[Path], options: ImportOptions, factor: float, *, as_json: bool) -> None:
    """Import replies into the cache, marked as prepaid at `factor` times the list price, and print the counts.

    Raises:
        UsageError: there are several models, the model does not support batches, or a file cannot be read.
    """
    settings = ChosenSettings(Console(stderr=True), options)
    model = _require_one_model(settings.models(api_key="none"))
    counts = Counter[str](imported=0, already=0, failed=0, unknown=0, malformed=0)
    errors = Counter[str]()
    with SqliteReplyCache(settings.cache) as cache:
        for path in outputs:
            with open_source(path) as file:
                for raw in filter(bytes.strip, read_lines(file, path)):
                    try:
                        counts[_import_line(raw, model, factor, cache)] += 1
                    except Failure as failure:
                        counts["failed"] += 1
                        errors[failure.message] += 1
    if as_json:
        print_json({**counts, "errors": dict(errors.most_common())})
    else:
        print_text(Console(), f"{counts['imported']:,} imported, {counts['already']:,} already in the cache")
        malformed = f", {counts['malformed']:,} not in JSON" if counts["malformed"] else ""
        print_text(
            Console(), f"{counts['failed']:,} failed, {counts['unknown']:,} with an unknown request id{malformed}"
        )
        for message, count in errors.most_common(_MAX_SHOWN):
            print_text(Console(), f"  {count:,}: the server {one_line(message, 160)}")
    raise typer.Exit(SOME_ERRORS if counts["failed"] or counts["unknown"] or counts["malformed"] else DONE)


def _import_line(raw: bytes, model: OpenAIModel, factor: float, cache: ReplyCache) -> str:
    """Import a line, and return the name of the count that it belongs to. Raises a `Failure` for a failed request."""
    try:
        line = read_line(raw)
    except ValueError:
        return "malformed"
    if line is None:
        return "unknown"
    reply = extract_reply(line, model, factor)
    known = cache.get(line.key) is not None
    cache.put(line.key, reply)
    return "already" if known else "imported"
