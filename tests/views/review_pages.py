"""What tests of the page share: a run to review, keys, and waiting for a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.views.review_runs import make_report, make_run


def some_run(folder: Path, count: int = 3, **pair_fields: Any) -> Path:
    annotations = {f"p{number}": {"label": 1, "test": make_report(1, 1)} for number in range(count)}
    return make_run(folder / "run", annotations, **pair_fields)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def saved(page: Page, told: str) -> None:
    """Wait until a commit is told to be saved and the evidence has come."""
    expect(page.locator("#status")).to_contain_text(told)
    expect(page.locator("#commit")).to_have_attribute("aria-disabled", "false")
