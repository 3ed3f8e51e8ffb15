"""Figures on searchers, in a run's report and on a separate page."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import RunFolderError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.blindness import update_blindness
from agent.retrieval.folder import RankingRecord, RetrievalFolder, open_for_writing
from agent.retrieval.results import Comparisons, RetrievalScores
from agent.retrieval.scores import update_comparison, update_scores
from agent.retrieval.searchers.registry import make_searcher
from agent.retrieval.searchers.trained import DataRecord, EpochRecord, TrainingRecord
from agent.runs.store.run_view import load_run
from agent.views.report import Report, write_section
from agent.views.searchers import build_searcher_cards, build_searcher_figures
from tests.retrieval.pooled import RANKINGS, add_rankings, make_folder
from tests.retrieval.test_blindness import FUNCTIONS, write_mutants
from tests.retrieval.test_search import add_searcher_ranking
from tests.views.browsing import ReportOpener
from tests.views.reading import ReportPage
from tests.views.runs import HOSTILE, make_pairs, make_run

NAME = HOSTILE.replace("\ud800", "")


def make_scored_folder(folder: Path, *, rankings: object = RANKINGS) -> RetrievalFolder:
    path = make_folder(folder, rankings)  # type: ignore[arg-type]
    retrieval_folder = RetrievalFolder(path)
    update_scores(retrieval_folder, metrics=["RR", "R@10"], settings=BootstrapSettings(resamples=200))
    update_comparison(retrieval_folder)
    return retrieval_folder


def write_page(folder: RetrievalFolder) -> Path:
    path = folder.path / "report.html"
    write_section(path, folder.about["name"], build_searcher_cards(folder), "Searchers", build_searcher_figures(folder))
    return path


def test_the_page_contains_every_score(tmp_path: Path) -> None:
    folder = make_scored_folder(tmp_path)
    page, scores = ReportPage(write_page(folder)), folder.load_document("scores.json", RetrievalScores)
    assert scores is not None
    means, hits = page.get_figure("Means")["tables"]
    assert means["columns"] == ["searcher", "RR", "R@10"]
    for row, searcher in zip(means["rows"], scores.searchers, strict=True):
        values = [searcher.values[metric] for metric in ("RR", "R@10")]
        bounds = [f" [{v.interval.low:.3f}, {v.interval.high:.3f}]" if v.interval else "" for v in values]
        assert row == [searcher.searcher, *(f"{v.mean:.3f}{own}" for v, own in zip(values, bounds, strict=True))]
    assert [row[:2] for row in hits["rows"]] == [[own.searcher, str(own.found)] for own in scores.searchers]
    for metric in scores.metrics:
        dots = page.get_figure(metric)["chart"]["traces"][0]
        assert dots["x"] == [searcher.values[metric].mean for searcher in scores.searchers]


def test_the_page_contains_every_difference_of_the_comparison(tmp_path: Path) -> None:
    folder = make_scored_folder(tmp_path)
    page, comparisons = ReportPage(write_page(folder)), folder.load_document("comparison.json", Comparisons)
    assert comparisons is not None
    for pair in comparisons.comparisons:
        (row,) = page.get_figure(f"Differences in {pair.metric}")["tables"][0]["rows"]
        assert row[:2] == [f"{pair.first} − {pair.second}", f"{pair.difference:+.3f}"]
        assert row[-1] == f"{pair.better}:{pair.worse}:{pair.equal}"


def test_the_page_contains_the_blindness_by_kind_of_change(tmp_path: Path) -> None:
    add_searcher_ranking(make_searcher("bm25"), tmp_path / "r")
    with open_for_writing(tmp_path / "r") as folder:
        blindness = update_blindness(folder, write_mutants(tmp_path / "m.jsonl", *FUNCTIONS))
    figure = ReportPage(write_page(folder)).get_figure("Blindness")
    assert figure["chart"]["traces"][0]["x"] == [searcher.total.gap.mean for searcher in blindness.searchers]
    assert [row[:4] for row in figure["tables"][1]["rows"]] == [
        [name, "1.000", "0.500", "0.500"] for name in ("all", "all except crashes", "k")
    ]


def write_page_with_training(folder_path: Path) -> Path:
    epochs = [EpochRecord(epoch=n, step=2 * n, scores={"nDCG@10": n / 10}) for n in (1, 2)]
    record = TrainingRecord(recipe="unif", data=DataRecord(name="pairs", sha256="0" * 64), epochs=epochs, best_epoch=2,
                            losses=[(1, 0.9), (4, 0.5)])  # fmt: skip
    path = make_folder(folder_path)
    with open_for_writing(path) as folder:
        folder.add_ranking(NAME, lambda _: RankingRecord(kind="searched", found=0, training=record))
    return write_page(RetrievalFolder(path))


def test_trained_searchers_have_curves_of_loss_and_validation(tmp_path: Path) -> None:
    page = ReportPage(write_page_with_training(tmp_path))
    loss, validation = page.get_figure("Training loss"), page.get_figure("nDCG@10 on validation queries")
    assert [(loss["chart"]["traces"][0][axis]) for axis in "xy"] == [[1, 4], [0.9, 0.5]]
    assert [(validation["chart"]["traces"][0][axis]) for axis in "xy"] == [[1, 2], [0.1, 0.2]]
    assert validation["tables"][0]["rows"] == [[NAME, "2", "0.200"]]


def test_outdated_results_are_shown_with_the_command_that_updates_them(tmp_path: Path) -> None:
    folder = make_scored_folder(tmp_path)
    with pytest.raises(StopIteration):
        ReportPage(write_page(folder)).get_figure("Notes")
    add_rankings(folder.path, {"three": RANKINGS["one"]})
    text = ReportPage(write_page(RetrievalFolder(folder.path))).get_figure("Notes")["text"]
    assert f"agent retrieval score {folder.path}" in text
    assert f"agent retrieval compare {folder.path}" in text


def test_a_page_without_scores_lists_the_rankings(tmp_path: Path) -> None:
    page = ReportPage(write_page(RetrievalFolder(make_folder(tmp_path))))
    assert [row[0] for row in page.get_figure("Search runs")["tables"][0]["rows"]] == list(RANKINGS)
    assert "one, two" in page.get_figure("Search runs")["text"]
    assert [card["value"] for card in page.document["cards"]] == ["3", "5", "2"]


def test_damaged_scores_raise_with_their_path(tmp_path: Path) -> None:
    folder = make_scored_folder(tmp_path)
    (folder.path / "scores.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"scores\.json"):
        build_searcher_figures(folder)


def test_the_report_of_a_run_has_a_section_of_its_searchers(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    blocks = build_searcher_figures(make_scored_folder(tmp_path / "bench"))
    with load_run(make_run(tmp_path / "run", make_pairs(3))) as view:
        Report(view, searchers=blocks).write(tmp_path / "r.html")
    page = ReportPage(tmp_path / "r.html")
    assert "Searchers" in page.titles
    assert len(page.rows) == 3


@pytest.mark.chromium
class TestInABrowser:
    @pytest.mark.parametrize("width", [1280, 400])
    def test_the_page_has_one_section_that_fits_the_width(
        self, open_report: ReportOpener, tmp_path: Path, width: int
    ) -> None:
        view = open_report(write_page(make_scored_folder(tmp_path)), width)
        view.draw_all()
        assert view.page.locator("main h2:visible").all_inner_texts() == ["Searchers"]
        assert view.page.locator("#contents a").all_inner_texts() == ["Searchers"]
        assert not view.page.locator("#pairs, #hint, .skip").first.is_visible()
        assert view.page.locator(".chart").count() == 4
        assert view.page.evaluate("document.documentElement.scrollWidth") <= width

    def test_the_values_on_the_axes_are_inside_the_charts(self, open_report: ReportOpener, tmp_path: Path) -> None:
        view = open_report(write_page_with_training(tmp_path))
        view.draw_all()
        for chart in view.page.locator(".chart").all():
            box = chart.bounding_box()
            for text in chart.locator(".ytick text, .ytitle").all():
                assert text.bounding_box()["x"] >= box["x"]  # type: ignore[index]

    def test_names_of_searchers_are_displayed_as_text(self, open_report: ReportOpener, tmp_path: Path) -> None:
        folder = make_scored_folder(tmp_path, rankings={NAME: RANKINGS["one"], "two": RANKINGS["two"]})
        view = open_report(write_page(folder))
        view.draw_all()
        assert view.page.locator("main img, main script, main a[href^=javascript]").count() == 0
        assert "window.hit" in view.page.locator("#searchers table").first.text_content()  # type: ignore[operator]


def test_names_of_searchers_are_escaped_in_paths(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {})
    add_rankings(folder, {"../../evil": RANKINGS["one"]})
    assert [path.name for path in (folder / "rankings").iterdir()] == ["..%2F..%2Fevil.trec"]
