"""The review page in a browser: keyboard, drafts, failures, several reviewers, and hostile text."""

from __future__ import annotations

import json
import re
import resource
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from agent.runs.store.reviews import iterate_reviews, read_reviews
from agent.types import ErrorInfo
from tests.views.browsing import expect_saved, make_small_run, press
from tests.views.review_runs import HOSTILE, SECRET, RunningReview, make_run, serve_page, serve_review

pytestmark = pytest.mark.chromium


def test_a_reviewer_labels_three_pairs_by_keyboard(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    run = make_small_run(tmp_path)
    before = (run / "annotations.jsonl").read_bytes()
    with serve_review(run) as served:
        page = open_page(served)
        assert page.url == f"http://{served.host}{served.page}/"
        position = page.locator("#position")
        expect(position).to_have_text("1 of 3 · 0 reviewed")

        press(page, "1", "r")
        page.keyboard.type("it reverses; 0 and j are only text here")
        press(page, "Enter")
        expect_saved(page, "Saved: match.")
        expect(position).to_have_text("1 of 3 · 1 reviewed")
        press(page, "Enter")

        expect(position).to_have_text("2 of 3 · 1 reviewed")
        press(page, "0", "Enter")
        expect_saved(page, "Saved: no match.")
        press(page, "j")

        expect(position).to_have_text("3 of 3 · 2 reviewed")
        press(page, "c", "r")
        page.keyboard.type("two")
        press(page, "Shift+Enter")
        page.keyboard.type("readings")
        press(page, "Enter")
        expect_saved(page, "Ctrl-C")
        press(page, "u", "u")
        expect(position).to_have_text("2 of 3 · 3 reviewed")
        press(page, "c", "Enter")
        expect_saved(page, "Saved: cannot decide.")
    assert list_reviews(run) == [
        ("ann", 1, "it reverses; 0 and j are only text here", True),
        ("ann", 0, "", True), ("ann", None, "two\nreadings", True), ("ann", None, "", False),
    ]  # fmt: skip
    assert {review.id for review in list(iterate_reviews(run / "reviews.jsonl"))[:3]} == {"p0", "p1", "p2"}
    assert (run / "annotations.jsonl").read_bytes() == before


def test_other_servers_do_not_receive_the_cookie(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    cookies: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers["Cookie"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serve_review(make_small_run(tmp_path)) as served, HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page = open_page(served)
        assert len(page.context.cookies()) == 1
        page.context.new_page().goto(f"http://127.0.0.1:{other.server_port}/")
        other.shutdown()
    assert set(cookies) == {None}


def test_a_blind_reviewer_sees_the_evidence_after_the_commit(page: Page) -> None:
    evidence = page.locator("#evidence")
    press(page, "1")
    expect(evidence).to_be_hidden()
    assert SECRET not in page.content()
    press(page, "Enter")
    expect(evidence).to_contain_text("You agree")
    for part in (f"{SECRET} it does so", "test_wrong_0", f"{SECRET} 1 != 2", "def test_right_0()", "arbitrate"):
        expect(evidence).to_contain_text(part)
    press(page, "j")
    expect(page.locator("#position")).to_contain_text("2 of 3")
    expect(evidence).to_be_hidden()
    assert SECRET not in page.content()


def test_a_reviewer_who_is_not_blind_sees_the_evidence_immediately(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    broken = {"label": None, "error": ErrorInfo(type="ModelError", message="no reply"), "test": None, "reason": ""}
    rounds = {"rounds": [{"label": 0}, {"label": 1}, {"label": 1}]}
    run = make_run(tmp_path / "run", {"broken": broken, "rounds": rounds})
    with serve_review(run, "--no-blind", "--sample", "2", "--stratify", "") as served:
        page = open_page(served)
        order = [served.json(f"/api/pairs/{number}")["evidence"]["id"] for number in range(2)]
        for _ in range(order.index("rounds")):
            press(page, "j")
        evidence = page.locator("#evidence")
        expect(evidence).to_contain_text(re.compile(r"\b1 \(match\).* 3 rounds"))
        expect(evidence).to_contain_text("0, 1, 1")
        press(page, "k" if order.index("rounds") else "j")
        expect(page.locator("#evidence")).to_contain_text("no label")
        expect(page.locator("#evidence")).to_contain_text("ModelError: no reply")
        press(page, "0", "Enter")
        expect_saved(page, "Saved")
    assert [review.blind for review in read_reviews(run / "reviews.jsonl")] == [False]


def test_a_commit_requires_a_label_and_keys_open_help_and_guidelines(run: Path, page: Page) -> None:
    press(page, "Enter")
    expect(page.get_by_role("alert")).to_contain_text("label")
    for key in ("h", "?"):
        press(page, key)
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        press(page, key)
        expect(page.get_by_role("dialog")).to_be_hidden()
    press(page, "?")
    press(page, "1", "Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="1 Match", exact=True)).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_label("Reason")).to_have_value("")
    expect(page.locator("#guidelines-text")).to_be_visible()
    press(page, "g")
    expect(page.locator("#guidelines-text")).to_be_hidden()
    assert read_reviews(run / "reviews.jsonl") == []
    page.get_by_role("button", name="Help").click()
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    press(page, "0", "Enter")
    expect_saved(page, "Saved: no match.")
    assert len(read_reviews(run / "reviews.jsonl")) == 1


def test_mouse_clicks_commit_a_review_and_a_double_click_commits_once(run: Path, page: Page) -> None:
    page.get_by_role("button", name="No match").click()
    page.get_by_label("Reason").fill("it does not")
    page.get_by_role("button", name="Commit").dblclick()
    expect_saved(page, "Saved: no match.")
    expect(page.locator("#position")).to_have_text("1 of 3 · 1 reviewed")
    expect(page.locator("#evidence")).to_be_visible()
    page.get_by_role("button", name="Next pair").click()
    page.get_by_role("button", name="1 Match", exact=True).click()
    press(page, "Enter")
    expect_saved(page, "Saved: match.")
    assert [review.label for review in iterate_reviews(run / "reviews.jsonl")] == [0, 1]


def test_a_closed_tab_loses_neither_reviews_nor_drafts(served: RunningReview, page: Page) -> None:
    press(page, "1", "Enter")
    expect_saved(page, "Saved")
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


def test_keys_pressed_before_a_pair_loads_apply_to_it(run: Path, page: Page) -> None:
    waiting: list[Route] = []
    page.route("**/api/pairs/1", lambda route: route.continue_() if waiting else waiting.append(route))
    press(page, "1", "Enter")
    expect_saved(page, "Saved")
    with page.expect_request("**/api/pairs/1"):
        press(page, "Enter")
    press(page, "0", "r")
    page.keyboard.type("how? just so")
    expect(page.locator("#position")).to_contain_text("1 of 3")
    waiting[0].continue_()
    expect(page.locator("#position")).to_contain_text("2 of 3")
    expect(page.locator("#reason")).to_have_value("how? just so")
    press(page, "Enter")
    expect_saved(page, "Saved: no match.")
    assert [review[1:3] for review in list_reviews(run)] == [(1, ""), (0, "how? just so")]


def test_a_failed_write_shows_an_error_and_keeps_the_text(
    run: Path, served: RunningReview, page_with_errors: Page
) -> None:
    unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (10, unlimited[1]))
    press(page_with_errors, "1", "r")
    page_with_errors.keyboard.type("precious words")
    press(page_with_errors, "Enter")
    expect(page_with_errors.get_by_role("alert")).to_contain_text("Not saved.")
    expect(page_with_errors.get_by_role("alert")).to_contain_text("reviews.jsonl")
    expect(page_with_errors.locator("#reason")).to_have_value("precious words")
    expect(page_with_errors.locator("#position")).to_contain_text("0 reviewed")
    assert SECRET not in page_with_errors.content()
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, unlimited)
    press(page_with_errors, "Enter")
    expect_saved(page_with_errors, "Saved: match.")
    served.stop(signal.SIGKILL)
    press(page_with_errors, "0", "Enter")
    expect(page_with_errors.get_by_role("alert")).to_contain_text("server")
    assert [review.reason for review in read_reviews(run / "reviews.jsonl")] == ["precious words"]


def test_hostile_pairs_are_displayed_as_text(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    hostile = f"{HOSTILE}\u202eevil\x1b[31m</pre><b>"
    fields = {"reason": HOSTILE, "decided_by": HOSTILE, "stand_ins": (HOSTILE,), "reading": HOSTILE}
    run = make_run(
        tmp_path / "run",
        {f"{HOSTILE}{number}": fields for number in range(2)},
        query=hostile, code=hostile, context=hostile, language=HOSTILE, meta={HOSTILE: HOSTILE},
    )  # fmt: skip
    with serve_review(run, "--no-blind", reviewer=HOSTILE) as served:
        page = open_page(served)
        press(page, "1", "r")
        page.keyboard.type(HOSTILE)
        press(page, "Enter")
        expect_saved(page, "Saved")
        for place in ("#query", "#code", "#context", "#language", "#evidence", "#reviewer"):
            expect(page.locator(place)).to_contain_text(HOSTILE)
        expect(page.locator("#query .unseen")).to_have_text(["\\u202e", "\\x1b"])
        assert page.evaluate("document.querySelectorAll('main script, main img, main b').length") == 0
        assert page.evaluate("window.hacked") is None
    (review,) = read_reviews(run / "reviews.jsonl")
    assert (review.reason, review.reviewer) == (HOSTILE, HOSTILE)


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_content_fits_the_screen_with_sufficient_contrast(
    tmp_path: Path, open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    long = "def " + "x" * 300 + "():\n    return '" + "word " * 200 + "'\n"
    run = make_small_run(tmp_path, 1, query="q" * 300, code=long, context=long, meta={"k" * 200: "v" * 300})
    with serve_review(run) as served:
        page = open_page(served, viewport={"width": width, "height": 800}, color_scheme=scheme)
        press(page, "1", "Enter")
        expect(page.locator("#evidence")).to_be_visible()
        for details in page.locator("#evidence summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for place in ("#query", "#code", "#evidence pre", "#evidence dt", "#session", "#commit", "[aria-pressed=true]"):
            assert compute_contrast(page, place) >= 4.5, place


CONTRAST = """place => {
    const node = document.querySelector(place);
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const clear = (color) => { const parts = rgb(color); return parts.length === 4 && parts[3] === 0; };
    let behind = node;
    while (clear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const light = (color) => {
        const [r, g, b] = rgb(color).map((value) => value / 255)
            .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [one, two] = [light(getComputedStyle(node).color), light(getComputedStyle(behind).backgroundColor)];
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
}"""


def compute_contrast(page: Page, place: str) -> float:
    """Return the contrast ratio of a text against its background (WCAG 2.2, 1.4.3)."""
    ratio = page.evaluate(CONTRAST, place)
    assert isinstance(ratio, float | int), json.dumps(ratio)
    return ratio


NO_STORAGE = "() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }"


def change_reviewer(page: Page, name: str) -> None:
    """Change the reviewer by keyboard."""
    press(page, "n")
    expect(page.locator("dialog#who")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type(name)
    press(page, "Enter")
    expect(page.locator("#reviewer")).to_have_text(name)
    expect(page.locator("#status")).to_contain_text(name)


def list_reviews(run: Path) -> list[tuple[str, int | None, str, bool]]:
    reviews = iterate_reviews(run / "reviews.jsonl")
    return [(review.reviewer, review.label, review.reason, review.blind) for review in reviews]


def test_another_reviewer_takes_over_by_keyboard_and_starts_blind(run: Path, page: Page) -> None:
    expect(page.locator("#reviewer")).to_have_text("ann")
    press(page, "1", "Enter")
    expect_saved(page, "Saved: match.")
    expect(page.locator("#evidence")).to_contain_text(SECRET)
    change_reviewer(page, "bob")
    expect(page.locator("#position")).to_have_text("1 of 3 · 0 reviewed")
    expect(page.locator("#evidence")).to_be_hidden()
    assert SECRET not in page.content()
    press(page, "u")
    expect(page.locator("#status")).to_contain_text("undo")
    press(page, "0", "Enter")
    expect_saved(page, "Saved: no match.")
    change_reviewer(page, "ann")
    expect(page.locator("#position")).to_have_text("2 of 3 · 1 reviewed")
    assert list_reviews(run) == [("ann", 1, "", True), ("bob", 0, "", True)]


def test_a_change_of_name_can_be_cancelled_and_an_invalid_name_shows_an_error(
    served: RunningReview, page_with_errors: Page
) -> None:
    dialog = page_with_errors.get_by_role("dialog")
    press(page_with_errors, "n")
    page_with_errors.keyboard.type("bob")
    press(page_with_errors, "Escape", "Enter")
    expect(dialog).to_be_hidden()
    expect(page_with_errors.get_by_role("alert")).to_contain_text("label")
    expect(page_with_errors.locator("#reviewer")).to_have_text("ann")
    page_with_errors.get_by_role("button", name="Reviewer: ann").click()
    page_with_errors.get_by_label("Name", exact=True).fill("x" * 101)
    press(page_with_errors, "Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("100")
    expect(dialog).to_be_visible()
    page_with_errors.locator("#keep-name").click()
    expect(dialog).to_be_hidden()
    assert served.json("/api/session")["reviewer"] == "ann"


@pytest.mark.parametrize("stored", [True, False])
def test_drafts_belong_to_their_reviewer(run: Path, page: Page, stored: bool) -> None:
    if not stored:
        page.evaluate(NO_STORAGE)
    press(page, "0", "r")
    page.keyboard.type("half a thou")
    press(page, "Escape", "n")
    expect(page.locator("#who-draft")).to_contain_text("ann")
    press(page, "Escape")
    expect(page.locator("#reason")).to_have_value("half a thou")
    change_reviewer(page, "bob")
    expect(page.locator("#reason")).to_have_value("")
    expect(page.locator("[aria-pressed=true]")).to_have_count(0)
    press(page, "1", "r")
    page.keyboard.type("bob's")
    press(page, "Escape")
    change_reviewer(page, "ann")
    expect(page.locator("#reason")).to_have_value("half a thou")
    expect(page.locator("[data-label='0']")).to_have_attribute("aria-pressed", "true")
    press(page, "Enter")
    expect_saved(page, "Saved: no match.")
    change_reviewer(page, "bob")
    expect(page.locator("#reason")).to_have_value("bob's")
    assert list_reviews(run) == [("ann", 0, "half a thou", True)]


def test_a_page_saves_nothing_after_another_tab_changed_the_reviewer(
    run: Path, served: RunningReview, page_with_errors: Page
) -> None:
    served.json("/api/reviewer", {"reviewer": "bob"})
    press(page_with_errors, "1", "r")
    page_with_errors.keyboard.type("ann's own words")
    press(page_with_errors, "Enter")
    alert = page_with_errors.get_by_role("alert")
    expect(alert).to_contain_text("Not saved")
    expect(alert).to_contain_text("bob")
    expect(page_with_errors.locator("#reason")).to_have_value("ann's own words")
    press(page_with_errors, "Escape", "j")
    expect(alert).not_to_contain_text("Not saved")
    expect(alert).to_contain_text("bob")
    expect(page_with_errors.locator("#position")).to_contain_text("1 of 3")
    page_with_errors.reload()
    expect(page_with_errors.locator("#reviewer")).to_have_text("bob")
    expect(page_with_errors.locator("#reason")).to_have_value("")
    change_reviewer(page_with_errors, "ann")
    expect(page_with_errors.locator("#reason")).to_have_value("ann's own words")
    assert list_reviews(run) == []


@pytest.mark.parametrize("width", [400, 1280])
def test_a_hostile_name_is_displayed_as_text_and_a_long_one_fits(
    tmp_path: Path, open_page: Callable[..., Page], width: int
) -> None:
    long = HOSTILE + "x" * (100 - len(HOSTILE))
    run = make_small_run(tmp_path)
    with serve_review(run) as served:
        page = open_page(served, viewport={"width": width, "height": 800})
        press(page, "r")
        page.keyboard.type("mine")
        press(page, "Escape")
        change_reviewer(page, long)
        press(page, "1", "r")
        page.keyboard.type("theirs")
        press(page, "Escape", "n")
        expect(page.locator("#who-draft")).to_contain_text(long)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("header script, header img, dialog script, dialog img").count() == 0
        assert page.evaluate("window.hacked") is None
        press(page, "Escape", "Enter")
        expect_saved(page, "Saved: match.")
    assert [reviewer for reviewer, *_ in list_reviews(run)] == [long]


def test_two_snippets_are_compared_by_keyboard(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    for name in "ab":
        rows = [{"query": f"q{n}", "code": f"{name} {HOSTILE}", "label": 1} for n in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serve_page(tmp_path, "prefer", "a.jsonl", "b.jsonl", "-o", "out", "--reviewer", "ann") as served:
        page = open_page(served)
        codes = {page.locator(place).inner_text() for place in ("#context", "#code")}
        assert codes == {f"a {HOSTILE}", f"b {HOSTILE}"}
        for key, name in (("1", "first snippet"), ("2", "second snippet"), ("0", "no difference")):
            expect(page.locator(f"[aria-keyshortcuts='{key}']")).to_contain_text(name[1:])
            press(page, key, "Enter")
            expect_saved(page, f"Saved: {name}.")
            expect(page.locator("#evidence")).to_be_hidden()
            press(page, "j")
    assert [review.choice for review in read_reviews(tmp_path / "out/reviews.jsonl")] == ["first", "second", "tie"]


@pytest.mark.parametrize("height", [600, 900])
def test_two_long_snippets_are_side_by_side_with_the_buttons_in_view(
    tmp_path: Path, open_page: Callable[..., Page], height: int
) -> None:
    for name in ("a", "b"):
        code = f"def {name}():" + f"\n    {'pass; ' * 20}" * 200
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"query": "q", "code": code, "label": 1}))
    with serve_page(tmp_path, "prefer", "a.jsonl", "b.jsonl", "-o", "out", "--reviewer", "ann") as served:
        page = open_page(served, viewport={"width": 1280, "height": height})
        first, second = (page.locator(name).bounding_box() for name in ("#context", "#code"))
        assert first is not None
        assert second is not None
        assert (first["y"], first["width"]) == (second["y"], second["width"])
        assert first["x"] + first["width"] < second["x"]
        for button in page.locator(".choices button, #commit").all():
            expect(button).to_be_in_viewport(ratio=1)
