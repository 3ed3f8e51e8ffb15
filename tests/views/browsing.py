"""Helpers for tests of the report and the review page in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.views.review_runs import make_report, make_run

COUNT = 130


class OpenReport:
    """A report that is open in a browser. Records requests to other addresses and console messages."""

    def __init__(self, page: Page, file: Path, fragment: str = "") -> None:
        self.page = page
        self.requests: list[str] = []
        self.console_messages: list[str] = []
        page.on("console", lambda message: self.console_messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.console_messages.append(str(error)))
        page.route("**/*", lambda route: self._guard(route, file.as_uri()))
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]")

    def _guard(self, route: Route, address: str) -> None:
        if route.request.url.partition("#")[0] == address:
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    @property
    def ids(self) -> list[str]:
        """The ids of the visible rows."""
        return self.page.locator("#table tbody button.open").all_inner_texts()

    def select_filter(self, name: str, value: str) -> None:
        """Select a value in a filter."""
        select = self.page.locator(f"select[name={name}]")
        texts = select.locator("option").all_inner_texts()
        select.select_option(index=next(number for number, text in enumerate(texts) if text.startswith(f"{value} (")))

    def draw_all(self) -> None:
        """Scroll every chart into view and wait until all are drawn."""
        for chart in self.page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            expect(chart.locator(".main-svg").first).to_be_attached()


ReportOpener = Callable[..., OpenReport]


def make_small_run(folder: Path, count: int = 3, **pair_fields: Any) -> Path:
    annotations = {f"p{number}": {"label": 1, "test": make_report(1, 1)} for number in range(count)}
    return make_run(folder / "run", annotations, **pair_fields)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def expect_saved(page: Page, text: str) -> None:
    """Wait until the page confirms a commit and shows the evidence."""
    expect(page.locator("#status")).to_contain_text(text)
    expect(page.locator("#commit")).to_have_attribute("aria-disabled", "false")
