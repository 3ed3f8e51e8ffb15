"""The table says what the runs say: measures by counting, costs of a variant by itself, tests with Holm's."""

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
from agent.evaluation.ablation_table import AblationRow, AblationTable, Work, make_table
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
from agent.graph import load_variant
from agent.history import Exchange, Execution
from agent.store.annotations import Label
from agent.types import Annotation, CaseOutcome, CaseResult, Pair, Status, TestReport, Usage
from tests.histories import make_history, mutant_of, program_of

GOLD = {f"p{number}": int(number < 6) for number in range(20)}
PAIRS = [Pair(id=each, query="q", code="c") for each in GOLD]
SETTING: dict[str, Any] = {"criterion": "exact", "model": "m", "rounds": 1, "note": None, "against": "full"}
UNTESTED = {**SETTING, "against": None}
# Which pairs each variant labels wrongly, and which it leaves open.
WRONG = {
    "full": ({"p0"}, set[str]()),
    "single_llm": ({f"p{n}" for n in range(1, 10)}, set[str]()),
    "ps_fa": ({"p0", "p1"}, {"p2"}),
}


def table(setting: dict[str, Any] = SETTING, **wrong: tuple[set[str], set[str]]) -> AblationTable:
    chosen = wrong or WRONG
    works = [labelled(labels(*each)) for each in chosen.values()]
    runs = [
        VariantRun(variant, Path("out") / variant.name, variant.name == "full")
        for variant in choose_variants([*chosen])
    ]
    return make_table(runs, works, PAIRS, GOLD, **setting, base=Path("out"))


def labels(wrong: set[str], missing: set[str]) -> dict[str, Label]:
    given: dict[str, Any] = {each: 1 - label if each in wrong else label for each, label in GOLD.items()}
    return {**given, **dict.fromkeys(missing)}


def labelled(given: dict[str, Label], rounds: int = 1, **others: Label) -> Work:
    """Return the work of a variant that gave these labels in each round; of `others` in the last one."""
    work = Work()
    for pair_id, label in given.items():
        every = [label] * (rounds - 1) + [others.get(pair_id, label)]
        seen = [Annotation(id=pair_id, input_sha256="0" * 64, label=each, round=n) for n, each in enumerate(every)]
        work.add(*map(Observation, seen))
    return work


def rows(**wrong: tuple[set[str], set[str]]) -> dict[str, AblationRow]:
    return {row.variant: row for row in table(**wrong).rows}


