"""Implements `agent train`, which trains a code searcher."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agent.cli.interrupts import defer_signals
from agent.cli.options import TrainOptions
from agent.cli.progress import Steps
from agent.cli.running import stoppable
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.datasets.benchmarks.pairs import is_split
from agent.errors import ConfigError, UsageError
from agent.retrieval.searchers.trained import TrainingRecord, read_record
from agent.text import build_table
from agent.training.base import check_exists
from agent.training.data import TrainingData, read_training_data
from agent.training.evaluation import parse_metric
from agent.training.leaks import Leaks, find_leaks
from agent.training.model_folder import Training, check_folder
from agent.training.recipe import Hyperparameters, Recipe, load_recipe
from agent.training.rows import RULES, EpochRows

_REMEDY = (
    "Split pairs with `agent corpus split --by code`. For other benchmarks, pass --drop-leaks, which leaves out these "
    "training pairs. --dry-run --json lists all of them. To train on them, pass --allow-leaks."
)
_MAX_LISTED = 10
FLAGS = {"max_tokens": "--text-tokens", "temperature": "--softmax-temperature"}
"""Options that are not named after their hyperparameter."""


def run(path: Path, name: str, out: Path, options: TrainOptions) -> None:
    """Train a model, and print its scores.

    Raises:
        UsageError: the data, the base model or the folder cannot be used, held-out texts are in training, or training
            failed.
        typer.Exit: the command stopped early. To resume, run the same command again.
    """
    notes, changes = Console(stderr=True), _collect_changes(options)
    check_folder(out)
    if options.base is not None:
        check_exists(options.base)
    recipe = load_recipe(name)
    given = {*changes, "contrast"} if options.contrast else changes.keys()
    for option in sorted(recipe.unused & given):
        flag = FLAGS.get(option, f"--{option.replace('_', '-')}")
        raise ConfigError(f"{flag}: the recipe {name} does not use this option. Remove it.")
    base = None if options.dry_run else recipe.choose_base(options.base)
    if options.contrast and options.mini_batch:
        raise ConfigError("--mini-batch: is not available with --contrast. Pass a smaller --batch-size.")
    settings = recipe.defaults.model_copy(update=changes)
    with stoppable(notes, partial(_describe_stored, out)):
        with Steps(notes) as steps:
            data, leaks = _read_data(path, options, steps)
        for note in data.notes:
            print_text(notes, f"note: {note}")
        if settings.best == "any" and data.validation is None:
            raise ConfigError("--best any: needs validation queries. Pass --validation BENCHMARK.")
        rows = EpochRows(data, recipe.form, settings)
        if options.dry_run:
            _print_plan(recipe, settings, data, rows, leaks, as_json=options.as_json)
            return
        if leaks and not options.allow_leaks:
            _print_leaks(notes, leaks)
            raise UsageError(f"{path}: held-out texts are in the training data: {leaks.describe()}. {_REMEDY}")
        if rows.omitted:
            counts = "; ".join(f"{count:,} ({RULES[rule]})" for rule, count in rows.omitted.items())
            print_text(notes, f"note: rows or hard negatives left out of the first epoch: {counts}")
        with Steps(notes) as steps, defer_signals() as is_stopping:
            from agent.training.trainer import train

            def report(step: int, total: int, loss: float) -> None:
                steps.detail = f"loss {loss:.4f}"
                steps("training", step, total)

            record = train(
                Training(
                    recipe, data, rows, settings, base, out, steps, report, is_stopping, leaks.counts, options.force
                )
            )
    if options.as_json:
        print_json({"folder": str(out), **record.model_dump(mode="json", by_alias=True)})
        return
    _print_scores(record)
    print_text(Console(), f"model: {out} {_describe_epoch(record)}")
    test, own = (shlex.quote(str(name)) for name in (options.test[0] if options.test else "BENCHMARK", path))
    benchmark = f"{own} --split test" if is_split(path) and not options.test else test
    print_text(Console(), f"Next: agent retrieval run {benchmark} --searcher {shlex.quote(f'model:{out}')}")


def _describe_stored(out: Path) -> str:
    stored = read_record(out)
    return "" if stored is None else f"{out} has the model {_describe_epoch(stored)}."


def _read_data(path: Path, options: TrainOptions, steps: Steps) -> tuple[TrainingData, Leaks]:
    read = partial(
        read_training_data,
        path,
        pairs=options.pairs,
        mapping=options.field_map,
        codes=options.codes or (),
        language=options.language,
        validation=options.validation,
        tests=options.test or (),
        contrast=options.contrast,
        progress=steps,
    )
    leaks = find_leaks(data := read(), steps)
    if leaks and options.drop_leaks:
        leaks = find_leaks(data := read(excluded={leak.text for leak in leaks.found}), steps)
    return data, leaks


def _print_leaks(console: Console, leaks: Leaks) -> None:
    for leak in leaks.found[:_MAX_LISTED]:
        print_text(console, one_line(f"leak ({leak.kind}): {leak.benchmark} {leak.id}: {leak.text}", 160))


def _collect_changes(options: TrainOptions) -> dict[str, Any]:
    changes = {name: value for name, value in asdict(options).items() if value is not None}
    changes = {name: value for name, value in changes.items() if name in Hyperparameters.model_fields}
    parse_metric(changes.get("metric", "nDCG@10"))
    if number := changes.get("hard_negatives"):
        if number != "none" and number not in map(str, range(1, 101)):
            raise ConfigError(f"--hard-negatives {number}: pass a number from 1 to 100, or none")
        changes["hard_negatives"] = None if number == "none" else int(number)
    return changes


def _print_plan(
    recipe: Recipe, settings: Hyperparameters, data: TrainingData, rows: EpochRows, leaks: Leaks, *, as_json: bool
) -> None:
    held_out = [*filter(None, [data.validation]), *data.tests]
    plan: dict[str, Any] = {
        "recipe": recipe.name,
        "data": data.name,
        "labels": data.labels,
        "queries": len(data.queries),
        "codes": len(data.codes),
        "held_out": {benchmark.name: len(benchmark.queries) for benchmark in held_out},
        "leaks": leaks.counts,
        "contrasts": data.contrasts.record.model_dump() if data.contrasts else {},
        "rows_left_out": dict(rows.omitted),
        "steps_per_epoch": rows.batches,
        "steps": rows.batches * settings.epochs,
        "settings": settings.model_dump(mode="json"),
    }
    if as_json:
        print_json({**plan, "leaking_texts": [leak._asdict() for leak in leaks.found]})
        return
    _print_leaks(Console(), leaks)
    for name, value in {**plan, "leaks": leaks.describe()}.items():
        text = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        print_text(
            Console(), f"{name.replace('_', ' ').replace('codes', 'snippets')}: {one_line(text or 'none', 1_000)}"
        )


def _print_scores(record: TrainingRecord) -> None:
    metrics = list(dict.fromkeys(name for epoch in record.epochs for name in epoch.scores))
    rows = [
        (epoch.epoch, epoch.loss and f"{epoch.loss:.4f}", *(epoch.scores.get(name) for name in metrics))
        for epoch in record.epochs
    ]
    if record.mixed:
        rows.append(("mixed", None, *(record.mixed.get(name) for name in metrics)))
    print_table(Console(), build_table(("epoch", "loss", *metrics), rows))
    if record.tests:
        pairs = [
            (one_line(test), metric, untrained, value, None if untrained is None else f"{value - untrained:+.3f}")
            for test, values in record.tests.items()
            for metric, value in values.items()
            for untrained in (record.untrained_tests.get(test, {}).get(metric),)
        ]
        columns = ("test", "metric", "untrained", "trained", "difference")
        print_table(Console(), build_table(columns, pairs, left=["metric"]))
    if record.beats_untrained is False:
        _warn_of_untrained(record)
    if record.data.leaks:
        print_text(Console(), "warning: held-out texts are in the training data, so the scores are too high")


def _warn_of_untrained(record: TrainingRecord) -> None:
    metric = one_line(str(record.settings["metric"]))
    base = f" ({one_line(record.base.name, 200)})" if record.base.name else ""
    subject, remedy = "no epoch has", "To keep that model, pass --best any and another folder (-o)."
    if record.best_epoch == 0:
        remedy = "The folder has that model."
    elif record.mixed:
        subject, remedy = "the mixture does not have", "Pass another --mix and another folder (-o)."
    print_text(Console(), f"warning: {subject} a higher {metric} than the untrained model{base}. {remedy}")


def _describe_epoch(record: TrainingRecord) -> str:
    if record.best_epoch is None:
        return "without training" if record.settings.get("epochs") == 0 else "of an unfinished epoch"
    by_score = f", the best by {record.settings['metric']}" if record.epochs[-1].scores else ""
    mix = f", mixed with the base at {share:g}" if (share := record.settings.get("mix")) and record.best_epoch else ""
    return f"of epoch {record.best_epoch} of {record.epochs[-1].epoch}{by_score}{mix}"
