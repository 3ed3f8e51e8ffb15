"""Hostile pairs in a real browser: what they hold is shown as text, nothing of it runs, loads or hides."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.views.browsing import Opener

pytestmark = pytest.mark.chromium


def test_hostile_text_is_shown_as_text_wherever_it_is(opened: Opener, hostile_report: Path) -> None:
    view = opened(hostile_report)
    view.draw_all()
    shown = view.page.evaluate("plain => plain", "</script><script>window.hit = 1; alert(1)</script>")
    assert shown in view.page.locator("#table tbody").inner_text()
    assert view.page.locator("#table tbody script, #table tbody img, #table tbody a").count() == 0
    view.page.locator("#table tbody button.open").first.click()
    pair = view.page.locator("dialog#pair")
    expect(pair).to_be_visible()
    assert pair.locator("script, img, a, iframe, object, form").count() == 0
    # the same text in every place: query, code, context, reason, replies, prompts, program, output, commands, fields
    assert pair.evaluate("pair => pair.textContent").count(shown) >= 17
    view.page.keyboard.press("ArrowRight")
    expect(pair.locator("h2")).to_have_text("tame")
    assert shown in pair.inner_text()
    assert view.page.locator("a[href]:not([href^='#'])").count() == 0


def test_characters_that_hide_or_turn_text_are_shown_as_escapes(opened: Opener, hostile_report: Path) -> None:
    view = opened(hostile_report)
    view.draw_all()
    view.page.locator("#table tbody button.open").first.click()
    expect(view.page.locator("dialog#pair")).to_be_visible()
    whole = view.page.evaluate(
        "document.querySelector('main').textContent + document.querySelector('dialog').textContent"
    )
    assert not set(whole) & set("\x00\x1b\u202e\u2066\u200b\u2028\u2029\ud800\U000e0041")
    code = view.page.locator("dialog#pair section", has_text="Code").first.inner_text()
    for escape in ("\\x1b[31mred", "\\u202eesrever\\u2066", "\\x00", "\\u200b", "\\ud800", "\\U000e0041", "&lt;b&gt;"):
        assert escape in code


def test_a_pair_without_a_name_can_be_opened(opened: Opener, hostile_report: Path) -> None:
    view = opened(hostile_report)
    view.page.get_by_role("button", name="(no id)").click()
    expect(view.page.locator("dialog#pair h2")).to_have_text("(no id)")


def test_even_a_script_that_writes_markup_may_not(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    for attempt in (
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">')",
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))",
        "new Promise((yes, no) => setTimeout(() => { try { yes(eval('window.hit = 1')) } catch (e) { no(e) } }))",
        "fetch('https://evil.example/')",
    ):
        refused = view.page.evaluate(
            f"(async () => {{ try {{ await {attempt}; return false }} catch {{ return true }} }})()"
        )
        assert refused, attempt
    assert view.complaints
    view.complaints.clear()
