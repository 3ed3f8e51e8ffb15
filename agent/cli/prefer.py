"""`agent prefer`: a person or a model compares the snippets that two datasets give for the same queries."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

import typer

from agent.annotator import Annotator
from agent.cli.annotate import annotate_all
from agent.cli.exit_codes import SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.options import PreferOptions
from agent.cli.progress import Display
from agent.cli.running import check_writable, describe_finished, stoppable
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.corpus import preferences
from agent.corpus.preferences import Orders, Outcome, PreferenceCounts
from agent.datasets.formats import strip_suffixes
from agent.errors import UsageError
from agent.evaluation.statistics import mcnemar_exact
from agent.events import Note
from agent.llm.heuristic import HeuristicModel
from agent.runs.store import files
from agent.runs.store.reviews import ReviewLog, read_reviews
from agent.runs.store.run_view import get_variant_and_model, load_run
from agent.text import build_table, plural
from agent.tracing import export_traces
from agent.types import Comparison
from agent.views.searchers import format_p_value


def run(a: Path, b: Path, options: PreferOptions) -> None:
    """Collect preferences on the page or from a model, and print the result.

    Raises `UsageError` for invalid options and folders, and `typer.Exit` with code 1 (some errors) or 3 (stopped).
    """
    console = Console(stderr=True)
    _check_options(options)
    mcnemar_exact(0, 0)  # raises an error now if SciPy is not installed
    out = options.out or Path("runs") / f"prefer-{strip_suffixes(a)}-{strip_suffixes(b)}"
    if (out / files.ANNOTATIONS).exists():
        raise UsageError(f"-o: {out} is the folder of a run. Pass another folder.")
    with console.status(f"reading {one_line(str(a))} and {one_line(str(b))}"):
        drawn, queries = preferences.draw_comparisons(a, b, options.sample, options.seed, options.field_map)
    check_writable(out, None, named=options.out is not None)
    comparisons = [comparison for orders in drawn for comparison in orders]
    sample = hashlib.sha256("".join(comparison.input_sha256() for comparison in comparisons).encode()).hexdigest()[:16]
    if any(review.sample != sample or review.choice is None for review in read_reviews(out / files.REVIEWS)):
        problem = "has choices for other datasets, --sample or --seed, or choices of an earlier version"
        raise UsageError(f"{out} {problem}. Pass another folder (-o).")
    if options.model:
        _ask_model(out / "model", comparisons, options, console)
    pending = 0 if options.model else _serve_page(out, comparisons[::2], sample, options, console)
    compared = len(drawn)
    judges = [] if pending else _count_judges(out, drawn, sample)
    if options.as_json:
        listed = [judge.model_dump(mode="json") for judge in judges]
        counts = {"queries": queries, "compared": compared, "done": compared - pending, "pending": pending}
        print_json({"folder": str(out), "a": str(a), "b": str(b), "seed": options.seed, **counts, "judges": listed})
    else:
        sampled = f"{compared:,} of {plural(queries, 'query', 'queries')} for which A and B have different snippets"
        print_text(Console(), f"A: {a}\nB: {b}\n{sampled}\n{compared - pending:,} done, {pending:,} pending\n")
        if not pending:
            _print_judges(judges)
    if options.model and judges[0].errors:
        print_text(console, "Pass --retry-errors to ask again.")
        raise typer.Exit(SOME_ERRORS)


def _check_options(options: PreferOptions) -> None:
    page = {"--reviewer": options.reviewer, "--port": options.port, "--no-browser": not options.browser}
    if options.model and (flags := [flag for flag, value in page.items() if value]):
        raise UsageError(f"{', '.join(flags)}: these options belong to the review page. Remove --model.")
    if not options.model and (flags := [*options.collect_flags().values(), *["--retry-errors"] * options.retry_errors]):
        raise UsageError(f"{', '.join(flags)}: these options need a model. Add --model.")


def _serve_page(out: Path, comparisons: list[Comparison], sample: str, options: PreferOptions, console: Console) -> int:
    """Serve the page until Ctrl-C. Return the number of comparisons that the reviewer has not finished."""
    from agent.cli.review import choose_reviewer, serve_page
    from agent.views.queues import Queue, QueueEntry
    from agent.views.review_session import PREFERENCE_GUIDELINES, PreferenceSession

    by_id = {comparison.id: comparison for comparison in comparisons}
    session = PreferenceSession(
        queue=Queue(plural(len(comparisons), "query", "queries"), tuple(map(QueueEntry, by_id)), sample),
        reviewer=choose_reviewer(options.reviewer),
        blind=True,
        log=ReviewLog(out / files.REVIEWS),
        guidelines=PREFERENCE_GUIDELINES,
        comparisons=by_id,
    )
    serve_page(session, options, console)
    return len(session) - session.reviewed_count


def _ask_model(folder: Path, comparisons: list[Comparison], options: PreferOptions, console: Console) -> None:
    settings = ChosenSettings(console, options, overrides={"runner.rounds": 1, "pipeline.context": "none"})
    if isinstance((models := settings.models()).for_role("prefer"), HeuristicModel):
        raise UsageError("--model heuristic: has no rules for preferences. Pass the name of a model, or replay:FILE.")
    check_writable(folder, settings.cache)
    with Display(console) as display, export_traces(settings.config.tracing, lambda text: display(Note(text))):
        display.outcome_names = {"undecided": "compared", "error": "error"}
        annotator = Annotator(
            model=models,
            variant={"name": "prefer", "start": "prefer", "nodes": {"prefer": {"decided": "end"}}},
            prompts=settings.prompts,
            config=settings.config,
            run_dir=folder,
            cache=settings.cache,
            retry_errors=options.retry_errors,
            on_event=display,
        )
        with stoppable(console, lambda: f"Stored in {folder}: {describe_finished(folder, 1) or 'no pairs'}."):
            run_interruptible(annotate_all(annotator, comparisons))


def _count_judges(out: Path, drawn: list[Orders], sample: str) -> list[PreferenceCounts]:
    """Count the preferences of the model, if one was asked, and of each reviewer. Skip choices for other samples."""
    outcomes = defaultdict[str, list[Outcome]](list)
    if (out / "model" / files.ANNOTATIONS).exists():
        with load_run(out / "model") as view:
            name = f"model {get_variant_and_model(view.manifest)[1]}"
            outcomes[name] = preferences.collect_replies(view, drawn)
    for review in (review for review in read_reviews(out / files.REVIEWS) if review.sample == sample):
        outcomes[f"reviewer {review.reviewer}"].append(preferences.find_preferred(review.id, review.choice))
    return [preferences.count_preferences(name, listed, len(drawn)) for name, listed in outcomes.items()]


def _print_judges(judges: list[PreferenceCounts]) -> None:
    console = Console(piped_width=120)
    counts = ("prefer_a", "prefer_b", "ties", "position_dependent", "errors", "pending")
    columns = ("judge", *(name.replace("_", " ") for name in counts), "share of B", "95% interval", "p")
    rows = [
        (
            judge.judge,
            *(getattr(judge, name) for name in counts),
            judge.share,
            judge.interval,
            format_p_value(judge.p_value),
        )
        for judge in judges
    ]
    print_table(console, build_table(columns, rows))
    if all(judge.share is None for judge in judges):
        print_text(console, "No comparison is decided, so there is no share.")
