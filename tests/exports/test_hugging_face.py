"""A folder that `datasets.load_dataset` reads, with a card that says what is known of the labels and what is not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from agent.exports.hugging_face import Origins, _size
from agent.exports.rows import ExportFilter
from agent.llm.base import Reply
from agent.store import RunFolder, load_run
from agent.types import ErrorInfo, Pair, Usage
from tests.evaluation.runs import review, sample_of
from tests.exports.runs import exported, lines, make_run
from tests.views.runs import HOSTILE

LOAD = """
import json, sys, datasets
found = datasets.load_dataset(sys.argv[1])
json.dump({name: split.to_list() for name, split in found.items()}, sys.stdout)
"""


def load(folder: Path, cache: Path) -> dict[str, list[dict[str, Any]]]:
    """Read a folder by `datasets.load_dataset`, as one does who has nothing else."""
    environment = {"PATH": "/usr/bin:/bin", "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "HOME": str(cache)}
    command = [sys.executable, "-c", LOAD, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, cwd="/")
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def pairs(count: int, **meta: Any) -> list[Pair]:
    return [Pair(id=f"p{number}", query=f"q{number // 4}", code=f"code {number}", meta=meta) for number in range(count)]


def card(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the metadata of a card, and its sections by their titles."""
    text = (folder / "README.md").read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), {
        title.strip(): part.strip() for title, _, part in (each.partition("\n") for each in body.split("\n## "))
    }


@pytest.mark.slow
def test_load_dataset_gives_the_rows(tmp_path: Path) -> None:
    made = pairs(5, source=HOSTILE, votes=[1, {"a": None}])
    run = make_run(tmp_path / "run", made, {"reason": HOSTILE, "confidence": 0.5})
    exported(run, "hf", tmp_path / "hf")
    exported(run, "jsonl", tmp_path / "jsonl")
    rows = [{**row, "votes": '[1,{"a":null}]'} for row in lines(tmp_path / "jsonl")]
    assert load(tmp_path / "hf", tmp_path / "cache") == {"train": rows}
    assert {path.name for path in (tmp_path / "hf").rglob("*")} == {"README.md", "data", "train.parquet"}


