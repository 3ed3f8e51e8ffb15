"""The page in a real browser: finding and opening pairs, at any width, in light and dark, with hostile pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from agent.report import Report
from agent.report.ablation import Ablation
from agent.report.figures.gold import blocks as gold_blocks
from agent.scoring.report import report as scored
from agent.store import RunFolder, load_run
from agent.types import CommandRun, ErrorInfo, Evidence, Exchange, Execution, Pair, Status, TestReport, WrongOne
from tests.conftest import browser as browser_path
from tests.report.runs import HOSTILE, IDENTITY, commit, make_pairs, make_run
from tests.report.test_ablation import ablation, row

pytestmark = pytest.mark.chromium
COUNT = 130


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section."""
    folder = tmp_path_factory.mktemp("page")
    run = make_run(folder / "run", make_pairs(COUNT))
    gold = folder / "gold.jsonl"
    gold.write_text("".join(json.dumps({"id": f"p{n}", "label": n % 2}) + "\n" for n in range(COUNT)))
    table = Ablation.model_validate(ablation(row("full"), row("ps_fa", 0.8)))
    with load_run(run) as view:
        labels = {f"p{n}": n % 2 for n in range(COUNT)}
        Report(view, ablation=table, gold=labels, against_gold=gold_blocks(scored([run], gold))).write(
            folder / "r.html"
        )
    return folder / "r.html"


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a pair that is hostile wherever it has a text, and on a harmless one."""
    folder = tmp_path_factory.mktemp("hostile")
    report = TestReport(status=Status.ERROR, message=HOSTILE)
    evidence = {
        "exchanges": (
            Exchange(role=HOSTILE, key="k", reply=HOSTILE, model=HOSTILE, problem=HOSTILE,
                     messages=({"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE})),
        ),
        "executions": (Execution(source=HOSTILE, report=report, stdout=HOSTILE, stderr=HOSTILE, installed=(HOSTILE,)),),
        "commands": (CommandRun(command=HOSTILE, outcome="ran", output=HOSTILE),),
        "wrong_ones": (WrongOne(kind=HOSTILE, change=HOSTILE, status=Status.FAILED),),
        "template": HOSTILE,
    }  # fmt: skip
    pair = Pair(id=HOSTILE, query=HOSTILE, code=HOSTILE, context=HOSTILE, meta={HOSTILE: HOSTILE})
    pairs = [pair, Pair(id="tame", query="tame", code="pass"), Pair(id="", query="", code="")]
    identity = {**IDENTITY, "model": {"default": {"model": HOSTILE}}}
    with RunFolder.create_or_resume(
        folder / "run", identity=identity, pairs=pairs, environment={HOSTILE: HOSTILE}
    ) as run:
        texts = {"reason": HOSTILE, "decided_by": HOSTILE, "stand_ins": (HOSTILE,), "reading": HOSTILE, "test": report}
        commit(run, 0, pair, **texts)
        run._evidence.put(Evidence(pair=pair, **evidence))
        commit(run, 1, pairs[1], label=None, error=ErrorInfo(type=HOSTILE, message=HOSTILE))
        commit(run, 2, pairs[2])
    with load_run(folder / "run") as view:
        Report(view).write(folder / "r.html")
    return folder / "r.html"


class Opened:
    """A page, what it asked for besides its own file, and what it complained of."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.route("**/*", lambda route: self._guard(route, file.as_uri()))
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]")

    def _guard(self, route: Route, own: str) -> None:
        if route.request.url == own:
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    @property
    def ids(self) -> list[str]:
        """The ids of the rows that are shown."""
        return self.page.locator("#table tbody button.open").all_inner_texts()

    def pick(self, name: str, value: str) -> None:
        """Choose the value that begins so in a filter."""
        select = self.page.locator(f"select[name={name}]")
        texts = select.locator("option").all_inner_texts()
        select.select_option(index=next(number for number, text in enumerate(texts) if text.startswith(f"{value} (")))

    def draw_all(self) -> None:
        """Bring every chart into view, and wait until all are drawn."""
        for chart in self.page.locator(".chart").all():
            chart.scroll_into_view_if_needed()
            expect(chart.locator(".main-svg").first).to_be_attached()


Opener = Callable[..., Opened]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Opens reports; afterwards nothing was asked for and nothing was complained of."""
    pages: list[Opened] = []

    def opened(file: Path, width: int = 1280, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        pages.append(Opened(context.new_page(), file))
        return pages[-1]

    yield opened
    for each in pages:
        assert each.page.evaluate("window.hit") is None
        assert (each.requests, each.complaints) == ([], [])
        each.page.context.close()


def test_every_section_is_there_with_its_charts_drawn(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    view.draw_all()
    assert view.page.locator("main h2").all_inner_texts() == [
        "Labels", "Against people's labels", "Ablation", "Tests", "Repairs and stand-ins", "Confidence",
        "Cost and time", "Pairs", "How the run was made",
    ]  # fmt: skip
    assert view.page.locator(".chart").count() == view.page.locator(".chart[role=img][aria-label]").count() > 10
    ablation = view.page.locator("#ablation .chart").first
    assert ablation.locator(".errorbar").count() == 2
    assert view.page.locator("#gold h3").all_inner_texts() == ["Scores", "Where the labels are right", "Calibration"]


def test_a_search_finds_pairs_by_id_query_code_and_reason(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    pairs = make_pairs(COUNT)
    code = pairs[77].code.splitlines()[3].strip()
    with load_run(full_report.parent / "run") as run:
        found = run.annotation("p5")
    assert found is not None
    for text, expected in (("p99", "p99"), ("number 42", "p42"), (code.upper(), "p77"), (found.reason, "p5")):
        view.page.fill("#search", text)
        expect(view.page.locator("#count")).not_to_have_text(f"{COUNT} of {COUNT} pairs")
        assert expected in view.ids
        view.page.fill("#search", "")
        expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    view.page.fill("#search", "nothing like it")
    expect(view.page.locator("#count")).to_have_text(f"0 of {COUNT} pairs")
    assert view.ids == []


def test_filters_narrow_and_are_lifted(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    view.pick("label", "error")
    assert view.ids == ["p8", "p58", "p108"]
    view.page.get_by_role("button", name="Show all").click()
    expect(view.page.locator("#count")).to_have_text(f"{COUNT} of {COUNT} pairs")
    view.pick("status", "failed")
    view.pick("repairs", "some")
    assert view.ids == ["p0", "p60", "p120"]
    view.page.fill("#search", '"NUMBER 60"')
    expect(view.page.locator("#count")).to_have_text(f"1 of {COUNT} pairs")
    for name in ("decided_by", "screened", "cause", "stand_ins", "confidence", "gold"):
        assert view.page.locator(f"select[name={name}]").count() == 1


def test_rows_are_sorted_by_any_column_and_turned_page_by_page(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
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


def test_an_opened_pair_shows_what_led_to_its_label(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    with load_run(full_report.parent / "run") as run:
        annotation, evidence = run.annotation("p60"), run.evidence("p60")
    assert annotation is not None
    assert evidence is not None
    view.pick("repairs", "some")
    view.page.get_by_role("button", name="p60", exact=True).click()
    pair = view.page.locator("dialog#pair")
    expect(pair.locator("h2")).to_have_text("p60")
    told = pair.evaluate("pair => pair.textContent")
    texts = [evidence.pair.query, evidence.pair.code, annotation.reason, "FakeClient: a client", "swapped_comparison"]
    texts += [each.reply for each in evidence.exchanges]
    texts += [message["content"] for each in evidence.exchanges for message in each.messages]
    texts += [text for run_ in evidence.executions for text in (run_.source, run_.stdout)]
    texts += ["pip install numpy", "numpy==2.0", "No module named 'numpy'", '"source": "made"']
    assert [text for text in texts if text not in told] == []
    assert pair.get_by_text("Prompt", exact=True).first.locator("..").get_attribute("open") is None


def test_pairs_are_opened_and_left_by_keyboard(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
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


def test_an_open_pair_leads_on_over_the_pages_of_the_table(opened: Opener, full_report: Path) -> None:
    view = opened(full_report)
    view.page.get_by_role("button", name="p49", exact=True).click()
    view.page.get_by_role("button", name="Next pair").click()
    expect(view.page.locator("dialog#pair h2")).to_have_text("p50")
    view.page.get_by_role("button", name="Close").click()
    assert view.ids[0] == "p50"
    assert view.page.evaluate("document.activeElement.textContent") == "p50"


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


@pytest.mark.parametrize("width", [400, 900, 1280])
def test_nothing_is_scrolled_sideways(opened: Opener, full_report: Path, hostile_report: Path, width: int) -> None:
    for file in (full_report, hostile_report):
        view = opened(file, width)
        view.draw_all()
        for summary in view.page.locator("main summary").all():
            summary.click()
        assert view.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        view.page.locator("#table tbody button.open").first.click()
        expect(view.page.locator("dialog#pair")).to_be_visible()
        view.page.evaluate("for (const each of document.querySelectorAll('dialog details')) each.open = true")
        for box in ("dialog#pair", *("dialog pre", "dialog table")):
            wide = view.page.locator(box).evaluate_all(
                "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
            )
            assert wide == 0, box


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(opened: Opener, full_report: Path, scheme: str) -> None:
    view = opened(full_report, color_scheme=scheme)
    view.draw_all()
    before = _colours(view.page)
    assert before["light"] == (scheme == "light")
    view.page.locator("#theme").click()
    after = _colours(view.page)
    assert after["light"] != before["light"]
    assert after["chart"] != before["chart"]
    assert view.page.locator("#theme").get_attribute("aria-pressed") == str(scheme == "light").lower()


def _colours(page: Page) -> dict[str, Any]:
    script = """() => {
        const [red] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
        const text = document.querySelector('.chart .ytick text');
        return { light: red > 127, chart: getComputedStyle(text).fill };
    }"""
    found: dict[str, Any] = page.evaluate(script)
    return found


def test_on_paper_it_is_light_and_the_charts_are_all_there(opened: Opener, full_report: Path) -> None:
    view = opened(full_report, color_scheme="dark")
    view.page.emulate_media(media="print")
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert _colours(view.page)["chart"] == _colours(opened(full_report, color_scheme="light").page)["chart"]
    assert view.page.locator(".chart").count() == view.page.locator(".chart:has(.main-svg)").count()
    assert not view.page.locator("#filters").is_visible()


@pytest.mark.slow
def test_a_report_over_five_thousand_pairs_is_small_and_searched_whole(opened: Opener, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_pairs(5000))
    with load_run(run) as view:
        written = Report(view).write(tmp_path / "r.html")
    assert written.bytes < 15_000_000
    assert (written.listed, written.with_evidence) == (5000, 5000)
    found = opened(tmp_path / "r.html")
    expect(found.page.locator("#count")).to_have_text("5,000 of 5,000 pairs")
    assert found.page.locator("#table tbody tr").count() == 50
    found.page.fill("#search", '"number 4998"')
    expect(found.page.locator("#count")).to_have_text("1 of 5,000 pairs")
    found.page.get_by_role("button", name="p4998").click()
    expect(found.page.locator("dialog#pair h2")).to_have_text("p4998")
    assert make_pairs(5000)[4998].code in found.page.locator("dialog#pair").evaluate("pair => pair.textContent")
