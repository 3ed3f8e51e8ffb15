"""`agent ablate`: variants on the same pairs against gold, at the price of little more than one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from agent.ablation.runs import AblationRuns
from agent.ablation.sections import Section, remarks, sections
from agent.ablation.table import AblationTable, Setting, make_table
from agent.ablation.variants import choose_variants
from agent.ablation.work import work_of
from agent.ablation.writing import CSV, JSON, MARKDOWN, write_table
from agent.cli import DONE, SOME_ERRORS, STOPPED
from agent.cli.console import Console
from agent.cli.progress import Displays
from agent.cli.run_options import RunOptions
from agent.cli.running import to_its_end
from agent.cli.settings import read_config
from agent.cli.starting import check_writable, default_folder, read_input, tell_how_to_go_on
from agent.cli.text import plain, say
from agent.config import Config
from agent.errors import InputError, RunStopped, UsageError
from agent.llm.models import Models
from agent.llm.nature import scripted
from agent.scoring.gold import read_gold
from agent.scoring.measures import Confusion, measures
from agent.store import files
from agent.types import Pair

_PIPED_WIDTH = 120


def run(pairs: Path, gold: Path | None, variants: str | None, options: RunOptions) -> None:
    """Run the variants, and print and write the table.

    Raises:
        UsageError: wrong usage or input.
        typer.Exit: with the exit code of the design (0 done, 1 some errors, 3 stopped).
    """
    console = Console(stderr=True)
    config = read_config(options.configured(), options.settings or ())
    chosen = choose_variants(variants.split(",") if variants else ())
    dataset = read_input(pairs, options, console)
    wanted = dataset.all_pairs[: options.limit]
    labels = _gold(gold, pairs, wanted, console)
    measures(Confusion())  # what it takes is asked for before anything is spent
    models = Models.from_options(options.model or (), **options.model_options())
    out = options.out or default_folder(pairs, "ablation", models.label())
    if (out / files.MANIFEST).exists():
        raise UsageError(f"{out}: is the folder of a single run; give another one (-o)")
    check_writable(out, options.cache)
    with Displays(console) as display:
        runs = AblationRuns(
            chosen,
            out=out,
            models=models,
            config=config,
            cache=options.cache,
            prompts=options.prompts,
            unsupported=options.unsupported,
            retry_errors=options.retry_errors,
            on_event=display,
        )
        try:
            to_its_end(runs.run(dataset.all_pairs, options.limit))
        except KeyboardInterrupt:
            tell_how_to_go_on(console, "Interrupted.", f"What is finished is kept in {out}.")
            raise typer.Exit(STOPPED) from None
        except RunStopped as error:
            tell_how_to_go_on(console, f"Stopped: {error}", f"What is finished is kept in {out}.")
            raise typer.Exit(STOPPED) from error
    table = _table(runs, wanted, labels, config, models, out)
    write_table(out, table)
    _close(options.as_json, console, table, out)


def _gold(gold: Path | None, pairs: Path, wanted: list[Pair], console: Console) -> Mapping[str, int]:
    try:
        labels = read_gold(pairs if gold is None else gold).labels
    except InputError as error:
        if gold is not None:
            raise
        raise UsageError(f"no gold: give --gold FILE, as the pairs have no labels of their own ({error})") from error
    if gold is None:
        say(console, f"gold: the field `label` of {pairs} itself (no --gold was given)")
    known = sum(pair.id in labels for pair in wanted)
    if known == 0:
        raise UsageError(f"{pairs if gold is None else gold}: has gold for none of the pairs; are the ids the same?")
    if known < len(wanted):
        say(console, f"note: {len(wanted) - known} of {len(wanted)} pairs have no gold; the measures leave them out")
    return labels


def _table(
    runs: AblationRuns, pairs: list[Pair], gold: Mapping[str, int], config: Config, models: Models, out: Path
) -> AblationTable:
    ids, rounds = {pair.id for pair in pairs}, config.runner.rounds
    works = [work_of(each.folder, ids, rounds) for each in runs.runs]
    setting = Setting(config.pipeline.criterion, models.label(), rounds, scripted(models.all()))
    return make_table(runs.runs, works, pairs, gold, setting, beside=out)


def _close(machine: bool, console: Console, table: AblationTable, out: Path) -> None:
    if machine:
        typer.echo(json.dumps(table.document()))
    else:
        out_console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
        for remark in remarks(table):
            out_console.print(Text(plain(remark)))
        for section in sections(table):
            out_console.print()
            out_console.print(_shown(section, table))
        say(Console(), "\n" + "\n".join(str(out / name) for name in (JSON, CSV, MARKDOWN)))
    if table.errors:
        say(console, "Pairs with errors are tried again with --retry-errors.")
    raise typer.Exit(SOME_ERRORS if table.errors else DONE)


def _shown(section: Section, table: AblationTable) -> Table:
    found = Table(title=section.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    first, *others = section.columns
    found.add_column(first.heading, no_wrap=True)
    for column in others:
        found.add_column(column.heading, justify="left" if column.heading == "remark" else "right")
    for row in table.rows:
        found.add_row(*(Text(plain(column.text(row))) for column in section.columns))
    return found
