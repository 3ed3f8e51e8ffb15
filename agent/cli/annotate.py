"""`agent annotate`: labels pairs and writes a run folder."""

from __future__ import annotations

from pathlib import Path

import typer

from agent.cli.annotating import annotate_pairs, forecast_pairs, print_outcome, print_remedy, read_setup
from agent.cli.estimate import report_estimate
from agent.cli.options import RunOptions
from agent.cli.summary import as_json
from agent.cli.text import Console, print_json
from agent.errors import UsageError
from agent.store.run_view import load_run


def run(
    pairs: list[Path],
    without: tuple[str, ...],
    options: RunOptions,
    *,
    dry_run: bool = False,
    like: Path | None = None,
) -> None:
    """Annotate pairs, show progress and print a summary. In a dry run, only print an estimate.

    Raises:
        UsageError: invalid options or input.
        typer.Exit: with exit code 0 (done), 1 (some errors) or 3 (stopped).
    """
    console = Console(stderr=True)
    if like is not None and not dry_run:
        raise UsageError("--like selects the run on which to base an estimate. Pass it together with --dry-run.")
    # an estimate calls no model, so no API key is needed
    setup = read_setup(pairs, without, options, console, api_key="none" if dry_run else None)
    if dry_run:
        report_estimate(forecast_pairs(setup, like), setup.out, console, as_json=options.as_json)
        return
    outcome = annotate_pairs(setup, console)
    if outcome.stop_error is None and not options.as_json:
        print_outcome(outcome)
    elif outcome.stop_error is None:
        with load_run(setup.out) as view:
            print_json(
                as_json(
                    outcome.tally,
                    run=str(setup.out),
                    wall_seconds=round(outcome.seconds, 3),
                    annotated_now=outcome.new_annotations,
                    spent_usd=view.spent_usd(),
                    replies_elsewhere=view.replies_elsewhere,
                )
            )
    print_remedy(outcome, console)
    raise typer.Exit(outcome.exit_code)
