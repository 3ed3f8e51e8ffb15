"""`agent requests`: a run's open questions as files for any batch system, and its replies into the cache."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from agent.annotator import Annotator
from agent.cli import DONE, SOME_ERRORS
from agent.cli.options import ModelOptions, RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, print_oddities, run_interruptible
from agent.cli.settings import Defaults
from agent.cli.text import Console, one_line, print_json, say
from agent.datasets import Dataset, read_pairs
from agent.errors import ConfigError, InputError, UsageError
from agent.events import Note
from agent.graph import load_variant
from agent.llm.batch import MOST_BYTES, MOST_REQUESTS, deferring, name_of, read_line, reply_in
from agent.llm.failures import Failure
from agent.store.batches import BatchStore
from agent.store.cache import SqliteReplyCache
from agent.store.files import replacing
from agent.tracing import exporting
from agent.wording import counted

if TYPE_CHECKING:
    from agent.llm.openai import OpenAIModel

_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_SHOWN = 5


class _Untouched(SqliteReplyCache):
    """A cache of which no reply is taken: prepaid ones are for the run that comes."""

    def mark(self, key: str, *, prepaid: bool) -> bool:  # noqa: ARG002
        return False


def export(pairs: list[Path], variant: str | None, without: tuple[str, ...], options: RunOptions) -> None:
    """Take the pairs as far as the cache answers, and write down what they ask next.

    Raises:
        UsageError: as `agent annotate` raises, or no file is named.
    """
    if options.out is None:
        raise UsageError("name the file for the requests: -o requests.jsonl")
    console = Console(stderr=True)
    defaults = Defaults(console)
    config = defaults.config({"variant": variant, **options.configured()}, options.settings)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_oddities(dataset, console)
    chosen = load_variant(config.variant)
    for node in without:
        chosen = chosen.without(node)
    check_writable(options.out.parent, cache := defaults.cache(options.cache))
    with TemporaryDirectory() as place, BatchStore(Path(place) / "requests.sqlite") as store, _Untouched(cache) as kept:

        def write_down(model: OpenAIModel, key: str, line: Callable[[], bytes]) -> None:
            store.add(key, name_of(model), line, 1)

        models, by_name = deferring(defaults.models(options, api_key="none"), write_down)
        with Display(console) as display, exporting(config.tracing, lambda text: display(Note(text))):
            annotator = Annotator(
                model=models,
                variant=chosen,
                prompts=defaults.prompts(options),
                unsupported=options.unsupported,
                config=config,
                cache=kept,
                on_event=display,
            )
            answered = run_interruptible(_count(annotator, dataset, options.limit))
        numbers = itertools.count(1)
        written = (each for name in by_name for each in _write(store, name, options.out, numbers))
        files = {str(path): count for path, count in written}
    waiting = min(len(dataset), options.limit or len(dataset)) * config.runner.rounds - answered
    if options.as_json:
        print_json({"files": files, "requests": sum(files.values()), "waiting": waiting, "answered": answered})
        return
    for path, count in files.items():
        say(Console(), f"{path}: {counted(count, 'request')}")
    what = "pair" if config.runner.rounds == 1 else "annotation"
    say(Console(), f"{counted(waiting, what)} waiting for these, {answered:,} answered by the cache alone")


async def _count(annotator: Annotator, pairs: Dataset, limit: int | None) -> int:
    async with annotator:
        return sum([1 async for _ in annotator.annotate(pairs, limit=limit)])


def _write(store: BatchStore, name: str, out: Path, numbers: Iterator[int]) -> Iterator[tuple[Path, int]]:
    """Write a model's requests into as many files as it takes."""
    while store.waits(name):
        number, count = next(numbers), 0
        path = out if number == 1 else out.with_stem(f"{out.stem}-{number}")
        with replacing(path) as draft, draft.open("wb") as file:
            for each, _, line in store.waiting(name, MOST_REQUESTS, MOST_BYTES):
                file.write(line)
                store.drop(each)
                count += 1
        yield path, count


def import_(
    outputs: list[Path], options: ModelOptions, cache: Path | None, prices: Path | None, factor: float, *, as_json: bool
) -> None:
    """Put replies into the cache, as prepaid at `factor` of their list price, and say what else the files hold.

    Raises:
        UsageError: the models are none, or several, or have no batches; or a file cannot be read.
    """
    defaults = Defaults(Console(stderr=True))
    given = defaults.models(options, api_key="none", **({} if prices is None else {"prices": prices}))
    _, by_name = deferring(given, lambda *_: None)
    if len(by_name) != 1:
        raise ConfigError("import the replies of one model at a time: --model NAME")
    (model,) = by_name.values()
    counts, errors = Counter[str](imported=0, already=0, failed=0, unknown=0), Counter[str]()
    with SqliteReplyCache(defaults.cache(cache)) as kept:
        for raw in (line for path in outputs for line in _lines(path)):
            line = read_line(raw)
            if line is None or not _KEY.fullmatch(line.key):
                counts["unknown"] += 1
                continue
            try:
                reply = reply_in(line, model, factor)
            except Failure as failure:
                counts["failed"] += 1
                errors[failure.why] += 1
                continue
            counts["already" if kept.get(line.key) is not None else "imported"] += 1
            kept.put(line.key, reply)
    if as_json:
        print_json({**counts, "errors": dict(errors.most_common())})
    else:
        say(Console(), f"{counts['imported']:,} imported, {counts['already']:,} were there already or came twice")
        say(Console(), f"{counts['failed']:,} failed, {counts['unknown']:,} without the id of an exported request")
        for why, count in errors.most_common(_MOST_SHOWN):
            say(Console(), f"  {count:,}: the server {one_line(why, 160)}")
    raise typer.Exit(SOME_ERRORS if counts["failed"] or counts["unknown"] else DONE)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
