"""Implements `agent corpus fill`, which asks a model for code for the queries of a run without a match."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import typer

from agent.cli.corpus_options import FillOptions
from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.progress import Display
from agent.cli.running import check_corpus_output, check_writable, stoppable
from agent.cli.settings import ChosenSettings, print_unused_options
from agent.cli.summary import format_cost
from agent.cli.text import Console, print_json, print_text
from agent.corpus.fill import WRITING, fill, find_gaps, write_results
from agent.corpus.output import open_output
from agent.errors import UsageError
from agent.evaluation.ablation import choose_variants, make_budget
from agent.events import Note
from agent.exports.rows import format_left_out
from agent.pipeline.graph import always_tests, collect_roles
from agent.runs.store.run_view import load_run
from agent.text import plural
from agent.tracing import export_traces

_SKIPPED = {
    "no_intent": "without search intent",
    "error": "with a pair that ended in an error",
    "pending": "with a pair that is not annotated yet",
    "language": "in a language that cannot be tested",
}


def run(source: Path, out: Path, variant: str, attempts: int, *, force: bool, options: FillOptions) -> None:
    """Write the pairs whose code matches, and print a summary. Always raises a `typer.Exit` with an exit code.

    Raises:
        UsageError: the run, an option or the output is invalid.
    """
    notes = Console(stderr=True)
    folder = out.with_suffix(".runs")
    (tests,) = choose_variants([variant])
    if not always_tests(tests):
        remedy = "Pass --variant no_screen, or remove the screener, as in rule_arbiter-without-screen."
        raise UsageError(f"the variant {tests.name} can label a pair without a test. {remedy}")
    settings = ChosenSettings(notes, options, overrides={"runner.rounds": 1, "pipeline.context": "none"})
    config = settings.config
    models = settings.models()
    runs = folder / "written", folder / "tested"
    roles = (*collect_roles(WRITING), *collect_roles(tests))
    writer, *others = (str(models.for_role(role).identity().get("model")) for role in roles)
    check_corpus_output(out, [source], force=force)
    with load_run(source) as view:
        gaps, skipped = find_gaps(view, writer)
    gaps = gaps[: options.limit]
    check_writable(folder, settings.cache)
    print_unused_options(notes, options, [WRITING, tests], models)
    shared = {"model": models, "config": config, "prompts": settings.prompts, "cache": settings.cache}
    shared |= {"budget": make_budget(runs, models, config.runner), "retry_errors": options.retry_errors}
    with (
        stoppable(notes, f"Finished work is stored in {folder}."),
        Display(notes) as display,
        export_traces(config.tracing, lambda text: display(Note(text))),
    ):
        gaps = run_interruptible(fill(gaps, runs, tests, attempts, on_event=display, **shared))
    with open_output(out) as results:
        write_results(gaps, results)
    spent = make_budget(runs, models, config.runner)
    failed = results.removed["no match"]
    errors = results.removed["error"]
    if options.as_json:
        counts = {"without_match": len(gaps), "filled": results.kept, "not_filled": failed, "errors": errors}
        usage = {"tokens": spent.before_tokens, "cost_usd": spent.before_usd, "model": writer}
        print_json({"out": str(out), **counts, "skipped": skipped, **usage, "independent": writer not in others})
    else:
        console = Console()
        filled = f"{results.kept:,} of {plural(len(gaps), 'query', 'queries')} without a match filled"
        failures = f"{failed:,} not filled after {plural(attempts, 'attempt')}, {plural(errors, 'error')}"
        tokens = "unknown" if spent.before_tokens is None else f"{spent.before_tokens:,}"
        print_text(console, f"{out}: {filled}, {failures}\ntokens: {tokens}, {format_cost(spent.before_usd)}")
        if skipped:
            reasons = {_SKIPPED[status]: count for status, count in skipped.items()}
            print_text(console, f"skipped queries: {format_left_out(reasons)}")
        if errors:
            print_text(console, "Pass --retry-errors --force to ask again for the queries that ended in an error.")
        if results.kept and writer in others:
            print_text(console, f"This is no independent check, because {writer} also tests or judges its own code.")
        if results.kept:
            print_text(console, f"Next: agent review {quote(str(runs[1]))} --only generated")
    raise typer.Exit(SOME_ERRORS if errors else DONE)