def test_the_card_counts_and_says_what_was_left_out(tmp_path: Path) -> None:
    error = {"label": None, "decided_by": None, "error": ErrorInfo(type="ReplyError", message="none")}
    found = {"p0": {"label": 0, "decided_by": "arbitrate"}, "p1": error, "p2": {"label": None}}
    run = make_run(tmp_path / "run", pairs(9), found | {f"p{number}": {} for number in range(3, 9)})
    exported(run, "hf", tmp_path / "hf", ExportFilter(errors=False))
    front, sections = card(tmp_path / "hf")
    assert front["size_categories"] == ["n<1K"]
    assert front["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "data/*.parquet"}]}
    ]
    for line in ("all | 8", "1, match | 6", "0, no match | 1", "null, undecided | 1", "null, error | 0"):
        assert f"| {line} |" in sections["Labels"]
    assert "| decided by screen | 7 |" in sections["Labels"]
    assert sections["Labels"].endswith("Left out of the run's pairs: 1 by the filters.")
    assert "| input\\_label |" not in sections["Columns"]
    assert "| label | integer | 1 match, 0 no match, null undecided or error |" in sections["Columns"]


def test_the_card_says_that_labels_of_the_heuristic_come_from_rules(tmp_path: Path) -> None:
    make_run(tmp_path / "run", pairs(1), model={"default": {"model": "heuristic"}, "roles": {}})
    exported(tmp_path / "run", "hf", tmp_path / "hf")
    assert "heuristic (simple rules and no model" in (tmp_path / "hf" / "README.md").read_text(encoding="utf-8")


def test_the_card_names_variant_and_models_requested_and_served(tmp_path: Path) -> None:
    models = {"default": {"model": "big"}, "roles": {"screen": {"model": "small"}}}
    identity = {"variant": {"name": "full_plus"}, "model": models, "pipeline": {"criterion": "half"}}
    environment = {"versions": {"test-driven-annotator": "0.1.0"}, "sandbox": {"backend": "bwrap"}}
    made = pairs(1)
    make_run(tmp_path / "run", made, **identity)
    identity = dict(load_run(tmp_path / "run").manifest["identity"])
    del identity["input_sha256"]
    with RunFolder(tmp_path / "run", identity=identity, pairs=made, environment=environment) as folder:
        for role, model, fingerprint in (
            ("screen", "small-1", None),
            ("arbitrate", "big-2", "fp"),
            ("judge", "big-2", "fp"),
        ):
            folder.record_reply(role, Reply(text="", model=model, usage=Usage(), fingerprint=fingerprint))
    exported(tmp_path / "run", "hf", tmp_path / "hf")
    made_by = card(tmp_path / "hf")[1]["How they were made"]
    for line in (
        "variant | full\\_plus",
        "criterion | half",
        "model requested | big, small (screen)",
        "model served | small-1 (screen), big-2 fp (arbitrate, judge)",
        "rounds | 1",
        "sandbox | bwrap, none",
    ):
        assert f"| {line} |" in made_by
    assert "Label 1: the code answers half of the query or more." in (tmp_path / "hf/README.md").read_text()


def test_agreement_is_that_of_rounds_and_none_without(tmp_path: Path) -> None:
    exported(make_run(tmp_path / "one", pairs(3)), "hf", tmp_path / "hf1")
    assert card(tmp_path / "hf1")[1]["Agreement"] == "None: each pair was annotated once."
    rounds = [{f"p{pair}": {"label": int(pair > 1 or pair == number)} for pair in range(4)} for number in range(2)]
    exported(make_run(tmp_path / "two", pairs(4), *rounds), "hf", tmp_path / "hf2")
    said = card(tmp_path / "hf2")[1]["Agreement"]
    assert said.startswith(
        "Between the 2 rounds of the whole run: Krippendorff's alpha -0.167; two rounds of a pair end"
    )
    assert "alike in 50.0% of cases" in said


class TestEstimatedError:
    def said(self, run: Path) -> str:
        exported(run, "hf", run.parent / "hf")
        return card(run.parent / "hf")[1]["Estimated error"]

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return make_run(tmp_path / "run", pairs(40), {f"p{number}": {"label": number % 2} for number in range(40)})

    def test_without_reviews_it_is_said_that_nothing_is_known(self, run: Path) -> None:
        said = "None: nobody has reviewed a sample of these labels, and how many of them are wrong is not known."
        assert self.said(run) == said

    def test_with_reviews_of_other_pairs_than_a_sample_it_is_none(self, run: Path) -> None:
        review(run, "ann", {"p1": 0}, source="queue")
        assert self.said(run) == "None: pairs were reviewed, but not a random sample of the run."

    def test_with_too_few_reviews_it_is_none(self, run: Path) -> None:
        drawn = sample_of(run, load_run(run).annotations(), ["label"], 20)
        review(run, "ann", {drawn[0]: 1})
        assert self.said(run) == "None: too few of the 20 pairs of the sample are reviewed (1)."

    def test_with_a_sample_it_is_an_estimate_with_its_interval(self, run: Path) -> None:
        drawn = sample_of(run, load_run(run).annotations(), ["label"], 20)
        wrong = set(random.Random(0).sample(drawn, 4))
        review(run, "ann", {pair: int(pair[1:]) % 2 ^ (pair in wrong) for pair in drawn})
        said = self.said(run)
        assert said.startswith("20.0% of all labels of the run (95% interval ")
        assert "estimated from blind reviews of 20 pairs of a random sample by 1 reviewer" in said
        assert "| accuracy | 0.800 |" in said


class TestOrigins:
    @pytest.mark.parametrize(
        ("licences", "named"),
        [
            (["MIT", "MIT"], "mit"),
            (["MIT", "Apache-2.0"], "other"),
            ([None, None], "unknown"),
            (["MIT", None], "other"),
            (["see the file: LICENSE"], "other"),
            ([["MIT"]], "other"),
        ],
    )
    def test_the_licence_is_named_where_all_pairs_have_the_same(self, licences: list[Any], named: str) -> None:
        origins = Origins()
        for number, licence in enumerate(licences):
            list(origins.count_rows([{"license" if number else "licence": licence}]))
        assert origins.choose_licence() == named

    def test_sources_and_licences_are_counted_and_the_missing_ones_listed(self, tmp_path: Path) -> None:
        metas: list[dict[str, Any]] = [{"source": f"s{number}", "license": "MIT"} for number in range(21)]
        metas += [{"source": "cosqa", "licence": "C-UDA"}] * 3 + [{"source": "cosqa"}, {"license": "MIT"}, {}]
        made = [Pair(id=str(number), query="q", code="c", meta=meta) for number, meta in enumerate(metas)]
        exported(make_run(tmp_path / "run", made), "hf", tmp_path / "hf")
        front, sections = card(tmp_path / "hf")
        assert front["license"] == "other"
        said = sections["Sources and licences"]
        assert "| cosqa | C-UDA | 3 |\n| s0 | MIT | 1 |" in said
        assert "And 5 more rows with 5 pairs." in said
        assert "Missing: 2 pairs without a field `source` in the input." in said
        assert "Missing: 2 pairs without a field `license` or `licence` in the input." in said


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    identity = {"variant": {"name": HOSTILE}, "model": {"default": {"model": "a|b\n---\n# title"}}}
    made = pairs(1, source=f"{HOSTILE}\n## Forged\n| a | b |", license="---\nlicense: mit")
    run = make_run(tmp_path / "r:\n# un", made, {"decided_by": "x\n## Forged"}, **identity)
    exported(run, "hf", tmp_path / "hf")
    front, sections = card(tmp_path / "hf")
    assert (front["license"], front["pretty_name"]) == ("other", "r:\n# un")
    titles = ["Labels", "How they were made", "Agreement", "Estimated error", "Sources and licences", "Columns"]
    assert list(sections)[1:] == titles
    text = (tmp_path / "hf/README.md").read_text("utf-8").split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", *["h2"] * len(titles)]
    assert {child.type for token in tokens for child in token.children or ()} == {"text"}
    assert not {token.type for token in tokens} & {"html_block", "hr", "code_block", "fence", "blockquote_open"}
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("pairs", "size"), [(1, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (412_080, "100K<n<1M"), (10**8, "100M<n<1B")]
)
def test_sizes_are_those_of_the_hub(pairs: int, size: str) -> None:
    assert _size(pairs) == size
