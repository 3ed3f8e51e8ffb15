"""`agent ablate`: scores variants on the same pairs against gold labels. The variants share replies and executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.options import RunOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, choose_folder, describe_finished, print_input_notes, stoppable
from agent.cli.settings import ChosenSettings, print_unused_options
from agent.cli.text import Console, escape_hidden, print_figures, print_json, print_text
from agent.datasets.fields import Fields
from agent.datasets.reading import Dataset, read_pairs
from agent.errors import UsageError
from agent.evaluation.ablation import (
    AblationRuns,
    choose_criterion,
    choose_reference,
    choose_variants,
    make_folder_name,
)
from agent.evaluation.ablation_table import AblationTable, make_table, read_results
from agent.evaluation.ablation_text import as_document, build_sections, list_remarks, read_ablation, write_table
from agent.evaluation.labels import read_gold
from agent.evaluation.measures import Confusion, compute_measures
from agent.events import Note
from agent.llm.models import describe_scripted
from agent.pipeline.graph import Variant
from agent.runs.store import files
from agent.text import plural
from agent.tracing import export_traces
from agent.types import Pair


def run(pairs: list[Path], gold: Path | None, variants: str | None, against: str | None, options: RunOptions) -> None:
    """Run the variants, then write the table to the folder and print it.

    Raises:
        UsageError: invalid options or input.
        typer.Exit: always, with exit code 0 (done), 1 (some errors) or 3 (stopped).
    """
    console = Console(stderr=True)
    settings = ChosenSettings(console, options)
    config = settings.config
    rounds = config.runner.rounds
    chosen = choose_variants(() if variants is None else variants.split(","), config.pipeline.context)
    reference = choose_reference(chosen, against)
    criterion = choose_criterion(chosen, config.pipeline.criterion)
    dataset = read_pairs(pairs, mapping=options.field_map, on_bad_line=options.on_bad_line)
    print_input_notes(dataset, console)
    selected = dataset[: options.limit]
    labels = _read_labels(gold, dataset, selected, options.field_map, console)
    compute_measures(Confusion())  # if an extra is missing, raises an error before any model call
    models, cache = settings.models(), settings.cache
    out = options.out or choose_folder(dataset, "ablation", models.join_names())
    _check_folder(out, chosen, len(selected), rounds)
    check_writable(out, cache, named=options.out is not None)
    print_unused_options(console, options, chosen, models)
    if "variant" in options.collect_flags():
        print_text(console, "note: -c variant has no effect: --variants selects the variants to compare")
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
        with stoppable(console, lambda: _describe_finished_runs(out, chosen, rounds)):
            run_interruptible(runs.run(dataset, options.limit))
    results = [read_results(run.folder, {pair.id for pair in selected}, rounds) for run in runs.runs]
    table = make_table(
        runs.runs,
        results,
        selected,
        labels,
        base=out,
        criterion=criterion,
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
        print_text(console, "Pass --retry-errors to retry the pairs that ended in an error.")
    raise typer.Exit(SOME_ERRORS if table.errors else DONE)


def _describe_finished_runs(out: Path, variants_to_run: Sequence[Variant], rounds: int) -> str:
    counts = {variant.name: describe_finished(out / make_folder_name(variant), rounds) for variant in variants_to_run}
    summary = " · ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"Finished and stored in {out}: {summary}." if summary else ""


def _read_labels(
    gold: Path | None, dataset: Dataset, selected: Sequence[Pair], field_map: str | None, console: Console
) -> Mapping[str, int]:
    if gold is None:
        every, source = ((pair.id, dataset.read_label(pair)) for pair in dataset), "the `label` field of the pairs"
        labels = {pair: label for pair, label in every if label is not None}
        if not labels:
            raise UsageError("no gold labels: the pairs have no `label` field. Pass --gold FILE.")
        print_text(console, f"gold: {source} (--gold was not passed)")
    else:
        labels, source = read_gold(gold, Fields(field_map, optional=True)).labels, str(gold)
    known = sum(pair.id in labels for pair in selected)
    if known == 0:
        raise UsageError(f"{source}: none of the pairs has a gold label. Check that the ids match.")
    if known < len(selected):
        print_text(
            console,
            f"note: the measures exclude pairs without a gold label ({len(selected) - known:,} of {len(selected):,})",
        )
    return labels


def _check_folder(out: Path, chosen: Sequence[Variant], pairs: int, rounds: int) -> None:
    """Raise an error if a variant's folder is a symbolic link, or if `out` contains a run or a larger ablation."""
    for folder in (out / make_folder_name(variant) for variant in chosen):
        if folder.is_symlink():
            raise UsageError(
                f"{folder}: the folder of a variant is a symbolic link. Remove the link, or pass another folder (-o)."
            )
    if (out / files.MANIFEST).exists():
        raise UsageError(f"{out}: contains a single run. Pass another folder (-o).")
    if not (out / files.ABLATION).is_file():
        return
    earlier, variants = read_ablation(out / files.ABLATION), [variant.name for variant in chosen]
    names = [row.variant for row in earlier.rows]
    missing = [name for name in names if name not in variants]
    reductions = [f"lacks {', '.join(missing)}"] if missing else []
    if pairs < earlier.pairs:
        reductions.append(f"has only {pairs:,} of {plural(earlier.pairs, 'pair')} (--limit)")
    if rounds < earlier.rounds:
        reductions.append(f"has only {rounds:,} of {plural(earlier.rounds, 'round')} (--rounds)")
    if reductions:
        everything = f" with --variants {','.join(dict.fromkeys([*names, *variants]))}" if missing else ""
        raise UsageError(
            f"{out}: contains a larger ablation, which the new one would replace. "
            f"The new one {' and '.join(reductions)}. Pass another folder (-o NEW), or extend the larger "
            f"ablation{everything}. Finished pairs are reused at no cost."
        )


def _print(table: AblationTable, out: Path) -> None:
    console = Console(piped_width=120)
    console.print(escape_hidden("\n".join(list_remarks(table))), end="\n\n")
    print_figures(console, build_sections(table))
    written = (files.ABLATION, files.ABLATION_CSV, files.ABLATION_MARKDOWN)
    print_text(Console(), "\n".join(str(out / name) for name in written))
