"""`agent ablate`: variants on the same pairs against gold, at the price of little more than one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from agent.cli import DONE, SOME_ERRORS, STOPPED
from agent.cli.interrupts import run_interruptible
from agent.cli.options import RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, choose_folder, describe_finished, print_input_notes, print_stop
from agent.cli.settings import ChosenSettings, print_idle_options
from agent.cli.text import Console, escape_hidden, print_json, print_text
from agent.datasets import Dataset, read_pairs
from agent.errors import RunStopped, UsageError
from agent.evaluation.ablation import AblationRuns, choose_reference, choose_variants, folder_name
from agent.evaluation.ablation_table import AblationTable, make_table, read_work
from agent.evaluation.ablation_text import (
    REMARK,
    Column,
    Section,
    as_document,
    build_sections,
    list_remarks,
    read_ablation,
    write_table,
)
from agent.evaluation.labels import gold_from_pairs, read_gold
from agent.evaluation.measures import Confusion, compute_measures
from agent.events import Note
from agent.graph import Variant
from agent.llm.models import describe_scripted
from agent.store import files
from agent.tracing import export_traces
from agent.types import Pair
from agent.wording import plural

_GAP = 2
_REMARK_WIDTH = 24


def run(pairs: list[Path], gold: Path | None, variants: str | None, against: str | None, options: RunOptions) -> None:
    """Run the variants, and print and write the table.

    Raises:
        UsageError: wrong usage or input.
        typer.Exit: with the exit code of the design (0 done, 1 some errors, 3 stopped).
    """
    console = Console(stderr=True)
    settings = ChosenSettings(console, options)
    config = settings.config
    rounds = config.runner.rounds
    chosen = choose_variants(() if variants is None else variants.split(","))
    reference = choose_reference(chosen, against)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_input_notes(dataset, console)
    selected = dataset[: options.limit]
    labels = _read_labels(gold, dataset, selected, console)
    compute_measures(Confusion())  # what it takes is asked for before anything is spent
    models, cache = settings.models(), settings.cache
    out = options.out or choose_folder(dataset, "ablation", models.join_names())
    _check_folder(out, chosen, len(selected), rounds)
    check_writable(out, cache)
    print_idle_options(console, options, chosen, models)
    if "variant" in options.collect_flags():
        print_text(console, "note: -c variant has no effect: --variants names what is compared")
    with Display(console) as display, export_traces(config.tracing, lambda text: display(Note(text))):
        runs = AblationRuns(
            chosen,
            out=out,
            models=models,
            config=config,
            cache=cache,
            prompts=settings.prompts,
            unsupported=options.unsupported,
            retry_errors=options.retry_errors,
            on_event=display,
        )
        try:
            run_interruptible(runs.run(dataset, options.limit))
        except (KeyboardInterrupt, RunStopped) as error:
            print_stop(console, error, _describe_finished_runs(out, chosen, rounds))
            raise typer.Exit(STOPPED) from error
    works = [read_work(run.folder, {pair.id for pair in selected}, rounds) for run in runs.runs]
    table = make_table(
        runs.runs,
        works,
        selected,
        labels,
        base=out,
        criterion=config.pipeline.criterion,
        model=models.join_names(),
        rounds=rounds,
        note=describe_scripted(models.list_models()),
        against=reference,
    )
    write_table(out, table)
    if options.as_json:
        print_json(as_document(table))
    else:
        _print(table, out)
    if table.errors:
        print_text(console, "Pairs with errors are tried again with --retry-errors.")
    raise typer.Exit(SOME_ERRORS if table.errors else DONE)


def _describe_finished_runs(out: Path, variants_to_run: Sequence[Variant], rounds: int) -> str:
    counts = {variant.name: describe_finished(out / folder_name(variant), rounds) for variant in variants_to_run}
    summary = " · ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"Finished and stored in {out}: {summary}." if summary else ""


def _read_labels(gold: Path | None, dataset: Dataset, selected: Sequence[Pair], console: Console) -> Mapping[str, int]:
    if gold is None:
        labels, source = gold_from_pairs(dataset), "the field `label` of the pairs themselves"
        if not labels:
            raise UsageError("no gold: give --gold FILE, as the pairs have no labels of their own (a field `label`)")
        print_text(console, f"gold: {source} (no --gold was given)")
    else:
        labels, source = read_gold(gold).labels, str(gold)
    known = sum(pair.id in labels for pair in selected)
    if known == 0:
        raise UsageError(f"{source}: has gold for none of the pairs; are the ids the same?")
    if known < len(selected):
        print_text(
            console,
            f"note: the measures leave out {len(selected) - known} of {len(selected):,} pairs, for lack of gold",
        )
    return labels


def _check_folder(out: Path, chosen: Sequence[Variant], pairs: int, rounds: int) -> None:
    """Refuse links in the place of runs, the folder of a single run, and the table of a larger ablation."""
    for folder in (out / folder_name(variant) for variant in chosen):
        if folder.is_symlink():
            raise UsageError(f"{folder}: is a link, where the run of a variant belongs; remove it, or give another -o")
    if (out / files.MANIFEST).exists():
        raise UsageError(f"{out}: is the folder of a single run; give another one (-o)")
    if not (out / files.ABLATION).is_file():
        return
    earlier, variants = read_ablation(out / files.ABLATION), [variant.name for variant in chosen]
    names = [row.variant for row in earlier.rows]
    missing = [name for name in names if name not in variants]
    less = [f"lacks {', '.join(missing)}"] if missing else []
    if pairs < earlier.pairs:
        less.append(f"has {plural(pairs, 'pair')} of {earlier.pairs:,} (--limit)")
    if rounds < earlier.rounds:
        less.append(f"has {plural(rounds, 'round')} of {earlier.rounds:,} (--rounds)")
    if less:
        everything = f": --variants {','.join(dict.fromkeys([*names, *variants]))}" if missing else ""
        raise UsageError(
            f"{out}: holds the table of a larger ablation, which this one would replace: it {'; it '.join(less)}. "
            f"Give another folder (-o NEW), or ask for all of it, as what is finished costs nothing{everything}"
        )


def _print(table: AblationTable, out: Path) -> None:
    console = Console(piped_width=120)
    for remark in list_remarks(table):
        console.print(Text(escape_hidden(remark)))
    for section in build_sections(table):
        console.print()
        console.print(Text(escape_hidden(section.title), style="bold"))
        for part in _split_section(section, table, console.width):
            console.print(part)
    written = (files.ABLATION, files.ABLATION_CSV, files.ABLATION_MARKDOWN)
    print_text(Console(), "\n" + "\n".join(str(out / name) for name in written))


def _split_section(section: Section, table: AblationTable, width: int) -> Iterator[Table]:
    """Yield a section as tables that a terminal is wide enough for: names may break, figures are whole."""
    name, *figures = section.columns
    room = width - min(_measure(name, table), width // 3)
    part: list[Column] = []
    for column in figures:
        needed = _REMARK_WIDTH if column.heading == REMARK else _measure(column, table)
        if part and sum(_measure(column, table) for column in part) + needed > room:
            yield _build_table([name, *part], table)
            part = []
        part.append(column)
    yield _build_table([name, *part], table)


def _measure(column: Column, table: AblationTable) -> int:
    return _GAP + max(cell_len(escape_hidden(text)) for text in (column.heading, *map(column.text, table.rows)))


def _build_table(columns: Sequence[Column], table: AblationTable) -> Table:
    grid = Table(box=None, padding=(0, _GAP, 0, 0))
    name, *figures = columns
    grid.add_column(Text(escape_hidden(name.heading)), overflow="fold")
    for column in figures:
        remark = column.heading == REMARK
        grid.add_column(Text(escape_hidden(column.heading)), justify="left" if remark else "right", no_wrap=not remark)
    for row in table.rows:
        grid.add_row(*(Text(escape_hidden(column.text(row))) for column in columns))
    return grid
