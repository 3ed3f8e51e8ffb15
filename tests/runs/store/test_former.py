"""Run folders of the former version are read and resumed. See `former/README.md`."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from agent import Annotator, ScriptedLLM
from agent.datasets.encoding import dumps
from agent.errors import ConfigError, RunFolderError
from agent.evaluation.ablation_text import read_ablation
from agent.llm.base import Call
from agent.runs.spec import AnnotatorOptions, RunSpec
from agent.runs.store.files import Update
from agent.runs.store.former import update_ablation, update_annotation, update_manifest
from agent.runs.store.run_view import load_run
from agent.runs.store.verify import verify
from agent.types import Cause, Status
from tests.runs.store.samples import execute_sql
from tests.scripts import label, program

FORMER = Path(__file__).parent / "former"
SETTINGS = {
    "pipeline.format_retries": 1,
    "pipeline.max_repairs": 2,
    "pipeline.screen_audit_rate": 0.5,
    "sandbox.install_packages": False,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the former run folders."""
    return shutil.copytree(FORMER, tmp_path / "former")


def answer(call: Call) -> str:
    if call.role == "arbitrate":
        return label(1)
    return program("# <candidate>\n\n\ndef test_two():\n    assert count('a b') == 2\n")


def make_annotator(folder: Path, model: ScriptedLLM, run: str | None = "full") -> Annotator:
    run_dir = None if run is None else folder / run
    return Annotator(
        model=model,
        sandbox="bwrap",
        config=SETTINGS,
        run_dir=run_dir,
        cache=folder / "cache.sqlite",
        prompts=folder / "prompts",
    )


@pytest.mark.bwrap
async def test_full_resumes_and_its_prompts_are_still_in_the_cache(folder: Path) -> None:
    with load_run(folder / "full") as run:
        pairs = list(run.pairs())
    model = ScriptedLLM(answer)
    async with make_annotator(folder, model) as annotator:
        labels = {annotation.id: annotation.label async for annotation in annotator.annotate(pairs)}
    assert labels == {"backwards": 1, "even": 1, "largest": 0, "words": 1}
    assert [(call.pair_id, call.role) for call in model.calls] == [("words", "generate_test"), ("words", "arbitrate")]
    assert verify(folder / "full").counts == {}
    async with make_annotator(folder, ScriptedLLM([]), run=None) as annotator:
        assert {annotation.id: annotation.label async for annotation in annotator.annotate(pairs)} == labels


IDENTITIES = {
    "full": "b86078b42bfbbbd923de072f419bebd96cf532a42e8ac5401482b17d5f81c841",
    "cosqa": "edb92559a1b1d32a3f93f5fc94965c8d5c3d0bba14c8b30d1af8a242f3036a25",
    "single_llm": "e9f97f6587c497ea00edea200307a4618e285c0e79a6b9313d34c287fa36b928",
    "ps_tpg_sim_fa": "92eb3991b6f835305a7cc3f47f236a9e814b58598f11e4cb76fd1eff834748b9",
}
"""Hashes of identities with the former prompts, computed before the setting `pipeline.context` existed."""


@pytest.mark.parametrize("variant", IDENTITIES)
def test_tests_in_modules_change_no_identity_of_a_run_without_them(variant: str) -> None:
    identity = RunSpec.of({"model": "heuristic", "variant": variant, "prompts": FORMER / "prompts"}).identity()
    assert hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest() == IDENTITIES[variant]


def test_the_identity_of_a_run_with_modules_contains_their_settings_and_templates() -> None:
    options: AnnotatorOptions = {"model": "heuristic", "config": {"pipeline.context": "module"}}
    inside, outside = RunSpec.of(options).identity(), RunSpec.of({**options, "without": ("open_context",)}).identity()
    plain = RunSpec.of({"model": "heuristic"}).identity()
    assert (inside["pipeline"]["context"], inside["pipeline"]["context_lines"]) == ("module", 150)
    assert set(inside["prompts"]) - set(plain["prompts"]) == {
        "arbitrate_in_module", "generate_test_in_module", "repair_in_module",
    }  # fmt: skip
    assert outside == {**plain, "variant": {**plain["variant"], "name": "full-without-open_context"}}


def test_a_vacuous_or_flaky_test_is_no_evidence(folder: Path) -> None:
    with load_run(folder / "full_plus") as run:
        tests = {annotation.id: annotation.test for annotation in run.annotations()}
        assert {name: test and (test.status, test.cause) for name, test in tests.items()} == {
            "vacuous": (Status.ERROR, Cause.PROGRAM),
            "sound": (Status.PASSED, None),
            "flaky": (Status.ERROR, Cause.PROGRAM),
            "open": (Status.ERROR, Cause.SNIPPET),
        }
        history = run.evidence("vacuous")
    assert [execution.purpose for execution in history.executions] == ["test", "sentinel"] * 2
    assert [node_run.outcome for node_run in history.node_runs][-2:] == ["decided", "rated"]


async def test_a_run_of_a_removed_variant_cannot_be_resumed(folder: Path) -> None:
    with load_run(folder / "full_plus") as run:
        pairs = list(run.pairs())
    with pytest.raises(ConfigError, match=r"full_plus.*full and another folder"):
        Annotator(model=ScriptedLLM([]), variant="full_plus", run_dir=folder / "full_plus")
    async with make_annotator(folder, ScriptedLLM([]), "full_plus") as annotator:
        with pytest.raises(RunFolderError, match=r"full_plus.*full and another folder"):
            await anext(annotator.annotate(pairs))


def test_the_former_ablation_table_is_read(folder: Path) -> None:
    table = read_ablation(folder / "ablation/ablation.json")
    assert [row.variant for row in table.rows] == ["full", "full_plus"]
    assert table.executions == {"requested": 28, "executed": 16}
    assert table.calls == {"requested": 22, "executed": 22, "shared": 0, "cached_before": 0, "if_run_alone": 22}


@pytest.mark.parametrize(
    ("update", "record"),
    [
        (update_annotation, {"test": ["passed"]}),
        (update_annotation, {"test": {"cases": [3], "cause": {}}}),
        (update_manifest, {"identity": []}),
        (update_manifest, {"identity": {"pipeline": 3, "prompts": ["x"]}}),
        (update_ablation, {"calls": 3, "rows": [4]}),
    ],
)
def test_malformed_parts_are_left_to_the_validation(update: Update, record: dict[str, Any]) -> None:
    before = copy.deepcopy(record)
    update(record)
    assert {**record, "schema": 0} == {**before, "schema": 0}


@pytest.mark.parametrize("events", [3, ["visit"], [{"kind": "visit"}, "visit"], [{"kind": []}], [{}]])
def test_malformed_evidence_is_an_error(folder: Path, events: object) -> None:
    record = zlib.compress(dumps({"events": events}))
    execute_sql(folder / "full/evidence.sqlite", "UPDATE records SET record = ?", record)
    with load_run(folder / "full") as run, pytest.raises(RunFolderError, match="evidence"):
        run.evidence("even")
