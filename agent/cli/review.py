"""`agent review`: serves a web page on which a person labels a run's pairs."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
import threading
import webbrowser
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

from agent.cli.interrupts import run_interruptible
from agent.cli.options import PageOptions, ReviewOptions
from agent.cli.progress import Steps
from agent.cli.text import Console, print_json, print_text
from agent.errors import UsageError, needs_extra
from agent.retrieval.searchers.base import report_progress
from agent.runs.store import files
from agent.runs.store.reviews import ReviewLog, read_reviews
from agent.runs.store.run_view import RunView, load_run
from agent.runs.store.samples import EVIDENCE
from agent.text import plural
from agent.types import Annotation
from agent.views.queues import (
    Queue,
    QueueKind,
    SampleRequest,
    build_query_queue,
    build_queue,
    build_sample_queue,
    load_or_draw_sample,
    parse_kinds,
)
from agent.views.review_session import LabelSession, ReviewSession, get_guidelines, parse_reviewer_name

with needs_extra("review"):
    from agent.views.server import Gate, listen, serve


def run(folder: Path, options: ReviewOptions) -> None:
    """Serve the page until Ctrl-C, then print what was written and how to resume.

    Raises:
        UsageError: the options contradict each other, or the folder is not a run.
        StorageError: reviews cannot be written.
    """
    fields = None if options.stratify is None else options.stratify.split(",")
    by = None if fields is None else tuple(name for part in fields if (name := part.strip()))
    request, kinds = SampleRequest(size=options.sample, by=by, seed=options.seed), parse_kinds(options.queue or ())
    if options.only is not None:
        if kinds:
            raise UsageError("--only cannot be combined with --queue. Pass one of them.")
        kinds = (options.only,)
    if kinds and (request != SampleRequest() or options.new_sample):
        raise UsageError(
            "--queue cannot be combined with --sample, --stratify, --seed or --new-sample. Pass --queue to correct "
            "labels, or --sample to estimate their quality."
        )
    if options.queries is not None and (kinds or request != SampleRequest() or options.new_sample or not options.blind):
        raise UsageError("--queries cannot be combined with options for queues and samples, or with --no-blind.")
    if options.limit is not None and not kinds:
        raise UsageError("--limit applies only to --queue. To set the size of a sample, pass --sample.")
    console = Console(stderr=True)
    reviewer = choose_reviewer(options.reviewer)
    with load_run(folder) as view:
        guidelines = get_guidelines(view.manifest)
        log = ReviewLog(folder / files.REVIEWS)
        queue = _load_queue(view, options, kinds, request, console)
        if not queue.entries:
            print_text(console, f"Nothing to review in {folder}: {queue.title}.")
            return
        session = ReviewSession(
            view=view, queue=queue, reviewer=reviewer, blind=options.blind, log=log, guidelines=guidelines
        )
        serve_page(session, options, console)
    if session.reviewed_count:
        arguments = ["score", str(folder)]
        if options.queries is not None:
            arguments = ["retrieval", "score", str(folder.parent), "--reviews"]
        print_text(console, f"To use the reviews, run:\n  {shlex.join(['agent', *arguments])}")


def serve_page(session: LabelSession, options: PageOptions, console: Console) -> None:
    """Serve the page until Ctrl-C, then print what was written and how to resume."""
    reviewer, listener, gate = session.reviewer, listen(options.port), Gate()
    port = listener.getsockname()[1]
    with suppress(KeyboardInterrupt):
        run_interruptible(serve(session, gate, listener, lambda: _announce(options, console, session, gate, port)))
    written = f"{plural(session.log.written, 'review')} written to {session.log.path}"
    print_text(
        console,
        f"\n{written}; {session.reviewed_count:,} of {plural(len(session), 'pair')} reviewed by {session.reviewer}.",
    )
    if session.reviewed_count < len(session):
        # the sample exists now
        arguments = [word for word in sys.argv[1:] if word != "--new-sample"]
        reviewer_option = [] if session.reviewer == reviewer else ["--reviewer", session.reviewer]
        print_text(console, f"To resume, run:\n  {shlex.join(['agent', *arguments, *reviewer_option])}")


def _load_queue(
    view: RunView, options: ReviewOptions, kinds: tuple[QueueKind, ...], request: SampleRequest, console: Console
) -> Queue:
    step = "reading the run"
    with Steps(console) as steps:
        if not kinds and options.queries is None:

            def iterate_annotations() -> Iterable[Annotation]:
                return report_progress(view.annotations(), step, steps, len(view.index))

            sample = load_or_draw_sample(view, request, iterate_annotations, new=options.new_sample)
            if sample.by == (EVIDENCE,) and not options.blind:
                raise UsageError("--no-blind: reviews of a sample by evidence must be blind. Others count as wrong.")
            return build_sample_queue(sample, view)
        pairs = report_progress(view.index.group_by_pair(), step, steps, view.index.pair_count)
        if options.queries is not None:
            return build_query_queue(pairs, options.queries)
        return build_queue(kinds, pairs, read_reviews(view.path / files.REVIEWS), options.limit)


def choose_reviewer(name: str | None) -> str:
    """Validate the reviewer's name. The default is the name of the user."""
    if name is None:
        try:
            name = getpass.getuser()
        except (KeyError, OSError) as error:
            raise UsageError("cannot determine your user name. Pass --reviewer NAME.") from error
    try:
        return parse_reviewer_name(name)
    except UsageError as error:
        raise UsageError(f"--reviewer: {error}") from None


def _announce(options: PageOptions, console: Console, session: LabelSession, gate: Gate, port: int) -> None:
    page = f"http://127.0.0.1:{port}/"
    url = f"{page}?token={gate.token}"
    if options.as_json:
        print_json(
            {
                "url": url,
                "run": str(session.log.path.parent),
                "reviews": str(session.log.path),
                "queue": session.queue.title,
                "pairs": len(session),
                "reviewed": session.reviewed_count,
                "reviewer": session.reviewer,
                "blind": session.blind,
            }
        )
        return
    print_text(console, f"{session.queue.title}; {session.reviewed_count} reviewed by {session.reviewer}")
    typer.echo(url)
    print_text(console, "Press Ctrl-C to stop. The page confirms each review once it is saved.")
    if options.browser and _has_desktop():
        # in a thread, because opening some browsers blocks until the page has loaded
        threading.Thread(target=webbrowser.open, args=(f"{page}?token={gate.issue_ticket()}",), daemon=True).start()


def _has_desktop() -> bool:
    """Return whether the user of this terminal would see a browser window."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
