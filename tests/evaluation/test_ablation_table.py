"""Tests for the ablation table: measures, standalone costs of variants, and McNemar tests with Holm's adjustment."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from agent.evaluation.ablation import VariantRun, choose_variants
from agent.evaluation.ablation_table import AblationRow, AblationTable, VariantResults, make_table
from agent.evaluation.ablation_text import (
    as_csv,
    as_document,
    as_markdown,
    build_sections,
    list_remarks,
    read_ablation,
    write_table,
)
from agent.evaluation.tally import Observation
from agent.pipeline.graph import load_variant
from agent.pipeline.history import Execution, ModelCall
from agent.runs.store.annotations import Label
from agent.types import Annotation, CaseOutcome, CaseResult, Pair, Status, TestReport, Usage
from tests.histories import make_history, make_program

GOLD = {f"p{number}": int(number < 6) for number in range(20)}
PAIRS = [Pair(id=pair_id, query="q", code="c") for pair_id in GOLD]
SETTING: dict[str, Any] = {"criterion": "exact", "model": "m", "rounds": 1, "note": None, "against": "full"}
UNTESTED = {**SETTING, "against": None}
# pairs that each variant mislabels, and pairs that it leaves unlabelled
WRONG = {
    "full": ({"p0"}, set[str]()),
    "single_llm": ({f"p{n}" for n in range(1, 10)}, set[str]()),
    "ps_fa": ({"p0", "p1"}, {"p2"}),
}


def make_ablation(setting: dict[str, Any] = SETTING, **wrong: tuple[set[str], set[str]]) -> AblationTable:
    chosen = wrong or WRONG
    results = [make_labelled_results(make_labels(*pairs)) for pairs in chosen.values()]
    runs = [
        VariantRun(variant, Path("out") / variant.name, variant.name == "full")
        for variant in choose_variants([*chosen])
    ]
    return make_table(runs, results, PAIRS, GOLD, **setting, base=Path("out"))


def make_labels(wrong: set[str], missing: set[str]) -> dict[str, Label]:
    predicted: dict[str, Any] = {pair: 1 - label if pair in wrong else label for pair, label in GOLD.items()}
    return {**predicted, **dict.fromkeys(missing)}


def make_labelled_results(predicted: dict[str, Label], rounds: int = 1, **last_round: Label) -> VariantResults:
    """Return the work of a variant with these labels in each round. `last_round` overrides labels of the last round."""
    result = VariantResults()
    for pair_id, label in predicted.items():
        round_labels = [label] * (rounds - 1) + [last_round.get(pair_id, label)]
        annotations = [
            Annotation(id=pair_id, input_sha256="0" * 64, label=round_label, round=n)
            for n, round_label in enumerate(round_labels)
        ]
        result.add(*map(Observation, annotations))
    return result


def make_rows(**wrong: tuple[set[str], set[str]]) -> dict[str, AblationRow]:
    return {row.variant: row for row in make_ablation(**wrong).rows}


def test_null_labels_count_as_wrong_in_accuracy() -> None:
    row = make_rows()["ps_fa"]
    assert row.accuracy.value == 17 / 20
    low, high = proportion_confint(17, 20, method="wilson")
    assert (row.accuracy.low, row.accuracy.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert (row.coverage, row.selective_accuracy) == (19 / 20, 17 / 19)
    assert (row.precision, row.recall) == (1.0, 3 / 6)


def test_variants_are_tested_against_full_with_adjusted_p_values() -> None:
    by_variant = make_rows()
    tests = [row.mcnemar for row in by_variant.values() if row.mcnemar is not None]
    assert by_variant["full"].mcnemar is None
    assert [(test.only_this_right, test.only_other_right) for test in tests] == [(1, 9), (0, 2)]
    p_values = [binomtest(1, 10).pvalue, binomtest(0, 2).pvalue]
    assert [test.p for test in tests] == pytest.approx(p_values, abs=1e-12)
    assert [test.p_holm for test in tests] == pytest.approx(list(multipletests(p_values, method="holm")[1]), abs=1e-12)


@pytest.mark.parametrize(("discordant", "too_few"), [(0, True), (1, True), (5, True), (6, False)])
def test_fewer_than_six_discordant_pairs_add_a_note(discordant: int, too_few: bool) -> None:
    wrong = {f"p{number}" for number in range(discordant)}
    test = make_rows(full=(set(), set()), ps_fa=(wrong, set()))["ps_fa"].mcnemar
    assert (test.note or "").startswith(f"{discordant} discordant") is too_few
    assert (test.p < 0.05) is not too_few


@pytest.mark.parametrize(
    ("variants", "against", "word"), [(("ps_fa", "single_llm"), None, "--against"), (("full",), "full", "only")]
)
def test_paired_tests_need_a_reference_and_a_second_variant(
    variants: tuple[str, ...], against: str | None, word: str
) -> None:
    ablation = make_ablation({**SETTING, "against": against}, **{name: (set(), set()) for name in variants})
    assert [row.mcnemar for row in ablation.rows] == [None for _ in variants]
    assert any("significance" in remark and word in remark for remark in list_remarks(ablation))
    assert len(build_sections(ablation)) == 2


def test_any_variant_can_be_the_reference() -> None:
    ablation = make_ablation({**SETTING, "against": "ps_fa"})
    tests = {row.variant: row.mcnemar for row in ablation.rows}
    assert tests["ps_fa"] is None
    assert (tests["full"].against, tests["full"].only_this_right, tests["full"].only_other_right) == ("ps_fa", 2, 0)
    section = build_sections(ablation)[1]
    assert "against ps_fa" in section["title"]
    assert section["tables"][0]["columns"][1:3] == ["only this", "only ps_fa"]
    assert as_document(ablation)["against"] == "ps_fa"
    assert {line["mcnemar.against"] for line in csv.DictReader(io.StringIO(as_csv(ablation)))} == {"", "ps_fa"}
    assert "against ps\\_fa)" in as_markdown(ablation)


def test_calls_are_counted_as_made_shared_or_cached_earlier() -> None:
    results = [
        make_results(paid_call(), paid_call(key="k3")),
        make_results(cached_call(key="k1"), cached_call(key="k1"), cached_call(key="old")),
    ]
    runs = [VariantRun(load_variant(name), Path("out") / name, False) for name in ("full", "ps_fa")]
    ablation = make_table(runs, results, PAIRS[:1], GOLD, **SETTING, base=Path("out"))
    assert ablation.calls == {"requested": 5, "executed": 2, "shared": 2, "cached_before": 1, "if_run_alone": 4}


def test_measures_exclude_pairs_without_a_gold_label() -> None:
    runs = [VariantRun(load_variant("ps_fa"), Path("out/ps_fa"), False)]
    result = make_labelled_results({"p0": 1, "new": 1})
    pairs = [PAIRS[0], Pair(id="new", query="q", code="c")]
    ablation = make_table(runs, [result], pairs, GOLD, **UNTESTED, base=Path("out"))
    assert (ablation.pairs, ablation.gold, ablation.unlabelled) == (2, {"1": 1, "0": 0}, 1)
    assert ablation.rows[0].accuracy.value == 1.0


USAGE = Usage(calls=1, input_tokens=100, output_tokens=10, cost_usd=0.5)


def make_model_call(**fields: Any) -> ModelCall:
    return ModelCall.model_validate({"role": "screen", "key": "k", "messages": (), "reply": "r", **fields})


def paid_call(**fields: Any) -> ModelCall:
    return make_model_call(**{"key": "k1", "usage": USAGE, "seconds": 2.0, **fields})


def cached_call(**fields: Any) -> ModelCall:
    return make_model_call(**{"key": "k2", "cached": True, "saved": USAGE, "seconds": 3.0, **fields})


PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))


def make_results(*model_calls: ModelCall, runs: tuple[Execution, ...] = (), **fields: Any) -> VariantResults:
    result = VariantResults()
    programs = (make_program("s"),) if "test" in fields else ()
    history = make_history(PAIRS[0], *model_calls, *programs, *runs)
    result.add(Observation(Annotation(id="p0", input_sha256="0" * 64, **fields), history))
    return result


def test_cached_replies_count_with_their_original_cost_but_not_as_paid() -> None:
    result = make_results(paid_call(), cached_call())
    assert (result.calls, result.model_calls, result.cached_calls, result.distinct_calls) == (
        2,
        {"k1": 1},
        {"k2": 1},
        2,
    )
    assert (result.usage.input_tokens, result.usage.cost_usd, result.seconds) == (200, 1.0, 5.0)
    assert (result.paid.input_tokens, result.paid.cost_usd) == (100, 0.5)


@pytest.mark.parametrize("caller", range(4))
def test_calls_shared_by_the_pairs_of_a_query_count_once(caller: int) -> None:
    shared = [paid_call(key="spec") if n == caller else cached_call(key="spec", seconds=2.0) for n in range(4)]
    result = make_results(*shared, cached_call(key="other"))
    assert (result.calls, result.usage.input_tokens, result.seconds) == (2, 200, 5.0)
    assert (result.model_calls, result.cached_calls) == ({"spec": 1}, {"spec": 3, "other": 1})


def test_a_reply_that_is_only_cached_counts_once() -> None:
    result = make_results(*(cached_call(key="spec") for _ in range(4)))
    assert (result.calls, result.usage.cost_usd, result.seconds) == (1, 0.5, 3.0)


def test_every_attempt_of_a_call_counts() -> None:
    failed = paid_call(key="k", seconds=None, problem="ModelError: late")
    result = make_results(failed, paid_call(key="k"), cached_call(key="k"))
    assert (result.calls, result.usage.cost_usd, result.seconds) == (2, 1.0, 2.0)


def test_every_execution_counts_with_its_duration() -> None:
    sentinels = [
        Execution(program=0, purpose="sentinel", report=PASSED, seconds=0.25, shared=shared) for shared in (False, True)
    ]
    result = make_results(runs=(Execution(program=0, report=PASSED, seconds=0.5), *sentinels), test=PASSED)
    assert (result.executions, result.executions_run, result.seconds) == (3, 2, 1.0)
    assert (result.tally.programs, result.tally.executed, result.tally.cases) == (1, 1, 1)


def test_several_rounds_add_a_section_on_agreement() -> None:
    result = make_labelled_results(make_labels(*WRONG["full"]), rounds=3, p0=1)
    run = VariantRun(load_variant("full"), Path("out/full"), True)
    ablation = make_table([run], [result], PAIRS, GOLD, **UNTESTED | {"rounds": 3}, base=Path("out"))
    (section,) = (section for section in build_sections(ablation) if section["title"] == "Agreement between 3 rounds")
    assert section["tables"][0]["rows"] == [["full", "0.967", "0.916"]]
    assert "Agreement" not in str([section["title"] for section in build_sections(make_ablation())])


def test_the_cost_is_none_if_the_price_is_unknown() -> None:
    result = make_results(cached_call(saved=Usage(calls=1, cost_usd=None)))
    run = VariantRun(load_variant("ps_fa"), Path("out/ps_fa"), False)
    row = make_table([run], [result], PAIRS[:1], GOLD, **UNTESTED, base=Path("out")).rows[0]
    assert (row.calls_per_pair, row.cost_per_pair) == (1.0, None)


NOTE = "The replies are no language model's (heuristic)"


def test_all_files_contain_the_same_table(tmp_path: Path) -> None:
    ablation = make_ablation({**SETTING, "criterion": "half", "note": NOTE})
    write_table(tmp_path, ablation)
    document = json.loads((tmp_path / "ablation.json").read_text())
    assert document == as_document(ablation)
    assert read_ablation(tmp_path / "ablation.json") == ablation
    assert document["remarks"] == list_remarks(ablation)
    assert (document["schema"], document["pairs"], document["gold"]) == (2, 20, {"1": 6, "0": 14})
    assert document["rows"][1]["mcnemar"]["only_other_right"] == 9
    lines = list(csv.DictReader(io.StringIO((tmp_path / "ablation.csv").read_text())))
    assert [line["variant"] for line in lines] == [*WRONG]
    assert float(lines[0]["accuracy.value"]) == 19 / 20
    assert lines[0]["mcnemar.p"] == ""
    assert float(lines[1]["mcnemar.p"]) == document["rows"][1]["mcnemar"]["p"]
    markdown = (tmp_path / "ablation.md").read_text()
    assert markdown.index(NOTE) < markdown.index("\n## ")
    for row in ablation.rows:
        assert sum(f"| {row.variant.replace('_', chr(92) + '_')} |" in line for line in markdown.splitlines()) == 3


def test_untrusted_names_are_escaped_in_csv() -> None:
    row = make_ablation().rows[0].model_copy(update={"variant": "=cmd()\n", "title": "+1"})
    line = next(csv.DictReader(io.StringIO(as_csv(make_ablation().model_copy(update={"rows": (row,)})))))
    assert (line["variant"], line["title"]) == ("'=cmd()\n", "'+1")
