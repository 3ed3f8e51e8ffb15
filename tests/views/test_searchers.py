"""The section on searchers: figures of the scores, drawn and in tables; a page of its own; hostile names are text."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.results import Comparisons, RetrievalScores
from agent.retrieval.scores import update_comparison, update_scores
from agent.store import load_run
from agent.views.report import Report, write_section
from agent.views.searchers import build_searcher_cards, build_searcher_figures
from tests.retrieval.pooled import RANKINGS, add_rankings, make_folder
from tests.views.browsing import Opener
from tests.views.reading import Read
from tests.views.runs import HOSTILE, make_pairs, make_run

NAME = HOSTILE.replace("\ud800", "")


def scored(folder: Path, *, rankings: object = RANKINGS) -> RetrievalFolder:
    path = make_folder(folder, rankings)  # type: ignore[arg-type]
    opened = RetrievalFolder(path)
    update_scores(opened, metrics=["RR", "R@10"], settings=BootstrapSettings(resamples=200))
    update_comparison(opened)
    return opened


def page_of(folder: RetrievalFolder) -> Path:
    path = folder.path / "report.html"
    write_section(path, folder.about["name"], build_searcher_cards(folder), "Searchers", build_searcher_figures(folder))
    return path


def test_every_figure_of_the_scores_is_in_the_page(tmp_path: Path) -> None:
    folder = scored(tmp_path)
    page, found = Read(page_of(folder)), folder.load_document("scores.json", RetrievalScores)
    assert found is not None
    means = page.block("Means")["tables"][0]
    assert means["columns"][:3] == ["searcher", "RR", "R@10"]
    for row, each in zip(means["rows"], found.searchers, strict=True):
        assert row[:3] == [each.searcher, f"{each.values['RR'].mean:.3f}", f"{each.values['R@10'].mean:.3f}"]
    for metric in found.metrics:
        block = page.block(metric)
        dots = block["chart"]["traces"][0]
        assert dots["x"] == [each.values[metric].mean for each in found.searchers]
        for row, each in zip(block["tables"][0]["rows"], found.searchers, strict=True):
            interval = each.values[metric].interval
            said = "–" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"
            assert row == [each.searcher, f"{each.values[metric].mean:.3f}", said]


def test_every_difference_of_the_comparison_is_in_the_page(tmp_path: Path) -> None:
    folder = scored(tmp_path)
    page, found = Read(page_of(folder)), folder.load_document("comparison.json", Comparisons)
    assert found is not None
    for each in found.comparisons:
        (row,) = page.block(f"Differences in {each.metric}")["tables"][0]["rows"]
        assert row[:2] == [f"{each.first} − {each.second}", f"{each.difference:+.3f}"]
        assert row[-1] == f"{each.better}:{each.worse}:{each.equal}"


def test_results_that_are_out_of_date_are_shown_with_the_command_that_refreshes_them(tmp_path: Path) -> None:
    folder = scored(tmp_path)
    with pytest.raises(StopIteration):
        Read(page_of(folder)).block("Out of date")
    add_rankings(folder.path, {"three": RANKINGS["one"]})
    said = Read(page_of(RetrievalFolder(folder.path))).block("Out of date")["text"]
    assert f"agent retrieval score {folder.path}" in said
    assert f"agent retrieval compare {folder.path}" in said


def test_a_page_without_scores_shows_what_was_searched(tmp_path: Path) -> None:
    page = Read(page_of(RetrievalFolder(make_folder(tmp_path))))
    assert [row[0] for row in page.block("Searching")["tables"][0]["rows"]] == list(RANKINGS)
    assert "Not scored yet: one, two." in page.block("Searching")["text"]
    assert [card["value"] for card in page.document["cards"]] == ["3", "5", "2"]


def test_damaged_scores_are_named(tmp_path: Path) -> None:
    folder = scored(tmp_path)
    (folder.path / "scores.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"scores\.json: is not what `agent retrieval` writes"):
        build_searcher_figures(folder)


def test_the_report_of_a_run_has_a_section_of_its_searchers(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    blocks = build_searcher_figures(scored(tmp_path / "bench"))
    with load_run(make_run(tmp_path / "run", make_pairs(3))) as view:
        Report(view, searchers=blocks).write(tmp_path / "r.html")
    page = Read(tmp_path / "r.html")
    assert "Searchers" in page.titles
    assert len(page.rows) == 3


@pytest.mark.chromium
class TestInABrowser:
    @pytest.mark.parametrize("width", [1280, 400])
    def test_the_page_has_its_section_alone_and_nothing_sticks_out(
        self, opened: Opener, tmp_path: Path, width: int
    ) -> None:
        view = opened(page_of(scored(tmp_path)), width)
        view.draw_all()
        assert view.page.locator("main h2:visible").all_inner_texts() == ["Searchers"]
        assert view.page.locator("#contents a").all_inner_texts() == ["Searchers"]
        assert not view.page.locator("#pairs, #hint, .skip").first.is_visible()
        assert view.page.locator(".chart").count() == 4
        assert view.page.evaluate("document.documentElement.scrollWidth") <= width

    def test_names_of_searchers_stay_text(self, opened: Opener, tmp_path: Path) -> None:
        folder = scored(tmp_path, rankings={NAME: RANKINGS["one"], "two": RANKINGS["two"]})
        view = opened(page_of(folder))
        view.draw_all()
        assert view.page.locator("main img, main script, main a[href^=javascript]").count() == 0
        assert "window.hit" in view.page.locator("#searchers table").first.text_content()  # type: ignore[operator]


def test_a_name_from_elsewhere_is_no_path(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {})
    add_rankings(folder, {"../../evil": RANKINGS["one"]})
    assert [each.name for each in (folder / "rankings").iterdir()] == ["..%2F..%2Fevil.trec"]
