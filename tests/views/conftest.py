"""A browser, reports to open in it, and the page of `agent review`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from agent.evaluation.scoring import build_report
from agent.history import Command, Exchange, Execution, Mutant, Visit
from agent.store import RunFolder, load_run
from agent.types import ErrorInfo, Pair, Status, TestReport
from agent.views.comparison import build_gold_figures
from agent.views.report import Report
from tests.conftest import find_browser as browser_path
from tests.views.browsing import COUNT, Opened, Opener, some_run
from tests.views.review_runs import Served, reviewing
from tests.views.runs import HOSTILE, IDENTITY, commit, make_pairs, make_run, program
from tests.views.test_comparison import row, table_of


@pytest.fixture(scope="package", autouse=True)
def quick(commands: Path) -> None:
    """Have commands start in milliseconds."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section."""
    folder = tmp_path_factory.mktemp("page")
    run = make_run(folder / "run", make_pairs(COUNT))
    gold = folder / "gold.jsonl"
    gold.write_text("".join(json.dumps({"id": f"p{n}", "label": n % 2}) + "\n" for n in range(COUNT)))
    table = table_of(row("full"), row("ps_fa", 0.8))
    with load_run(run) as view:
        labels = {f"p{n}": n % 2 for n in range(COUNT)}
        Report(view, ablation=table, gold=labels, against_gold=build_gold_figures(build_report([run], gold))).write(
            folder / "r.html"
        )
    return folder / "r.html"


@pytest.fixture(scope="package")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a pair that is hostile wherever it has a text, and on a harmless one."""
    folder = tmp_path_factory.mktemp("hostile")
    report = TestReport(status=Status.ERROR, message=HOSTILE)
    events = (
        Exchange(role=HOSTILE, key="k", reply=HOSTILE, model=HOSTILE, problem=HOSTILE,
                 messages=({"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE})),
        program(HOSTILE, stand_ins=(HOSTILE,)),
        Execution(program=0, report=report, stdout=HOSTILE, stderr=HOSTILE, installed=(HOSTILE,), environment=HOSTILE),
        Command(command=HOSTILE, outcome="ran", output=HOSTILE),
        Execution(program=0, report=report, purpose="mutant", mutant=Mutant(kind=HOSTILE, change=HOSTILE)),
        Visit(node=HOSTILE, outcome=HOSTILE, seconds=1.0),
    )  # fmt: skip
    pair = Pair(id=HOSTILE, query=HOSTILE, code=HOSTILE, context=HOSTILE, meta={HOSTILE: HOSTILE})
    pairs = [pair, Pair(id="tame", query="tame", code="pass"), Pair(id="", query="", code="")]
    identity = {**IDENTITY, "model": {"default": {"model": HOSTILE}}}
    with RunFolder(folder / "run", identity=identity, pairs=pairs, environment={HOSTILE: HOSTILE}) as run:
        texts = {"reason": HOSTILE, "decided_by": HOSTILE, "stand_ins": (HOSTILE,), "reading": HOSTILE, "test": report}
        commit(run, 0, pair, happened=events, **texts)
        commit(run, 1, pairs[1], label=None, error=ErrorInfo(type=HOSTILE, message=HOSTILE))
        commit(run, 2, pairs[2])
    with load_run(folder / "run") as view:
        Report(view).write(folder / "r.html")
    return folder / "r.html"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Opens reports; afterwards nothing was asked for and nothing was complained of."""
    pages: list[Opened] = []

    def opened(file: Path, width: int = 1280, fragment: str = "", **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        pages.append(Opened(context.new_page(), file, fragment))
        return pages[-1]

    yield opened
    for each in pages:
        assert each.page.evaluate("window.hit") is None
        assert (each.requests, each.complaints) == ([], [])
        each.page.context.close()


class Seen:
    """What a page said and asked for."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.addresses: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens the page of a server; at the end nothing may have been complained of, nor asked of anybody else."""
    opened: list[tuple[Any, Seen, Served, bool]] = []

    def open_one(served: Served, *, quiet: bool = True, **options: Any) -> Page:
        context = browser.new_context(**options)
        page = context.new_page()
        opened.append((context, Seen(page), served, quiet))
        page.goto(served.printed["url"])
        expect(page.locator("#work")).to_be_visible()
        return page

    yield open_one
    for context, seen, served, quiet in opened:
        context.close()
        assert not quiet or seen.complaints == []
        assert {urlsplit(address).netloc for address in seen.addresses if not address.startswith("data:")} == {
            served.host
        }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three pairs, to be reviewed."""
    return some_run(tmp_path)


@pytest.fixture
def served(run: Path) -> Iterator[Served]:
    """The review of that run, at work."""
    with reviewing(run) as served:
        yield served


@pytest.fixture
def page(served: Served, open_page: Callable[..., Page]) -> Page:
    """Its page, which may complain of nothing."""
    return open_page(served)


@pytest.fixture
def noisy(served: Served, open_page: Callable[..., Page]) -> Page:
    """Its page, where something is to fail."""
    return open_page(served, quiet=False)
