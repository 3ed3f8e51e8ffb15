"""The report in a browser: searching and opening pairs, layout, themes, printing, and hostile text."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from agent.runs.store.run_view import load_run
from agent.views.report import Report
from tests.views.browsing import COUNT, ReportOpener
from tests.views.reading import ReportPage
from tests.views.runs import make_pairs, make_run

pytestmark = pytest.mark.chromium
# Opens an address and returns the table's count of pairs.
FOLLOW = """hash => new Promise((done) => {
    location.hash = hash;
    setTimeout(() => done(document.querySelector("#count").textContent), 20);
})"""


def test_every_section_appears_and_its_charts_are_drawn(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    view.draw_all()
    sections = view.page.locator("main section[id]").evaluate_all("all => all.map(one => one.id)")
    assert " ".join(sections) == "labels gold ablation tests repairs spending pairs dataset run"
    assert "" not in view.page.locator("main h2").all_inner_texts()
    assert view.page.locator(".chart").count() == view.page.locator(".chart[role=img][aria-label]").count() > 10
    ablation = view.page.locator("#ablation .chart").first
    assert ablation.locator(".errorbar").count() == 2
    assert view.page.locator("#gold .chart").count() == 2


def test_a_search_finds_pairs_by_id_query_code_and_reason(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    pairs = make_pairs(COUNT)
    code = pairs[77].code.splitlines()[3].strip()
    with load_run(full_report.parent / "run") as run:
        annotation = run.annotation("p5")
    assert annotation is not None
    for text, expected in (("p99", "p99"), ("number 42", "p42"), (code.upper(), "p77"), (annotation.reason, "p5")):
        view.page.fill("#search", text)
        expect(view.page.locator("#count")).not_to_have_text(f"{COUNT} of {COUNT} pairs")
        assert expected in view.ids
        view.page.fill("#search", "")
        expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    view.page.fill("#search", "nothing like it")
    expect(view.page.locator("#count")).to_have_text(f"0 of {COUNT} pairs")
    assert view.ids == []
    expect(view.page.locator("#nothing")).to_be_visible()
    view.page.get_by_role("button", name="Show all").click()
    expect(view.page.locator("#nothing")).to_be_hidden()
    assert len(view.ids) > 0


def test_filters_narrow_the_table_and_can_be_removed(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    view.select_filter("label", "error")
    assert view.ids == ["p8", "p58", "p108"]
    view.page.get_by_role("button", name="Show all").click()
    expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    view.select_filter("status", "failed")
    view.select_filter("repairs", "some")
    assert view.ids == ["p0", "p60", "p120"]
    view.page.fill("#search", '"NUMBER 60"')
    expect(view.page.locator("#count")).to_have_text(f"1 of {COUNT} pairs")
    for name in ("decided_by", "screened", "cause", "stand_ins", "gold"):
        assert view.page.locator(f"select[name={name}]").count() == 1


def test_every_bar_counts_the_pairs_that_the_table_lists_for_it(open_report: ReportOpener, full_report: Path) -> None:
    view, read = open_report(full_report), ReportPage(full_report)
    bars = [
        (chart["alt"], filter_, value)
        for section in read.document["sections"]
        for chart in (block["chart"] for block in section["blocks"] if block["chart"] is not None)
        for trace in chart["traces"] if trace["type"] == "bar"
        for filter_, value in zip(trace["customdata"], trace["x"], strict=True) if filter_ is not None
    ]  # fmt: skip
    assert len(bars) > 30
    for alt, filter_, value in bars:
        count = int(view.page.evaluate(FOLLOW, urlencode(filter_)).split()[0])
        assert count > 0, alt
        if not alt.startswith(("Seconds", "US dollars")):
            assert count == value, (alt, filter_)


def test_a_click_on_a_bar_lists_its_pairs_as_removable_filters(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    view.select_filter("repairs", "some")
    chart = view.page.locator(".chart[aria-label^='Labels by test outcome']")
    chart.scroll_into_view_if_needed()
    chart.locator(".point path").first.click(force=True)
    parts = view.page.locator("#chosen button")
    expect(parts).to_have_text(["Test: passed", "Label: 1"])
    expect(view.page.locator("#count")).to_be_focused()
    expect(view.page.locator("#pairs-title")).to_be_in_viewport()
    assert view.page.locator("select[name=status]").input_value() == "passed"
    view.page.get_by_role("button", name="Remove: Label: 1").click()
    expect(parts).to_have_text(["Test: passed"])
    view.page.get_by_role("button", name="Remove: Test: passed").click()
    expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    expect(view.page.locator("#chosen")).to_be_hidden()


def test_a_link_opens_the_same_view(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    view.page.fill("#search", "number")
    expect(view.page.locator("#chosen")).to_be_visible()
    view.select_filter("decided_by", "screen")
    view.page.locator("#table th button", has_text="pair").click()
    view.page.locator("#table tbody button.open").nth(2).click()
    expect(view.page.locator("dialog#pair")).to_be_visible()
    again = open_report(full_report, fragment=view.page.evaluate("location.hash"))
    expect(again.page.locator("dialog#pair h2")).to_have_text(view.page.locator("dialog#pair h2").inner_text())
    assert again.ids == view.ids
    assert again.page.locator("#count").inner_text() == view.page.locator("#count").inner_text()
    assert again.page.locator("#search").input_value() == "number"
    again.page.keyboard.press("ArrowRight")
    again.page.keyboard.press("Escape")
    expect(again.page.locator("dialog#pair")).to_be_hidden()
    assert "pair=" not in again.page.evaluate("location.hash")


def test_browser_back_and_forward_move_between_views(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    count, pair = view.page.locator("#count"), view.page.locator("dialog#pair")
    view.select_filter("label", "error")
    view.page.get_by_role("button", name="p58", exact=True).click()
    expect(pair.locator("h2")).to_have_text("p58")
    view.page.keyboard.press("ArrowRight")
    expect(pair.locator("h2")).to_have_text("p108")
    view.page.go_back()
    expect(pair).to_be_hidden()
    expect(count).to_have_text(f"3 of {COUNT} pairs")
    view.page.go_forward()
    expect(pair.locator("h2")).to_have_text("p108")
    view.page.keyboard.press("Escape")
    expect(pair).to_be_hidden()
    view.page.locator("#contents a").first.click()
    expect(count).to_have_text(f"3 of {COUNT} pairs")
    assert view.page.evaluate("location.hash") == "#label=error"
    view.page.go_back()
    view.page.go_back()
    expect(count).to_have_text(f"{COUNT} of {COUNT} pairs")
    assert view.page.locator("select[name=label]").input_value() == ""


def test_rows_can_be_sorted_and_paged(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    view.page.get_by_role("button", name="Next").click()
    assert view.ids[0] == "p50"
    head = view.page.locator("#table th").first
    head.get_by_role("button").click()
    assert view.ids[:3] == ["p0", "p1", "p10"]
    head.get_by_role("button").click()
    assert view.ids[:2] == ["p99", "p98"]
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert view.ids[:2] == ["p0", "p1"]


def test_an_open_pair_shows_the_evidence_for_its_label(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    with load_run(full_report.parent / "run") as run:
        annotation, history = run.annotation("p60"), run.evidence("p60")
    assert annotation is not None
    assert history is not None
    view.select_filter("repairs", "some")
    view.page.get_by_role("button", name="p60", exact=True).click()
    pair = view.page.locator("dialog#pair")
    expect(pair.locator("h2")).to_have_text("p60")
    content = pair.evaluate("pair => pair.textContent")
    texts = [history.pair.query, history.pair.code, annotation.reason, "FakeClient: a client", "sentinel run"]
    texts += [model_call.reply for model_call in history.model_calls]
    texts += [message["content"] for model_call in history.model_calls for message in model_call.messages]
    texts += [program.source for program in history.programs]
    texts += [execution.stdout for execution in history.executions]
    texts += ["pip install numpy", "numpy==2.0", "No module named 'numpy'", '"source": "made"']
    assert [text for text in texts if text not in content] == []
    assert pair.get_by_text("Prompt", exact=True).first.locator("..").get_attribute("open") is None


def test_pairs_are_opened_and_closed_by_keyboard(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    keyboard, pair = view.page.keyboard, view.page.locator("dialog#pair")
    view.page.get_by_role("button", name="p0", exact=True).focus()
    keyboard.press("ArrowDown")
    keyboard.press("Enter")
    expect(pair.locator("h2")).to_have_text("p1")
    keyboard.press("ArrowRight")
    expect(pair.locator("h2")).to_have_text("p2")
    keyboard.press("ArrowLeft")
    expect(pair.locator("h2")).to_have_text("p1")
    keyboard.press("Escape")
    expect(pair).not_to_be_visible()
    assert view.page.evaluate("document.activeElement.textContent") == "p1"
    view.page.get_by_role("button", name="p49", exact=True).click()
    view.page.get_by_role("button", name="Next pair").click()
    expect(pair.locator("h2")).to_have_text("p50")
    view.page.get_by_role("button", name="Close").click()
    assert (view.ids[0], view.page.evaluate("document.activeElement.textContent")) == ("p50", "p50")


def test_legends_do_not_cover_bars_on_a_narrow_page(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report, 400)
    view.draw_all()
    over = view.page.locator(".chart:has(.legend)").evaluate_all(
        "all => all.filter(one => one.querySelector('.legend .bg').getBoundingClientRect().bottom > "
        "one.querySelector('.bglayer, .plot').getBoundingClientRect().top + 1).map(one => one.ariaLabel)"
    )
    assert over == []


@pytest.mark.parametrize("width", [400, 1280])
def test_no_element_scrolls_horizontally(
    open_report: ReportOpener, full_report: Path, hostile_report: Path, width: int
) -> None:
    for file in (full_report, hostile_report):
        view = open_report(file, width)
        view.draw_all()
        for summary in view.page.locator("main summary").all():
            summary.click()
        assert view.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        view.page.locator("#table tbody button.open").first.click()
        expect(view.page.locator("dialog#pair")).to_be_visible()
        view.page.evaluate("for (const part of document.querySelectorAll('dialog details')) part.open = true")
        for box in ("dialog#pair", *("dialog pre", "dialog table")):
            wide = view.page.locator(box).evaluate_all(
                "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
            )
            assert wide == 0, box


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(open_report: ReportOpener, full_report: Path, scheme: str) -> None:
    view = open_report(full_report, color_scheme=scheme)
    view.draw_all()
    before = _read_colours(view.page)
    assert before["light"] == (scheme == "light")
    view.page.locator("#theme").click()
    after = _read_colours(view.page)
    assert after["light"] != before["light"]
    assert after["chart"] != before["chart"]
    assert view.page.locator("#theme").get_attribute("aria-pressed") == str(scheme == "light").lower()


def _read_colours(page: Page) -> dict[str, Any]:
    script = """() => {
        const [red] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
        const text = document.querySelector('.chart .ytick text');
        return { light: red > 127, chart: getComputedStyle(text).fill };
    }"""
    colours: dict[str, Any] = page.evaluate(script)
    return colours


def test_printing_uses_the_light_theme_and_includes_all_charts(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report, color_scheme="dark")
    view.page.emulate_media(media="print")
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert (
        _read_colours(view.page)["chart"] == _read_colours(open_report(full_report, color_scheme="light").page)["chart"]
    )
    assert view.page.locator(".chart").count() == view.page.locator(".chart:has(.main-svg)").count()
    assert not view.page.locator("#filters").is_visible()


CUT = """selector => [...document.querySelectorAll(selector)].filter(one =>
    one.offsetParent && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)
).map(one => `${one.className} ${one.textContent.slice(0, 30)}`)"""


def test_printing_truncates_nothing_and_includes_every_matching_row(
    open_report: ReportOpener, full_report: Path
) -> None:
    view = open_report(full_report, fragment="#label=1")
    count = int(view.page.locator("#count").inner_text().split()[0])
    assert view.page.locator("#table tbody tr").count() == 50 < count
    view.page.set_viewport_size({"width": 718, "height": 900})  # A4 with a browser's usual margins
    view.page.emulate_media(media="print")
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.page.locator("#table tbody tr").count() == count
    assert view.page.evaluate(CUT, ".chart, .block, .clamp, td, th") == []
    wide = "all => all.filter(one => one.getBoundingClientRect().right > innerWidth).length"
    assert view.page.locator("main .main-svg, main table").evaluate_all(wide) == 0
    expect(view.page.locator("#chosen")).to_have_text("Label: 1")
    view.page.emulate_media(media="screen")
    view.page.set_viewport_size({"width": 1280, "height": 900})
    view.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.page.locator("#table tbody tr").count() == 50
    widest = view.page.locator("#spending .chart .main-svg").last.evaluate("one => one.clientWidth")
    assert widest > 1000


def test_an_open_pair_prints_completely(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report, fragment="#pair=p60")
    expect(view.page.locator("dialog#pair")).to_be_visible()
    view.page.evaluate("for (const part of document.querySelectorAll('dialog details')) part.open = true")
    pdf = view.page.pdf(format="A4")
    assert pdf.count(b"/Type /Page\n") >= 3
    view.page.emulate_media(media="print")
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.page.evaluate(CUT, "dialog, dialog pre, dialog h2") == []
    expect(view.page.locator("#pair-close")).to_be_hidden()
    expect(view.page.locator("main")).to_be_hidden()


def test_hostile_text_is_displayed_as_text_everywhere(open_report: ReportOpener, hostile_report: Path) -> None:
    view = open_report(hostile_report)
    view.draw_all()
    hostile = view.page.evaluate("plain => plain", "</script><script>window.hit = 1; alert(1)</script>")
    assert hostile in view.page.locator("#table tbody").inner_text()
    assert view.page.locator("#table tbody script, #table tbody img, #table tbody a").count() == 0
    view.page.locator("#table tbody button.open").first.click()
    pair = view.page.locator("dialog#pair")
    expect(pair).to_be_visible()
    assert pair.locator("script, img, a, iframe, object, form").count() == 0
    # everywhere: query, code, context, reason, replies, prompts, program, output, commands, fields, facts
    assert pair.evaluate("pair => pair.textContent").count(hostile) >= 22
    view.page.keyboard.press("ArrowRight")
    expect(pair.locator("h2")).to_have_text("tame")
    assert hostile in pair.inner_text()
    view.page.keyboard.press("ArrowRight")
    expect(pair.locator("h2")).to_have_text("(no id)")
    assert view.page.locator("a[href]:not([href^='#'])").count() == 0


def test_hidden_and_bidirectional_characters_are_shown_as_escapes(
    open_report: ReportOpener, hostile_report: Path
) -> None:
    view = open_report(hostile_report)
    view.draw_all()
    view.page.locator("#table tbody button.open").first.click()
    expect(view.page.locator("dialog#pair")).to_be_visible()
    text = view.page.evaluate(
        "document.querySelector('main').textContent + document.querySelector('dialog').textContent"
    )
    assert not set(text) & set("\x00\x1b\u202e\u2066\u200b\u2028\u2029\ud800\U000e0041")
    code = view.page.locator("dialog#pair section", has=view.page.get_by_role("heading", name="code")).inner_text()
    for escape in ("\\x1b[31mred", "\\u202eesrever\\u2066", "\\x00", "\\u200b", "\\ud800", "\\U000e0041", "&lt;b&gt;"):
        assert escape in code


def test_the_policy_blocks_scripts_that_write_markup(open_report: ReportOpener, full_report: Path) -> None:
    view = open_report(full_report)
    for attempt in (
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">')",
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))",
        "new Promise((yes, no) => setTimeout(() => { try { yes(eval('window.hit = 1')) } catch (e) { no(e) } }))",
        "fetch('https://evil.example/')",
    ):
        is_blocked = view.page.evaluate(
            f"(async () => {{ try {{ await {attempt}; return false }} catch {{ return true }} }})()"
        )
        assert is_blocked, attempt
    assert view.console_messages
    view.console_messages.clear()


@pytest.mark.slow
def test_a_report_on_five_thousand_pairs_is_small_and_fully_searchable(
    open_report: ReportOpener, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", make_pairs(5000))
    with load_run(run) as view:
        written = Report(view).write(tmp_path / "r.html")
    assert written.bytes < 15_000_000
    assert (written.listed, written.with_evidence) == (5000, 5000)
    report = open_report(tmp_path / "r.html")
    expect(report.page.locator("#count")).to_have_text("5,000 of 5,000 pairs")
    assert report.page.locator("#table tbody tr").count() == 50
    report.page.fill("#search", '"number 4998"')
    expect(report.page.locator("#count")).to_have_text("1 of 5,000 pairs")
    report.page.get_by_role("button", name="p4998").click()
    expect(report.page.locator("dialog#pair h2")).to_have_text("p4998")
    assert make_pairs(5000)[4998].code in report.page.locator("dialog#pair").evaluate("pair => pair.textContent")
