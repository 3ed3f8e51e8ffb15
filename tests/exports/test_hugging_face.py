"""Tests for the Hugging Face export: its data and its dataset card."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from agent.exports.hugging_face import _choose_size_category, _count_origins, choose_licence
from agent.exports.rows import ExportFilter
from agent.llm.base import Reply
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.types import ErrorInfo, ModuleContext, Pair, Usage
from tests.evaluation.runs import add_reviews, draw_review_sample
from tests.exports.runs import export_run, make_run, read_lines
from tests.views.runs import HOSTILE

LOAD = """
import json, sys, datasets
splits = datasets.load_dataset(sys.argv[1])
json.dump({name: split.to_list() for name, split in splits.items()}, sys.stdout)
"""


def load_dataset(folder: Path, cache: Path) -> dict[str, list[dict[str, Any]]]:
    """Read a folder with `datasets.load_dataset` in a separate process."""
    environment = {"PATH": "/usr/bin:/bin", "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "HOME": str(cache)}
    command = [sys.executable, "-c", LOAD, str(folder)]
    process = subprocess.run(command, env=environment, capture_output=True, check=True, cwd="/")
    splits: dict[str, list[dict[str, Any]]] = json.loads(process.stdout)
    return splits


def make_pairs(count: int, **meta: Any) -> list[Pair]:
    return [Pair(id=f"p{number}", query=f"q{number // 4}", code=f"code {number}", meta=meta) for number in range(count)]


def read_card(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the metadata of a card and its sections by title."""
    text = (folder / "README.md").read_text("utf-8")
    _, metadata, body = text.split("---\n", 2)
    return yaml.safe_load(metadata), {
        title.strip(): part.strip() for title, _, part in (section.partition("\n") for section in body.split("\n## "))
    }


@pytest.mark.slow
def test_load_dataset_reads_the_rows(tmp_path: Path) -> None:
    input_pairs = make_pairs(5, source=HOSTILE, votes=[1, {"a": None}])
    run = make_run(tmp_path / "run", input_pairs, {"reason": HOSTILE})
    export_run(make_run(tmp_path / "other", make_pairs(5)), "hf", tmp_path / "hf")
    load_dataset(tmp_path / "hf", tmp_path / "cache")  # must not be read from the cache below
    shutil.rmtree(tmp_path / "hf")
    export_run(run, "hf", tmp_path / "hf")
    export_run(run, "jsonl", tmp_path / "jsonl")
    rows = [{**row, "votes": '[1,{"a":null}]'} for row in read_lines(tmp_path / "jsonl")]
    assert load_dataset(tmp_path / "hf", tmp_path / "cache") == {"train": rows}
    assert {path.name for path in (tmp_path / "hf").rglob("*")} == {"README.md", "data", "train.parquet"}


def test_the_card_counts_labels_and_excluded_pairs(tmp_path: Path) -> None:
    error = {"label": None, "decided_by": None, "error": ErrorInfo(type="ReplyError", message="none")}
    annotations = {"p0": {"label": 0, "decided_by": "arbitrate"}, "p1": error, "p2": {"label": None}}
    run = make_run(tmp_path / "run", make_pairs(9), annotations | {f"p{number}": {} for number in range(3, 9)})
    export_run(run, "hf", tmp_path / "hf", ExportFilter(errors=False))
    metadata, sections = read_card(tmp_path / "hf")
    assert metadata["size_categories"] == ["n<1K"]
    assert metadata["configs"][0]["data_files"] == [{"split": "train", "path": "data/train.parquet"}]
    for line in ("all | 8", "1, match | 6", "0, no match | 1", "null, undecided | 1", "null, failed | 0"):
        assert f"| {line} |" in sections["Labels"]
    assert "| decided by screen | 7 |" in sections["Labels"]
    assert sections["Labels"].endswith(": 1 by the filters.")
    assert "| input\\_label |" not in sections["Columns"]
    assert "| label | integer | " in sections["Columns"]


