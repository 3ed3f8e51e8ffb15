"""`agent score --certify` bounds the wrong labels of a run, and `agent export --certified` drops the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.evaluation.guarantee import read_guarantee
from agent.runs.store.samples import read_sample
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.evaluation.runs import add_reviews, annotate, write_run
from tests.exports.runs import read_lines
from tests.exports.test_hugging_face import load_dataset

REVIEWS = 200
STRATIFY = ("--stratify", "evidence", "--no-browser")
# labels decided by tests, which are right, and by reading, of which two thirds of label 1 are wrong
SIZES = {("passed", 1): 150, ("failed", 0): 450, (None, 1): 60, (None, 0): 240}


@pytest.fixture
def run(agent: Commands) -> Path:
    """A run with 900 labels and ten undecided pairs."""
    annotations = [
        annotate(f"{status}-{label}-{number}", label, status, "snippet" if status == "failed" else None)
        for (status, label), size in SIZES.items()
        for number in range(size)
    ]
    return write_run(agent.folder / "run", [*annotations, *(annotate(f"none-{n}", None) for n in range(10))])


def draw(agent: Commands, *options: str, size: int = REVIEWS) -> list[str]:
    """Let `agent review` draw a sample, and return its ids in order."""
    page = agent.start("review", "run", "--sample", str(size), *STRATIFY, *options)
    wait_until(lambda: "http" in page.out.read_text(), "the address of the page")
    assert page.stop().code == 0
    sample = read_sample(agent.folder / "run/review_sample.json")
    assert sample is not None
    return sample.shuffle_ids()


def judge(pair_id: str) -> int:
    """Return the right label of a pair."""
    status, label, number = pair_id.split("-")
    return int(label) if status != "None" or label == "0" else int(int(number) % 3 == 0)


def review(run: Path, ids: list[str], changes: Mapping[str, int | None] | None = None) -> None:
    add_reviews(run, "ana", {pair_id: judge(pair_id) for pair_id in ids} | dict(changes or {}))


def test_from_reviews_to_a_certified_dataset(agent: Commands, run: Path, tmp_path: Path) -> None:
    ids = draw(agent)
    assert len(ids) == REVIEWS
    review(run, ids)
    result = agent("score", "run", "--certify", "0.05", "--json").json
    certificate = result["certificate"]
    assert [stratum["certified"] for stratum in result["strata"]] == [True, True, True, False]
    assert certificate["total"]["size"] == 840
    assert certificate["total"]["bound"] <= 0.05 * 840
    assert (certificate["sizes"], certificate["alpha"]) == ([690, 210], pytest.approx(0.05))
    assert (result["reviewers"], result["seed"], len(result["draws"])) == (["ana"], 0, 1)
    assert agent("score", "run", "--certify", "0.05").out.count("840") >= 1

    done = agent("export", "run", "--to", "hf", "--certified", "--with", "p_correct", "-o", "data", "--json").json
    assert (done["uncertified"], done["labels"]["null"]) == ({"1": 60}, 70)
    record = read_guarantee(agent.folder / "data/certificate.json")
    assert record is not None
    assert record.certificate.model_dump(mode="json") == certificate
    assert set(record.files) == {"README.md", "data/train.parquet"}
    for name, digest in record.files.items():
        assert hashlib.sha256((agent.folder / "data" / name).read_bytes()).hexdigest() == digest
    card = (agent.folder / "data/README.md").read_text()
    assert record.summary in card
    rows = load_dataset(agent.folder / "data", tmp_path / "cache")["train"]
    assert len(rows) == 910
    assert {row["id"].split("-")[0] for row in rows if row["label"] is not None} == {"passed", "failed", "None"}
    assert all((row["p_correct"] is None) == (row["label"] is None) for row in rows)
    assert all(0 < row["p_low"] < row["p_correct"] < 1 for row in rows if row["label"] is not None)
    assert agent("report", "run").code == 0
    assert json.dumps(record.summary)[1:-1] in (run / "report.html").read_text()


def test_a_file_has_its_certificate_next_to_it(agent: Commands, run: Path) -> None:
    review(run, draw(agent))
    agent.check_refused("--certify", "export", "run", "--to", "jsonl", "--certified")
    agent("score", "run", "--certify", "0.05")
    assert agent("export", "run", "--to", "jsonl", "--certified", "-o", "out/pairs.jsonl").code == 0
    record = read_guarantee(agent.folder / "out/certificate.json")
    digest = hashlib.sha256((agent.folder / "out/pairs.jsonl").read_bytes()).hexdigest()
    assert record is not None
    assert record.files == {"pairs.jsonl": digest}
    assert sum(row["label"] is None for row in read_lines(agent.folder / "out/pairs.jsonl")) == 70
    agent("export", "run", "--to", "csv", "--certified", "-o", "out/pairs.csv")
    record = read_guarantee(agent.folder / "out/certificate.json")
    assert record is not None
    assert set(record.files) == {"pairs.jsonl", "pairs.csv"}
    (agent.folder / "out/certificate.json").write_text(
        record.model_copy(update={"strata_sha256": ""}).model_dump_json()
    )
    agent.check_refused("certificate.json", "export", "run", "--to", "csv", "--certified", "-o", "out/more.csv")


@pytest.mark.parametrize("options", [("--label", "1"), ("--min-agreement", "1"), ("--decided-by", "screen")])
def test_a_certificate_covers_no_part_of_the_certified_labels(
    agent: Commands, run: Path, options: tuple[str, ...]
) -> None:
    review(run, draw(agent))
    agent("score", "run", "--certify", "0.05")
    agent.check_refused("--certified", "export", "run", "--to", "jsonl", "--certified", *options)
    agent.check_refused("--to beir", "export", "run", "--to", "beir", "--certified")
    assert agent("export", "run", "--to", "jsonl", "--certified", "--label", "0", "--label", "1").code == 0


def test_a_report_shows_no_certificate_of_changed_labels(agent: Commands, run: Path) -> None:
    review(run, draw(agent))
    summary = agent("score", "run", "--certify", "0.05", "--json").json
    lines = (run / "annotations.jsonl").read_text().splitlines()
    changed = next(line for line in lines if '"None-0-0"' in line).replace('"label":0', '"label":1')
    (run / "annotations.jsonl").write_text("\n".join([*lines, changed]) + "\n")
    agent("report", "run")
    page = (run / "report.html").read_text()
    assert f"{summary['certificate']['total']['size']} certified" not in page
    assert "--new-sample" in page


def test_reviews_of_a_sample_by_evidence_are_blind(agent: Commands, run: Path) -> None:
    agent.check_refused("--no-blind", "review", "run", *STRATIFY, "--no-blind")
    assert not (run / "reviews.jsonl").read_bytes()


def test_a_sample_is_changed_only_with_new_sample_which_halves_alpha(agent: Commands, run: Path) -> None:
    first = draw(agent)
    review(run, first)
    agent.check_refused("--new-sample", "review", "run", "--sample", "300", *STRATIFY)
    agent.check_refused("--new-sample", "review", "run", "--seed", "7", *STRATIFY)
    larger = draw(agent, "--new-sample", size=300)
    assert set(first) < set(larger)
    agent.check_refused("100", "score", "run", "--certify", "0.05")
    review(run, [pair_id for pair_id in larger if pair_id not in first])
    result = agent("score", "run", "--certify", "0.05", "--json").json
    assert [drawn["size"] for drawn in result["draws"]] == [200, 300]
    assert result["certificate"]["alpha"] == pytest.approx(0.025)
    assert result["alpha_of_all_draws"] == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--certify", "0.05"), "--stratify evidence"),
        (("--certify", "5"), "0.05"),
        (("--until", "1e-9"), "0.001"),
        (("--certify", "0.05", "--until", "0.05"), "--until"),
        (("--calibrate", "--mistakes"), "--mistakes"),
        (("run", "--until", "0.05"), "one run"),
    ],
)
@pytest.mark.usefixtures("run")
def test_options_that_do_not_fit_are_refused(agent: Commands, options: tuple[str, ...], message: str) -> None:
    agent.check_refused(message, "score", "run", *options)
