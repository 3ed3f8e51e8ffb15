"""The page in a real browser: a reviewer's work by keyboard, and what hostile pairs come to."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from agent.store.reviews import iter_reviews, read_reviews
from agent.types import ErrorInfo
from tests.views.browsing import press, saved, some_run
from tests.views.review_runs import HOSTILE, SECRET, make_run, reviewing

pytestmark = pytest.mark.chromium


def test_a_reviewer_labels_three_pairs_by_keyboard(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    before = (run / "annotations.jsonl").read_bytes()
    with reviewing(run) as served:
        page = open_page(served)
        assert page.url == f"http://{served.host}{served.page}/"
        position = page.locator("#position")
        expect(position).to_have_text("1 of 3 · 0 reviewed")

        press(page, "1", "r")
        page.keyboard.type("it reverses; 0 and j are only text here")
        press(page, "Enter")
        saved(page, "Saved: match.")
        expect(position).to_have_text("1 of 3 · 1 reviewed")
        press(page, "Enter")

        expect(position).to_have_text("2 of 3 · 1 reviewed")
        press(page, "0", "Enter")
        saved(page, "Saved: no match.")
        press(page, "j")

        expect(position).to_have_text("3 of 3 · 2 reviewed")
        press(page, "?", "r")
        page.keyboard.type("two")
        press(page, "Shift+Enter")
        page.keyboard.type("readings")
        press(page, "Enter")
        saved(page, "All 3 are reviewed: end with Ctrl-C")
    reviews = list(iter_reviews(run / "reviews.jsonl"))
    assert [(each.label, each.reason, each.reviewer, each.blind) for each in reviews] == [
        (1, "it reverses; 0 and j are only text here", "ann", True),
        (0, "", "ann", True),
        (None, "two\nreadings", "ann", True),
    ]
    assert {each.id for each in reviews} == {"p0", "p1", "p2"}
    assert (run / "annotations.jsonl").read_bytes() == before


def test_no_other_server_of_the_machine_is_given_the_cookie(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    asked: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Cookie"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with reviewing(some_run(tmp_path)) as served, HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page = open_page(served)
        assert len(page.context.cookies()) == 1
        page.context.new_page().goto(f"http://127.0.0.1:{other.server_port}/")
        other.shutdown()
    assert set(asked) == {None}


def test_a_blind_reviewer_sees_the_evidence_after_the_commit(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with reviewing(some_run(tmp_path)) as served:
        page = open_page(served)
        evidence = page.locator("#evidence")
        press(page, "1")
        expect(evidence).to_be_hidden()
        assert SECRET not in page.content()
        press(page, "Enter")
        expect(evidence).to_contain_text("The run: 1 (match). You agree.")
        for part in (f"{SECRET} it does so", "test_wrong_0", f"{SECRET} 1 != 2", "def test_right_0()", "arbitrate"):
            expect(evidence).to_contain_text(part)
        press(page, "j")
        expect(page.locator("#position")).to_contain_text("2 of 3")
        expect(evidence).to_be_hidden()
        assert SECRET not in page.content()


def test_a_reviewer_is_told_the_majority_of_several_rounds(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = make_run(tmp_path / "run", {"a": {"rounds": [{"label": 0}, {"label": 1}, {"label": 1}]}})
    with reviewing(run) as served:
        page = open_page(served)
        press(page, "1", "Enter")
        evidence = page.locator("#evidence")
        expect(evidence).to_contain_text("The run: 1 (match), by the majority of 3 rounds. You agree.")
        expect(evidence).to_contain_text("round 0")


def test_a_reviewer_who_is_not_blind_sees_all_at_once(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    broken = {"label": None, "error": ErrorInfo(type="ModelError", message="no reply"), "test": None, "reason": ""}
    run = make_run(tmp_path / "run", {"broken": broken})
    with reviewing(run, "--no-blind") as served:
        page = open_page(served)
        expect(page.locator("#evidence")).to_contain_text("The run: no label, an error")
        expect(page.locator("#evidence")).to_contain_text("ModelError: no reply")
        press(page, "0", "Enter")
        saved(page, "Saved")
    assert [each.blind for each in read_reviews(run / "reviews.jsonl")] == [False]


def test_undo_goes_back_to_the_last_commit_and_a_new_line_takes_its_place(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        press(page, "1", "r")
        page.keyboard.type("hasty")
        press(page, "Enter")
        saved(page, "Saved")
        press(page, "Enter")
        expect(page.locator("#position")).to_contain_text("2 of 3")
        press(page, "u")
        expect(page.locator("#position")).to_contain_text("1 of 3")
        expect(page.locator("#reason")).to_have_value("hasty")
        press(page, "0", "Enter")
        saved(page, "Saved: no match.")
    lines = list(iter_reviews(run / "reviews.jsonl"))
    assert [(each.label, each.blind) for each in lines] == [(1, True), (0, False)]
    assert len(read_reviews(run / "reviews.jsonl")) == 1


def test_a_label_is_asked_for_and_help_lists_the_keys(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        press(page, "Enter")
        expect(page.get_by_role("alert")).to_have_text("Choose a label first: 1, 0 or ?.")
        press(page, "h")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        press(page, "1", "Enter")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("button", name="1 Match", exact=True)).to_have_attribute("aria-pressed", "false")
        expect(page.get_by_label("Reason")).to_have_value("")
        expect(page.get_by_text("answers the query completely")).to_be_visible()
        press(page, "g")
        expect(page.get_by_text("answers the query completely")).to_be_hidden()
        assert read_reviews(run / "reviews.jsonl") == []
        page.get_by_role("button", name="Keys").click()
        press(page, "Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        press(page, "0", "Enter")
        saved(page, "Saved: no match.")
    assert len(read_reviews(run / "reviews.jsonl")) == 1


def test_the_mouse_does_it_too(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        page.get_by_role("button", name="No match").click()
        page.get_by_label("Reason").fill("it does not")
        page.get_by_role("button", name="Commit").click()
        saved(page, "Saved: no match.")
        page.get_by_role("button", name="Next pair").click()
        page.get_by_role("button", name="1 Match", exact=True).click()
        press(page, "Enter")
        saved(page, "Saved: match.")
    assert [each.label for each in read_reviews(run / "reviews.jsonl")] == [0, 1]


def test_a_closed_tab_loses_neither_reviews_nor_drafts(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with reviewing(some_run(tmp_path)) as served:
        page = open_page(served)
        press(page, "1", "Enter")
        saved(page, "Saved")
        press(page, "Enter", "0", "r")
        page.keyboard.type("half a thou")
        expect(page.locator("#reason")).to_have_value("half a thou")
        context = page.context
        page.close()
        again = context.new_page()
        again.goto(f"http://{served.host}{served.page}/")
        expect(again.locator("#position")).to_have_text("2 of 3 · 1 reviewed")
        expect(again.locator("#reason")).to_have_value("half a thou")
        expect(again.locator("[data-label='0']")).to_have_attribute("aria-pressed", "true")


def test_keys_that_come_before_the_pair_does_are_meant_for_it(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        waiting: list[Route] = []
        page.route("**/api/pairs/1", lambda route: route.continue_() if waiting else waiting.append(route))
        press(page, "1", "Enter")
        saved(page, "Saved")
        with page.expect_request("**/api/pairs/1"):
            press(page, "Enter")
        press(page, "0", "r")
        page.keyboard.type("how? just so")
        expect(page.locator("#position")).to_contain_text("1 of 3")
        waiting[0].continue_()
        expect(page.locator("#position")).to_contain_text("2 of 3")
        expect(page.locator("#reason")).to_have_value("how? just so")
        press(page, "Enter")
        saved(page, "Saved: no match.")
    assert [(each.label, each.reason) for each in read_reviews(run / "reviews.jsonl")] == [(1, ""), (0, "how? just so")]


def test_clicks_that_come_before_the_pair_does_are_meant_for_it(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run, waiting = some_run(tmp_path), list[Route]()
    with reviewing(run) as served:
        page = open_page(served)
        page.route("**/api/pairs/1", lambda route: route.continue_() if waiting else waiting.append(route))
        with page.expect_request("**/api/pairs/1"):
            page.get_by_role("button", name="Next pair").click()
        page.locator("[data-label='1']").dispatch_event("click")
        page.locator("#form").dispatch_event("submit")
        expect(page.locator("#position")).to_have_text("1 of 3 · 0 reviewed")
        waiting[0].continue_()
        saved(page, "Saved: match.")
        expect(page.locator("#position")).to_have_text("2 of 3 · 1 reviewed")


def test_a_double_click_commits_once_and_does_not_go_past_the_evidence(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served)
        press(page, "1")
        page.locator("#commit").dblclick()
        saved(page, "Saved: match.")
        expect(page.locator("#position")).to_have_text("1 of 3 · 1 reviewed")
        expect(page.locator("#evidence")).to_be_visible()
    assert len(read_reviews(run / "reviews.jsonl")) == 1


def test_a_failed_write_is_told_and_the_text_stays(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = some_run(tmp_path)
    with reviewing(run) as served:
        page = open_page(served, quiet=False)
        unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (10, unlimited[1]))
        press(page, "1", "r")
        page.keyboard.type("precious words")
        press(page, "Enter")
        expect(page.get_by_role("alert")).to_contain_text("Not saved.")
        expect(page.get_by_role("alert")).to_contain_text("cannot be written")
        expect(page.locator("#reason")).to_have_value("precious words")
        expect(page.locator("#position")).to_contain_text("0 reviewed")
        assert SECRET not in page.content()
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, unlimited)
        press(page, "Enter")
        saved(page, "Saved: match.")
        served.process.kill()
        served.process.wait()
        press(page, "0", "Enter")
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    assert [each.reason for each in read_reviews(run / "reviews.jsonl")] == ["precious words"]


def test_hostile_pairs_stay_text(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    hostile = f"{HOSTILE}\u202eevil\x1b[31m</pre><b>"
    fields = {"reason": HOSTILE, "decided_by": HOSTILE, "stand_ins": (HOSTILE,), "reading": HOSTILE}
    run = make_run(
        tmp_path / "run",
        {f"{HOSTILE}{number}": fields for number in range(2)},
        query=hostile, code=hostile, context=hostile, language=HOSTILE, meta={HOSTILE: HOSTILE},
    )  # fmt: skip
    with reviewing(run, "--no-blind", reviewer=HOSTILE) as served:
        page = open_page(served)
        press(page, "1", "r")
        page.keyboard.type(HOSTILE)
        press(page, "Enter")
        saved(page, "Saved")
        for place in ("#query", "#code", "#context", "#language", "#evidence", "#reviewer"):
            expect(page.locator(place)).to_contain_text(HOSTILE)
        expect(page.locator("#query .unseen")).to_have_text(["\\u202e", "\\x1b"])
        assert page.evaluate("document.querySelectorAll('main script, main img, main b').length") == 0
        assert page.evaluate("window.hacked") is None
    (review,) = read_reviews(run / "reviews.jsonl")
    assert (review.reason, review.reviewer) == (HOSTILE, HOSTILE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_screen_and_all_of_it_can_be_read(
    tmp_path: Path, open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    long = "def " + "x" * 300 + "():\n    return '" + "word " * 200 + "'\n"
    run = some_run(tmp_path, 1, query="q" * 300, code=long, context=long, meta={"k" * 200: "v" * 300})
    with reviewing(run) as served:
        page = open_page(served, viewport={"width": width, "height": 800}, color_scheme=scheme)
        press(page, "1", "Enter")
        expect(page.locator("#evidence")).to_be_visible()
        for details in page.locator("#evidence summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for place in ("#query", "#code", "#evidence pre", "#evidence dt", "#session", "#commit", "[aria-pressed=true]"):
            assert contrast(page, place) >= 4.5, place


CONTRAST = """place => {
    const node = document.querySelector(place);
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const clear = (color) => { const parts = rgb(color); return parts.length === 4 && parts[3] === 0; };
    let behind = node;
    while (clear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const light = (color) => {
        const [r, g, b] = rgb(color).map((each) => each / 255)
            .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [one, two] = [light(getComputedStyle(node).color), light(getComputedStyle(behind).backgroundColor)];
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
}"""


def contrast(page: Page, place: str) -> float:
    """Return the contrast of a text against what is behind it (WCAG 2.2, 1.4.3)."""
    ratio = page.evaluate(CONTRAST, place)
    assert isinstance(ratio, float | int), json.dumps(ratio)
    return ratio
