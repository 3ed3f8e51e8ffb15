"""Who reviews is seen and changed on the page, and what one wrote is never another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from agent.store.reviews import read_reviews
from tests.views.browsing import press, saved, some_run
from tests.views.review_runs import HOSTILE, SECRET, reviewing

pytestmark = pytest.mark.chromium

NO_STORAGE = "() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }"


def take_name(page: Page, name: str) -> None:
    """Change who reviews, by keyboard."""
    press(page, "n")
    expect(page.get_by_role("dialog", name="Who reviews")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type(name)
    press(page, "Enter")
    expect(page.locator("#reviewer")).to_have_text(name)
    expect(page.locator("#status")).to_contain_text(f"You review as {name}.")


def reviews_of(run: Path) -> list[tuple[str, int | None, str, bool]]:
    return [(each.reviewer, each.label, each.reason, each.blind) for each in read_reviews(run / "reviews.jsonl")]


def test_another_reviewer_takes_over_by_keyboard_and_begins_blind(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        expect(page.locator("#reviewer")).to_have_text("ann")
        press(page, "1", "Enter")
        saved(page, "Saved: match.")
        expect(page.locator("#evidence")).to_contain_text(SECRET)
        take_name(page, "bob")
        expect(page.locator("#position")).to_have_text("1 of 3 · 0 reviewed")
        expect(page.locator("#evidence")).to_be_hidden()
        assert SECRET not in page.content()
        press(page, "u")
        expect(page.locator("#status")).to_have_text("There is nothing to undo.")
        press(page, "0", "Enter")
        saved(page, "Saved: no match.")
        take_name(page, "ann")
        expect(page.locator("#position")).to_have_text("2 of 3 · 1 reviewed")
    assert reviews_of(run) == [("ann", 1, "", True), ("bob", 0, "", True)]


def test_a_name_can_be_left_as_it_was_and_what_is_no_name_is_told(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    with reviewing(some_run(tmp_path)) as served:
        page = open_page(served, quiet=False)
        dialog = page.get_by_role("dialog")
        press(page, "n")
        page.keyboard.type("bob")
        press(page, "Escape", "Enter")
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("alert")).to_have_text("Choose a label first: 1, 0 or ?.")
        expect(page.locator("#reviewer")).to_have_text("ann")
        page.get_by_role("button", name="Reviewer: ann").click()
        page.get_by_label("Name", exact=True).fill("x" * 101)
        press(page, "Enter")
        expect(dialog.get_by_role("alert")).to_have_text("a name is one line of at most 100 visible characters")
        expect(dialog).to_be_visible()
        page.get_by_role("button", name="Leave it").click()
        expect(dialog).to_be_hidden()
        assert served.json("/api/session")["reviewer"] == "ann"


# the browser tells that a dialog was closed a moment later, when it may be open again
OPEN_AT_ONCE = """async () => {
    document.getElementById("who").close();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
    await new Promise((resolve) => setTimeout(resolve, 100));
}"""


def test_a_dialog_that_is_opened_again_at_once_has_the_focus(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with reviewing(some_run(tmp_path)) as served:
        page = open_page(served)
        press(page, "n")
        page.evaluate(OPEN_AT_ONCE)
        expect(page.get_by_label("Name", exact=True)).to_be_focused()


@pytest.mark.parametrize("stored", [True, False])
def test_what_was_half_written_stays_with_who_wrote_it(
    tmp_path: Path, open_page: Callable[..., Page], stored: bool
) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        if not stored:
            page.evaluate(NO_STORAGE)
        press(page, "0", "r")
        page.keyboard.type("half a thou")
        press(page, "Escape", "n")
        expect(page.get_by_text("What you wrote of this pair and did not commit is kept for ann.")).to_be_visible()
        press(page, "Escape")
        expect(page.locator("#reason")).to_have_value("half a thou")
        take_name(page, "bob")
        expect(page.locator("#reason")).to_have_value("")
        expect(page.locator("[aria-pressed=true]")).to_have_count(0)
        press(page, "1", "r")
        page.keyboard.type("bob's")
        press(page, "Escape")
        take_name(page, "ann")
        expect(page.locator("#reason")).to_have_value("half a thou")
        expect(page.locator("[data-label='0']")).to_have_attribute("aria-pressed", "true")
        press(page, "Enter")
        saved(page, "Saved: no match.")
        take_name(page, "bob")
        expect(page.locator("#reason")).to_have_value("bob's")
    assert reviews_of(run) == [("ann", 0, "half a thou", True)]


def test_a_commit_on_its_way_is_of_who_gave_it(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        waiting: list[Route] = []
        page.route(
            "**/api/pairs/0",
            lambda route: route.continue_() if waiting or route.request.method == "GET" else waiting.append(route),
        )
        press(page, "1")
        with page.expect_request(lambda request: request.method == "POST"):
            press(page, "Enter")
        press(page, "n")
        page.keyboard.type("bob 2")
        press(page, "Enter")
        expect(page.locator("#reviewer")).to_have_text("ann")
        waiting[0].continue_()
        expect(page.locator("#reviewer")).to_have_text("bob 2")
        expect(page.locator("#position")).to_have_text("1 of 3 · 0 reviewed")
        expect(page.locator("[aria-pressed=true]")).to_have_count(0)
    assert reviews_of(run) == [("ann", 1, "", True)]


def test_a_page_whose_reviewer_was_changed_elsewhere_saves_and_shows_nothing(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served, quiet=False)
        served.json("/api/reviewer", {"reviewer": "bob"})
        press(page, "1", "r")
        page.keyboard.type("ann's own words")
        press(page, "Enter")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Not saved. This page reviews as ann, and the session as bob by now")
        expect(page.locator("#reason")).to_have_value("ann's own words")
        press(page, "Escape", "j")
        expect(alert).to_contain_text("Another tab has changed the reviewer to bob")
        expect(page.locator("#position")).to_contain_text("1 of 3")
        page.reload()
        expect(page.locator("#reviewer")).to_have_text("bob")
        expect(page.locator("#reason")).to_have_value("")
        take_name(page, "ann")
        expect(page.locator("#reason")).to_have_value("ann's own words")
    assert reviews_of(run) == []


def test_when_the_first_pair_does_not_come_it_is_told_and_nothing_of_the_other_is_left(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    with reviewing(some_run(tmp_path)) as served:
        page = open_page(served, quiet=False)
        press(page, "1", "Enter")
        saved(page, "Saved")
        page.route("**/api/pairs/*", lambda route: route.abort())
        press(page, "n")
        page.keyboard.type("bob")
        press(page, "Enter")
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
        assert SECRET not in page.content()
        press(page, "1", "Enter")
        page.unroute("**/api/pairs/*")
        press(page, "j")
        expect(page.locator("#position")).to_have_text("2 of 3 · 0 reviewed")
        expect(page.locator("[aria-pressed=true]")).to_have_count(0)
        press(page, "k")
        expect(page.locator("#position")).to_have_text("1 of 3 · 0 reviewed")
        expect(page.locator("[aria-pressed=true]")).to_have_count(0)


@pytest.mark.parametrize("width", [400, 1280])
def test_a_hostile_name_stays_text_and_a_long_one_fits(
    tmp_path: Path, open_page: Callable[..., Page], width: int
) -> None:
    long = HOSTILE + "x" * (100 - len(HOSTILE))
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served, viewport={"width": width, "height": 800})
        press(page, "r")
        page.keyboard.type("mine")
        press(page, "Escape")
        take_name(page, long)
        press(page, "1", "r")
        page.keyboard.type("theirs")
        press(page, "Escape", "n")
        expect(page.get_by_text(f"kept for {long}.")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert (
            page.evaluate("document.querySelectorAll('header script, header img, dialog script, dialog img').length")
            == 0
        )
        assert page.evaluate("window.hacked") is None
        press(page, "Escape", "Enter")
        saved(page, "Saved: match.")
    assert [reviewer for reviewer, *_ in reviews_of(run)] == [long]