def test_the_card_counts_tests_in_modules(tmp_path: Path) -> None:
    places = (ModuleContext(module="pack.a"), ModuleContext(reason="no origin"), ModuleContext(reason="no wheel: x"))
    fields = {f"p{number}": {"module_context": place} for number, place in enumerate((*places, places[1]))}
    export_run(make_run(tmp_path / "run", make_pairs(4), fields, pipeline={"context": "module"}), "hf", tmp_path / "hf")
    sections = read_card(tmp_path / "hf")[1]
    for line in ("in its module | 1", "alone: no origin | 2", "alone: no wheel | 1"):
        assert f"tested {line}" in re.sub(" +", " ", sections["Labels"])
    assert {"test_module", "test_alone"} <= set(re.findall(r"\w+", sections["Columns"].replace("\\", "")))


def test_the_card_describes_the_heuristic_as_rule_based(tmp_path: Path) -> None:
    make_run(tmp_path / "run", make_pairs(1), model={"default": {"model": "heuristic"}, "roles": {}})
    export_run(tmp_path / "run", "hf", tmp_path / "hf")
    assert "heuristic (a rule-based baseline" in (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")


def test_the_card_lists_the_variant_and_the_requested_and_served_models(tmp_path: Path) -> None:
    models = {"default": {"model": "big"}, "roles": {"screen": {"model": "small"}}}
    identity = {"variant": {"name": "no_screen"}, "model": models, "pipeline": {"criterion": "half"}}
    environment = {"versions": {"test-driven-annotator": "0.1.0"}, "sandbox": {"backend": "bwrap"}}
    input_pairs = make_pairs(1)
    make_run(tmp_path / "run", input_pairs, **identity)
    identity = dict(load_run(tmp_path / "run").manifest["identity"])
    del identity["input_sha256"]
    with RunFolder(tmp_path / "run", identity=identity, pairs=input_pairs, environment=environment) as folder:
        for role, model, fingerprint in (
            ("screen", "small-1", None),
            ("arbitrate", "big-2", "fp"),
            ("judge", "big-2", "fp"),
        ):
            folder.record_reply(role, Reply(text="", model=model, usage=Usage(), fingerprint=fingerprint))
    export_run(tmp_path / "run", "hf", tmp_path / "hf")
    process = read_card(tmp_path / "hf")[1]["Annotation process"]
    for line in (
        "variant | no\\_screen",
        "criterion | half",
        "requested models | big, small (screen)",
        "served models | small-1 (screen), big-2 fp (arbitrate, judge)",
        "rounds | 1",
        "sandbox | bwrap, none",
    ):
        assert f"| {line} |" in process
    assert "half of the query" in (tmp_path / "hf/README.md").read_text()


def test_the_card_reports_agreement_between_rounds(tmp_path: Path) -> None:
    export_run(make_run(tmp_path / "one", make_pairs(3)), "hf", tmp_path / "hf1")
    assert read_card(tmp_path / "hf1")[1]["Agreement between rounds"].startswith("Not available")
    rounds = [{f"p{pair}": {"label": int(pair > 1 or pair == number)} for pair in range(4)} for number in range(2)]
    export_run(make_run(tmp_path / "two", make_pairs(4), *rounds), "hf", tmp_path / "hf2")
    section = read_card(tmp_path / "hf2")[1]["Agreement between rounds"]
    for number in ("2 rounds", "-0.167", "50.0%"):
        assert number in section


class TestEstimatedError:
    def export_section(self, run: Path) -> str:
        export_run(run, "hf", run.parent / "hf")
        return read_card(run.parent / "hf")[1]["Estimated error rate"]

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return make_run(tmp_path / "run", make_pairs(40), {f"p{number}": {"label": number % 2} for number in range(40)})

    def test_the_error_is_unknown_without_reviews(self, run: Path) -> None:
        assert re.fullmatch("Unknown: .*blind.*", self.export_section(run))

    def test_the_error_is_unknown_without_a_random_sample(self, run: Path) -> None:
        add_reviews(run, "ann", {"p1": 0}, source="queue")
        assert re.fullmatch("Unknown: .*random sample.*", self.export_section(run))

    def test_the_error_is_unknown_with_too_few_reviews(self, run: Path) -> None:
        sample = draw_review_sample(run, load_run(run).annotations(), ["label"], 20)
        add_reviews(run, "ann", {sample[0]: 1})
        assert re.fullmatch(r"Unknown: .*\b1 of the 20\b.*", self.export_section(run))

    def test_the_error_is_estimated_from_a_reviewed_sample(self, run: Path) -> None:
        sample = draw_review_sample(run, load_run(run).annotations(), ["label"], 20)
        wrong = set(random.Random(0).sample(sample, 4))
        add_reviews(run, "ann", {pair: int(pair[1:]) % 2 ^ (pair in wrong) for pair in sample})
        section = self.export_section(run)
        assert re.match(r"\D*\b20\.0% ", section)
        assert re.search("95% .*: [0-9.]+% to [0-9.]+%", section)
        assert re.search("20 pairs.* 1 reviewer", section)
        assert "| accuracy | 0.800 |" in section


class TestOrigins:
    @pytest.mark.parametrize(
        ("licences", "expected"),
        [
            (["MIT", "MIT"], "mit"),
            (["MIT", "Apache-2.0"], "other"),
            ([None, None], "unknown"),
            (["MIT", None], "other"),
            (["see the file: LICENSE"], "other"),
            (["CC BY-SA 4.0", "cc-by-sa-4.0"], "cc-by-sa-4.0"),
            (["MIT License"], "mit"),
            (["GPL-3.0-or-later"], "other"),  # the Hub has no such id
            ([["MIT"]], "other"),
        ],
    )
    def test_a_common_licence_is_in_the_metadata(self, licences: list[Any], expected: str) -> None:
        origins = Counter[tuple[str, str]]()
        rows = [{"license" if number else "licence": licence} for number, licence in enumerate(licences)]
        assert list(_count_origins(rows, origins)) == rows
        assert choose_licence(licence for _, licence in origins) == expected

    def test_sources_and_licences_are_counted(self, tmp_path: Path) -> None:
        metas: list[dict[str, Any]] = [{"source": f"s{number}", "license": "MIT"} for number in range(21)]
        metas += [{"repository": "cosqa", "source": "web", "licence": "C-UDA"}] * 3
        metas += [{"source": "cosqa"}, {"license": "MIT"}, {}]
        input_pairs = [Pair(id=str(number), query="q", code="c", meta=meta) for number, meta in enumerate(metas)]
        export_run(make_run(tmp_path / "run", input_pairs), "hf", tmp_path / "hf")
        metadata, sections = read_card(tmp_path / "hf")
        assert metadata["license"] == "other"
        section = sections["Sources and licences"]
        assert "| cosqa | C-UDA | 3 |\n| s0 | MIT | 1 |" in section
        assert re.search(r"\b5 other .* 5 pairs", section)
        assert re.search("`source` .*: 2\\.", section)
        assert re.search("`licence` or `license` .*: 2\\.", section)


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    identity = {"variant": {"name": HOSTILE}, "model": {"default": {"model": "a|b\n---\n# title"}}}
    input_pairs = make_pairs(1, source=f"{HOSTILE}\n## Forged\n| a | b |", license="---\nlicense: mit")
    run = make_run(tmp_path / "r:\n# un", input_pairs, {"decided_by": "x\n## Forged"}, **identity)
    export_run(run, "hf", tmp_path / "hf")
    metadata, sections = read_card(tmp_path / "hf")
    assert (metadata["license"], metadata["pretty_name"]) == ("other", "r:\n# un")
    titles = list(sections)[1:]
    assert len(titles) == 6
    text = (tmp_path / "hf/README.md").read_text("utf-8").split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", *["h2"] * len(titles)]
    assert {child.type for token in tokens for child in token.children or ()} == {"text"}
    assert not {token.type for token in tokens} & {"html_block", "hr", "code_block", "fence", "blockquote_open"}
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("pairs", "size"), [(1, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (412_080, "100K<n<1M"), (10**8, "100M<n<1B")]
)
def test_size_categories_match_the_hub(pairs: int, size: str) -> None:
    assert _choose_size_category(pairs) == size