def test_a_label_of_null_is_wrong_and_the_interval_is_wilsons() -> None:
    row = rows()["ps_fa"]
    assert row.accuracy is not None
    assert row.accuracy.value == 17 / 20
    low, high = proportion_confint(17, 20, method="wilson")
    assert (row.accuracy.low, row.accuracy.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert (row.coverage, row.selective_accuracy) == (19 / 20, 17 / 19)
    assert (row.precision, row.recall) == (1.0, 3 / 6)


def test_each_variant_is_tested_against_full_and_adjusted_over_all() -> None:
    found = rows()
    tests = [row.mcnemar for row in found.values() if row.mcnemar is not None]
    assert found["full"].mcnemar is None
    assert [(test.only_this_right, test.only_other_right) for test in tests] == [(1, 9), (0, 2)]
    p_values = [binomtest(1, 10).pvalue, binomtest(0, 2).pvalue]
    assert [test.p for test in tests] == pytest.approx(p_values, abs=1e-12)
    assert [test.p_holm for test in tests] == pytest.approx(list(multipletests(p_values, method="holm")[1]), abs=1e-12)


@pytest.mark.parametrize(("discordant", "too_few"), [(0, True), (1, True), (5, True), (6, False)])
def test_a_row_with_fewer_than_six_discordant_pairs_says_so(discordant: int, too_few: bool) -> None:
    wrong = {f"p{number}" for number in range(discordant)}
    test = rows(full=(set(), set()), ps_fa=(wrong, set()))["ps_fa"].mcnemar
    assert test is not None
    counted = f"{discordant} discordant pair{'s' if discordant != 1 else ''}"
    expected = f"{counted}: fewer than 6 cannot reach p < .05" if too_few else None
    assert test.note == expected
    assert (test.p < 0.05) is not too_few


@pytest.mark.parametrize(("variants", "against", "told"), [
    (("ps_fa", "single_llm"), None, "full is not among the variants; --against NAME takes another in its place"),
    (("full",), "full", "there is no variant beside full"),
])  # fmt: skip
def test_where_there_is_nothing_to_test_against_no_test_is_made(
    variants: tuple[str, ...], against: str | None, told: str
) -> None:
    found = table({**SETTING, "against": against}, **{name: (set(), set()) for name in variants})
    assert [row.mcnemar for row in found.rows] == [None for _ in variants]
    assert f"No test is made: {told}." in list_remarks(found)
    assert [section.title for section in build_sections(found)] == [
        "Labels against gold", "What a variant takes by itself (calls to seconds: per pair)"
    ]  # fmt: skip


def test_any_variant_may_be_the_one_that_the_others_are_tested_against() -> None:
    found = table({**SETTING, "against": "ps_fa"})
    tests = {row.variant: row.mcnemar for row in found.rows}
    assert tests["ps_fa"] is None
    assert tests["full"] is not None
    assert (tests["full"].against, tests["full"].only_this_right, tests["full"].only_other_right) == ("ps_fa", 2, 0)
    section = build_sections(found)[1]
    assert section.title.endswith("(exact McNemar test against ps_fa)")
    assert [column.heading for column in section.columns][1:3] == ["only this", "only ps_fa"]
    assert as_document(found)["against"] == "ps_fa"
    assert {line["mcnemar.against"] for line in csv.DictReader(io.StringIO(as_csv(found)))} == {"", "ps_fa"}
    assert "McNemar test against ps\\_fa)" in as_markdown(found)


def test_a_question_is_answered_by_a_model_by_another_variants_call_or_by_an_earlier_one() -> None:
    works = [worked(paid(), paid(key="k3")), worked(cached(key="k1"), cached(key="k1"), cached(key="old"))]
    runs = [VariantRun(load_variant(name), Path("out") / name, False) for name in ("full", "ps_fa")]
    found = make_table(runs, works, PAIRS[:1], GOLD, **SETTING, base=Path("out"))
    assert found.calls == {"asked": 5, "made": 2, "shared": 2, "earlier": 1, "separate": 4}


def test_pairs_without_gold_are_left_out_of_the_measures_and_counted() -> None:
    runs = [VariantRun(load_variant("ps_fa"), Path("out/ps_fa"), False)]
    work = labelled({"p0": 1, "new": 1})
    pairs = [PAIRS[0], Pair(id="new", query="q", code="c")]
    found = make_table(runs, [work], pairs, GOLD, **UNTESTED, base=Path("out"))
    assert (found.pairs, found.gold, found.unlabelled) == (2, {"1": 1, "0": 0}, 1)
    assert found.rows[0].accuracy is not None
    assert found.rows[0].accuracy.value == 1.0


USAGE = Usage(calls=1, input_tokens=100, output_tokens=10, cost_usd=0.5)


def exchange(**fields: Any) -> Exchange:
    return Exchange.model_validate({"role": "screen", "key": "k", "messages": (), "reply": "r", **fields})


def paid(**fields: Any) -> Exchange:
    return exchange(**{"key": "k1", "usage": USAGE, "seconds": 2.0, **fields})


def cached(**fields: Any) -> Exchange:
    return exchange(**{"key": "k2", "cached": True, "saved": USAGE, "seconds": 3.0, **fields})


PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))


def worked(*exchanges: Exchange, runs: tuple[Execution, ...] = (), **fields: Any) -> Work:
    work = Work()
    programs = (program_of("s"),) if "test" in fields else ()
    history = make_history(PAIRS[0], *exchanges, *programs, *runs)
    work.add(Observation(Annotation(id="p0", input_sha256="0" * 64, **fields), history))
    return work


def test_a_reply_from_the_cache_counts_with_what_it_cost_and_not_as_paid() -> None:
    work = worked(paid(), cached())
    assert (work.calls, work.made, work.answered, work.asked) == (2, {"k1": 1}, {"k2": 1}, 2)
    assert (work.usage.input_tokens, work.usage.cost_usd, work.seconds) == (200, 1.0, 5.0)
    assert (work.paid.input_tokens, work.paid.cost_usd) == (100, 0.5)


@pytest.mark.parametrize("who_asked", range(4))
def test_a_question_that_all_candidates_of_a_query_share_is_taken_once(who_asked: int) -> None:
    shared = [paid(key="spec") if n == who_asked else cached(key="spec", seconds=2.0) for n in range(4)]
    work = worked(*shared, cached(key="other"))
    assert (work.calls, work.usage.input_tokens, work.seconds) == (2, 200, 5.0)
    assert (work.made, work.answered) == ({"spec": 1}, {"spec": 3, "other": 1})


def test_of_a_question_that_nobody_of_the_variant_paid_for_one_reply_counts() -> None:
    work = worked(*(cached(key="spec") for _ in range(4)))
    assert (work.calls, work.usage.cost_usd, work.seconds) == (1, 0.5, 3.0)


def test_every_try_of_a_question_counts_that_was_made() -> None:
    failed = paid(key="k", seconds=None, problem="ModelError: late")
    work = worked(failed, paid(key="k"), cached(key="k"))
    assert (work.calls, work.usage.cost_usd, work.seconds) == (2, 1.0, 2.0)


