"""The content of a report's file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.corpus.describe import describe
from agent.errors import StorageError
from agent.pipeline.history import History
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.types import Annotation, Pair, Usage, Verdict
from agent.views.archive import EvidenceScope
from agent.views.pages import ASSETS, embed_json
from agent.views.report import Report, WrittenReport
from tests.views.reading import ReportPage
from tests.views.runs import HOSTILE, IDENTITY, make_pairs, make_run

COUNT = 130


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("write") / "run", make_pairs(COUNT))


def report(run: Path, target: Path, **options: Any) -> tuple[WrittenReport, ReportPage]:
    with load_run(run) as view:
        written = Report(view, **options).write(target)
    return written, ReportPage(target)


def texts(steps: list[dict[str, Any]], kind: str) -> list[str]:
    """Return the first text of each step of a kind."""
    return [step["parts"][0]["text"] for step in steps if step["kind"] == kind]


def test_every_pair_is_listed_in_the_order_of_the_input_with_its_story_and_evidence(run: Path, tmp_path: Path) -> None:
    written, read = report(run, tmp_path / "r.html")
    assert [row["id"] for row in read.rows] == [f"p{number}" for number in range(COUNT)]
    with load_run(run) as view:
        for row, story in zip(read.rows, read.stories, strict=True):
            history = view.evidence(row["id"])
            assert history is not None
            assert (texts(story, "query"), texts(story, "code")) == ([history.pair.query], [history.pair.code])
            steps = read.get_evidence(row)
            assert steps is not None
            assert [step["parts"][2].get("text", "") for step in steps if step["kind"] == "reply"] == [
                model_call.reply for model_call in history.model_calls
            ]
            assert texts(steps, "program") == [program.source for program in history.programs]
    assert (written.annotations, written.listed, written.with_evidence, written.notes) == (COUNT, COUNT, COUNT, ())
    assert written.bytes == (tmp_path / "r.html").stat().st_size


def test_system_messages_are_stored_once_per_page(run: Path, tmp_path: Path) -> None:
    _, read = report(run, tmp_path / "r.html")
    (shared,) = read.pieces["shared"]
    assert [text.split(".")[0].split()[-1] for text in shared] == ["screen", "generate_test", "arbitrate"]
    steps = read.get_evidence(read.rows[0])
    assert steps is not None
    assert [step["parts"][0]["shared"] for step in steps if step["kind"] == "reply"] == [0, 1, 2]


@pytest.mark.parametrize("room", [10_000, 42_000, 52_000])
def test_a_report_stays_within_its_size_limit_and_disputed_pairs_take_precedence(
    run: Path, tmp_path: Path, room: int
) -> None:
    bare, _ = report(run, tmp_path / "bare.html", max_bytes=0)
    written, read = report(run, tmp_path / "r.html", max_bytes=bare.bytes + room)
    assert bare.listed == 0
    assert written.bytes <= bare.bytes + room
    assert read.document["notes"] == list(written.notes)
    assert len(read.rows) == written.listed
    with_evidence = [row for row in read.rows if read.get_evidence(row)]
    assert len(with_evidence) == written.with_evidence < COUNT
    assert any("--max-mb" in note for note in written.notes)
    left_out = {row["evidence"][0] for row in read.rows if not read.get_evidence(row)}
    first = {row["evidence"][0] for row in with_evidence} <= {"evidence-a"}
    assert "evidence-a" not in left_out or first


@pytest.mark.parametrize(("scope", "expected"), [("all", COUNT), ("tested", 44), ("none", 0)])
def test_the_evidence_option_selects_the_included_evidence(
    run: Path, tmp_path: Path, scope: EvidenceScope, expected: int
) -> None:
    written, read = report(run, tmp_path / "r.html", evidence=scope)
    assert sum(read.get_evidence(row) is not None for row in read.rows) == expected == written.with_evidence
    assert any("--evidence" in note for note in written.notes) == (expected < COUNT)
    assert read.get_figure("Cost by node")["tables"][0]["rows"]


def test_a_folder_without_its_evidence_file_still_gets_a_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", make_pairs(8))
    (folder / "evidence.sqlite").unlink()
    written, read = report(folder, tmp_path / "r.html")
    assert [row["evidence"] for row in read.rows] == [None] * 8
    assert "evidence.sqlite" in written.notes[0]
    assert texts(read.stories[0], "code")


def test_an_unfinished_run_shows_the_remaining_pairs(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", identity=IDENTITY, pairs=make_pairs(3), environment={}):
        _, read = report(tmp_path / "run", tmp_path / "r.html")
    assert read.rows == []
    assert ["pairs", "not annotated", "3", "–"] in read.get_figure("From pairs to labels")["tables"][0]["rows"]


def test_key_figures_and_funnel_count_pairs_by_majority_and_costs_of_all_rounds(tmp_path: Path) -> None:
    labels = {"p0": (1, 1, 0), "p1": (1, 0, 0), "p2": (0, None, 1)}
    pairs = make_pairs(4)
    with RunFolder(tmp_path / "run", identity=IDENTITY, pairs=pairs, environment={}) as folder:
        for pair in pairs[:3]:
            for number, label in enumerate(labels[pair.id]):
                annotation = Annotation(
                    id=pair.id, input_sha256="", label=label, round=number, decided_by="screen", usage=Usage(calls=1),
                    screen_verdict=Verdict.MATCH,
                )  # fmt: skip
                folder.commit(annotation, History(pair=pair))
    _, read = report(tmp_path / "run", tmp_path / "r.html")
    cards = {card["name"]: (card["value"], card["note"]) for card in read.document["cards"]}
    assert [cards[name][0] for name in ("match", "no match", "undecided", "errors")] == ["1", "1", "1", "0"]
    assert (cards["match"][1].split()[0], cards["cost"][1].split()[0]) == ("33.3%", "9")
    rows = read.get_figure("From pairs to labels")["tables"][0]["rows"]
    assert [row[:3] for row in rows] == [
        ["pairs", "annotated", "3"], ["pairs", "not annotated", "1"], ["screened", "match", "3"],
        ["labels", "1", "1"], ["labels", "0", "1"], ["labels", "undecided", "1"],
    ]  # fmt: skip
    assert read.get_figure("Who decided")["tables"][0]["rows"] == [["screen", "1", "1"]]  # a tie has no decider
    assert [row["majority"] for row in read.rows] == ["1"] * 3 + ["0"] * 3 + ["undecided"] * 3
    assert [row["round"] for row in read.rows] == [0, 1, 2] * 3
    assert re.findall(r"\d+", read.document["subtitle"])[:2] == ["4", "3"]
    assert read.get_figure("Rounds")["tables"][0]["rows"][-1][:2] == ["majority", "1"]


def test_rows_contain_gold_labels(run: Path, tmp_path: Path) -> None:
    _, read = report(run, tmp_path / "r.html", gold={"p1": 1, "p2": 1})
    assert [row["gold"] for row in read.rows[:4]] == [None, 1, 1, None]
    assert read.rows[2]["label"] == "0"
    assert read.rows[2]["evidence"][0] == "evidence-a"


def test_the_report_describes_the_run_but_not_its_machine(run: Path, tmp_path: Path) -> None:
    _, read = report(run, tmp_path / "r.html")
    assert ["model.default.model", "a-model"] in read.get_figure("Settings")["tables"][0]["rows"]
    assert "secret-host" not in read.text


@pytest.mark.parametrize(
    ("meta", "titles"), [({}, set()), ({"repository": "r", "license": "MIT"}, {"Sources", "Licences"})]
)
def test_dataset_tables_without_content_are_left_out(tmp_path: Path, meta: Mapping[str, str], titles: set[str]) -> None:
    run = make_run(tmp_path / "run", [pair.model_copy(update={"meta": meta}) for pair in make_pairs(3)])
    _, read = report(run, tmp_path / "r.html")
    (blocks,) = (section["blocks"] for section in read.document["sections"] if section["id"] == "dataset")
    assert {block["title"] for block in blocks} & {"Sources", "Licences"} == titles


@pytest.mark.parametrize("ranked", [False, True])
def test_dataset_section_has_charts_of_matches(tmp_path: Path, ranked: bool) -> None:
    pairs = [pair.model_copy(update={"meta": {"rank": number % 4 + 1} if ranked else {}, "code": f"c{number // 5}"})
             for number, pair in enumerate(make_pairs(30))]  # fmt: skip
    run = make_run(tmp_path / "run", pairs)
    _, read = report(run, tmp_path / "r.html")
    (blocks,) = (section["blocks"] for section in read.document["sections"] if section["id"] == "dataset")
    charts = {block["title"]: block["chart"]["traces"][0]["x"] for block in blocks if block["chart"]}
    dataset = describe(run)
    expected = {"Queries by matching snippets": list(dataset.queries_by_matches.values())}
    expected |= {"Matches by candidate rank": [row.share for row in dataset.ranks]} if ranked else {}
    assert charts == expected | {"Snippets by matching queries": list(dataset.codes_by_matches.values())}
    assert (len(dataset.ranks), len(dataset.codes_by_matches) > 2) == (4 * ranked, True)


def test_progress_reaches_the_total(run: Path, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    with load_run(run) as view:
        Report(view).write(tmp_path / "r.html", lambda _, done, total: progress.append((done, total)))
    assert progress == [(number, COUNT) for number in range(1, COUNT + 1)]


def test_hostile_text_adds_no_element(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", make_pairs(1))
    hostile = make_run(tmp_path / "hostile", [Pair(id=HOSTILE, query=HOSTILE, code=HOSTILE, meta={HOSTILE: HOSTILE})],
                       stand_ins=(HOSTILE,), decided_by=HOSTILE, reason=HOSTILE)  # fmt: skip
    texts = [report(folder, tmp_path / f"{folder.name}.html")[1].text for folder in (plain, hostile)]
    assert find_tags(texts[0]) == find_tags(texts[1])


def find_tags(page: str) -> list[str]:
    """Return the tags of a page, without those that its scripts mention."""
    bare = re.sub(r"<script>.*?</script>", "<script></script>", page, flags=re.DOTALL)
    return re.findall(r"</?[a-zA-Z!][^\s>]*", bare)


def test_embedded_json_cannot_close_a_script() -> None:
    assert not set(embed_json({HOSTILE: [HOSTILE]})) & set("<>&\u2028\u2029")


def test_the_policy_lists_exactly_the_scripts_and_styles_of_the_page(run: Path, tmp_path: Path) -> None:
    _, read = report(run, tmp_path / "r.html")
    match = re.search(r'Content-Security-Policy" content="([^"]*)"', read.text)
    assert match is not None
    policy = dict(part.strip().split(" ", 1) for part in html.unescape(match[1]).split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", read.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", read.text, re.DOTALL)
    assert policy["script-src"].split() == [hash_text(text) for text in scripts]
    assert policy["style-src-elem"].split() == [hash_text(style), hash_text("")]
    assert policy["default-src"] == "'none'"
    assert "connect-src" not in policy


def hash_text(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_charting_library_matches_its_pinned_hash() -> None:
    digest, name = (ASSETS / "plotly.sha256").read_text().split()
    assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == digest
    version = re.search(r'VERSION = .*"([\d.]+)"', Path("scripts/vendor-plotly").read_text())
    assert version is not None
    assert f"v{version[1]}" in (ASSETS / name).read_text()[:200]
    assert "MIT License" in (ASSETS / "plotly-LICENSE.txt").read_text()


@pytest.mark.parametrize("name", sorted(path.name for path in ASSETS.glob("*.js")))
def test_scripts_do_not_contain_their_end_tag(name: str) -> None:
    text = (ASSETS / name).read_text("utf-8").lower()
    assert "</script" not in text
    assert "<!--" not in text


@pytest.mark.parametrize("name", sorted(path.name for path in ASSETS.glob("*.js") if "plotly" not in path.name))
def test_own_scripts_write_no_markup(name: str) -> None:
    text = (ASSETS / name).read_text("utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)


def test_an_unwritable_path_raises_before_the_run_is_read(run: Path, tmp_path: Path) -> None:
    progress: list[int] = []
    with load_run(run) as view, pytest.raises(StorageError, match=r"nowhere/r\.html"):
        Report(view).write(tmp_path / "nowhere/r.html", lambda _, done, __: progress.append(done))
    assert progress == []


def test_a_full_disk_raises_and_leaves_an_earlier_report_unchanged(run: Path, tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
    try:
        with load_run(run) as view, pytest.raises(StorageError, match=r"r\.html"):
            Report(view).write(tmp_path / "r.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("r.html", "earlier")]
