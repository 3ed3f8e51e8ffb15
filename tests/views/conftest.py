"""Fixtures: a browser, reports, and the page of `agent review`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from agent.evaluation.scoring import build_report
from agent.pipeline.history import Command, Execution, ModelCall, NodeRun
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.types import ErrorInfo, Pair, Status, TestReport
from agent.views.comparison import build_score_figures
from agent.views.report import Report
from tests.conftest import find_browser
from tests.views.browsing import COUNT, OpenReport, ReportOpener, make_small_run
from tests.views.review_runs import RunningReview, serve_review
from tests.views.runs import HOSTILE, IDENTITY, commit, make_pairs, make_program, make_run
from tests.views.test_comparison import make_row, make_table


@pytest.fixture(scope="package", autouse=True)
def fast_commands(commands: Path) -> None:
    """Start commands quickly, in milliseconds."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section."""
    folder = tmp_path_factory.mktemp("page")
    run = make_run(folder / "run", make_pairs(COUNT))
    gold = folder / "gold.jsonl"
    gold.write_text("".join(json.dumps({"id": f"p{n}", "label": n % 2}) + "\n" for n in range(COUNT)))
    table = make_table(make_row("full"), make_row("ps_fa", 0.8))
    with load_run(run) as view:
        labels = {f"p{n}": n % 2 for n in range(COUNT)}
        Report(view, ablation=table, gold=labels, against_gold=build_score_figures(build_report([run], gold))).write(
            folder / "r.html"
        )
    return folder / "r.html"


@pytest.fixture(scope="package")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on three pairs: one with hostile text in every field, a harmless one, and one with an empty id."""
    folder = tmp_path_factory.mktemp("hostile")
    report = TestReport(status=Status.ERROR, message=HOSTILE)
    events = (
        ModelCall(role=HOSTILE, key="k", reply=HOSTILE, model=HOSTILE, problem=HOSTILE,
                 messages=({"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE})),
        make_program(HOSTILE, stand_ins=(HOSTILE,)),
        Execution(program=0, report=report, stdout=HOSTILE, stderr=HOSTILE, installed=(HOSTILE,), environment=HOSTILE),
        Command(command=HOSTILE, outcome="ran", output=HOSTILE),
        Execution(program=0, report=report, purpose="sentinel"),
        NodeRun(node=HOSTILE, outcome=HOSTILE, seconds=1.0),
    )  # fmt: skip
    pair = Pair(id=HOSTILE, query=HOSTILE, code=HOSTILE, context=HOSTILE, meta={HOSTILE: HOSTILE})
    pairs = [pair, Pair(id="tame", query="tame", code="pass"), Pair(id="", query="", code="")]
    identity = {**IDENTITY, "model": {"default": {"model": HOSTILE}}}
    with RunFolder(folder / "run", identity=identity, pairs=pairs, environment={HOSTILE: HOSTILE}) as run:
        texts = {"reason": HOSTILE, "decided_by": HOSTILE, "stand_ins": (HOSTILE,), "reading": HOSTILE, "test": report}
        commit(run, 0, pair, events=events, **texts)
        commit(run, 1, pairs[1], label=None, error=ErrorInfo(type=HOSTILE, message=HOSTILE))
        commit(run, 2, pairs[2])
    with load_run(folder / "run") as view:
        Report(view).write(folder / "r.html")
    return folder / "r.html"


@pytest.fixture
def open_report(browser: Browser) -> Iterator[ReportOpener]:
    """Open reports. Afterwards, check that they sent no requests and logged nothing."""
    pages: list[OpenReport] = []

    def open_file(file: Path, width: int = 1280, fragment: str = "", **options: Any) -> OpenReport:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        pages.append(OpenReport(context.new_page(), file, fragment))
        return pages[-1]

    yield open_file
    for report in pages:
        assert report.page.evaluate("window.hit") is None
        assert (report.requests, report.console_messages) == ([], [])
        report.page.context.close()


class PageLog:
    """The console messages and requests of a page."""

    def __init__(self, page: Page) -> None:
        self.console_messages: list[str] = []
        self.addresses: list[str] = []
        page.on("console", lambda message: self.console_messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.console_messages.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the page of a server. Afterwards, check that it logged nothing and sent no requests elsewhere."""
    pages: list[tuple[Any, PageLog, RunningReview, bool]] = []

    def open_served(served: RunningReview, *, quiet: bool = True, **options: Any) -> Page:
        context = browser.new_context(**options)
        page = context.new_page()
        pages.append((context, PageLog(page), served, quiet))
        page.goto(served.output["url"])
        expect(page.locator("#work")).to_be_visible()
        return page

    yield open_served
    for context, log, served, quiet in pages:
        context.close()
        assert not quiet or log.console_messages == []
        assert {urlsplit(address).netloc for address in log.addresses if not address.startswith("data:")} == {
            served.host
        }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three pairs to review."""
    return make_small_run(tmp_path)


@pytest.fixture
def served(run: Path) -> Iterator[RunningReview]:
    """A running `agent review` of the run."""
    with serve_review(run) as served:
        yield served


@pytest.fixture
def page(served: RunningReview, open_page: Callable[..., Page]) -> Page:
    """The review page, which must log nothing."""
    return open_page(served)


@pytest.fixture
def page_with_errors(served: RunningReview, open_page: Callable[..., Page]) -> Page:
    """The review page, which may log failures."""
    return open_page(served, quiet=False)
