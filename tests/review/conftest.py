"""The page of `agent review` in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import browser as browser_path
from tests.review.runs import Served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


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
        page.goto(served.told["url"])
        expect(page.locator("#work")).to_be_visible()
        return page

    yield open_one
    for context, seen, served, quiet in opened:
        context.close()
        assert not quiet or seen.complaints == []
        assert {urlsplit(address).netloc for address in seen.addresses if not address.startswith("data:")} == {
            served.host
        }