def test_every_run_counts_with_the_time_it_took_shared_or_not_whatever_for() -> None:
    mutants = [mutant_of("raises", Status.FAILED, seconds=0.25, shared=shared) for shared in (False, True)]
    work = worked(runs=(Execution(program=0, report=PASSED, seconds=0.5), *mutants), test=PASSED)
    assert (work.executions, work.executions_run, work.seconds) == (3, 2, 1.0)
    assert (work.tally.programs, work.tally.executed, work.tally.cases) == (1, 1, 1)


def test_tests_that_were_tried_on_mutants_are_counted_with_their_strength_and_those_that_prove_nothing() -> None:
    work = worked(test=PASSED, strength=1.0)
    work.add(Observation(Annotation(id="p1", input_sha256="0" * 64, test=PASSED, strength=None)))
    vacuous = PASSED.model_copy(update={"vacuous": True})
    work.add(Observation(Annotation(id="p2", input_sha256="0" * 64, test=vacuous, strength=0.0)))
    run = VariantRun(load_variant("full_plus"), Path("out/full_plus"), True)
    found = make_table([run], [work], PAIRS, GOLD, **UNTESTED, base=Path("out"))
    row = found.rows[0]
    assert (row.tests_checked, row.tests_vacuous, row.mean_strength) == (2, 1, 0.5)
    section = build_sections(found)[-1]
    assert [(column.heading, column.text(row)) for column in section.columns] == [
        ("variant", "full_plus"), ("tried", "2"), ("prove nothing", "1"), ("mean strength", "0.50")
    ]  # fmt: skip
    assert "mutants" not in str([each.title for each in build_sections(table())])


def test_rounds_have_a_part_that_says_how_far_they_agree() -> None:
    work = labelled(labels(*WRONG["full"]), rounds=3, p0=1)
    run = VariantRun(load_variant("full"), Path("out/full"), True)
    found = make_table([run], [work], PAIRS, GOLD, **UNTESTED | {"rounds": 3}, base=Path("out"))
    (part,) = (each for each in build_sections(found) if each.title == "Agreement between 3 rounds")
    assert [column.text(found.rows[0]) for column in part.columns] == ["full", "0.967", "0.916"]
    assert "Agreement between" not in str([each.title for each in build_sections(table())])


def test_a_price_that_is_unknown_stays_unknown() -> None:
    work = worked(cached(saved=Usage(calls=1, cost_usd=None)))
    run = VariantRun(load_variant("ps_fa"), Path("out/ps_fa"), False)
    row = make_table([run], [work], PAIRS[:1], GOLD, **UNTESTED, base=Path("out")).rows[0]
    assert (row.calls_per_pair, row.cost_per_pair) == (1.0, None)


NOTE = "The replies are no language model's (heuristic)"


def test_the_files_hold_the_same_table(tmp_path: Path) -> None:
    found = table({**SETTING, "criterion": "half", "note": NOTE})
    write_table(tmp_path, found)
    document = json.loads((tmp_path / "ablation.json").read_text())
    assert document == as_document(found)
    assert read_ablation(tmp_path / "ablation.json") == found
    assert document["remarks"] == list_remarks(found)
    assert (document["schema"], document["pairs"], document["gold"]) == (1, 20, {"1": 6, "0": 14})
    assert document["rows"][1]["mcnemar"]["only_other_right"] == 9
    lines = list(csv.DictReader(io.StringIO((tmp_path / "ablation.csv").read_text())))
    assert [line["variant"] for line in lines] == [*WRONG]
    assert float(lines[0]["accuracy.value"]) == 19 / 20
    assert lines[0]["mcnemar.p"] == ""
    assert float(lines[1]["mcnemar.p"]) == document["rows"][1]["mcnemar"]["p"]
    markdown = (tmp_path / "ablation.md").read_text()
    assert markdown.index(NOTE) < markdown.index("## Labels against gold")
    for row in found.rows:
        assert sum(f"| {row.variant.replace('_', chr(92) + '_')} |" in line for line in markdown.splitlines()) == 3


HOSTILE = "=cmd()|<script>\n# x"


def test_names_from_a_strangers_file_are_no_formula_and_no_markup() -> None:
    row = table().rows[0].model_copy(update={"variant": HOSTILE, "title": "+1"})
    found = table().model_copy(update={"rows": (row,)})
    line = next(csv.DictReader(io.StringIO(as_csv(found))))
    assert (line["variant"], line["title"]) == (f"'{HOSTILE}", "'+1")
    assert "| =cmd()\\|\\<script\\> \\# x |" in as_markdown(found)
    tested = table().model_copy(update={"against": HOSTILE})
    assert "against =cmd()\\|\\<script\\> \\# x)" in as_markdown(tested)
