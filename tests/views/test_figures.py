"""Figures say what the tallies say."""

from __future__ import annotations

from collections.abc import Sequence

import krippendorff
import pytest

from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.store import load_run
from agent.types import PROVES_NOTHING, Annotation, Cause, ErrorInfo, Status, TestReport, Usage
from agent.views.charts import Figure
from agent.views.figures import RunFigures, format_cost, format_duration
from tests.views.runs import make_pairs, make_run

COUNT = 60


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[Observation]:
    """Annotations of every kind, with what led to them."""
    folder = make_run(tmp_path_factory.mktemp("figures") / "run", make_pairs(COUNT))
    with load_run(folder) as run:
        return [each for _, rounds in iterate_annotated_pairs(run, with_history=True) for each in rounds]


@pytest.fixture(scope="module")
def tally(seen: list[Observation]) -> Tally:
    tally = Tally()
    for each in seen:
        tally.add(each)
    return tally


def drawn(*pairs: Sequence[Observation], more: int = 0) -> dict[str, Figure]:
    """All figures of pairs by their titles; `more` pairs are yet to be annotated."""
    figures = RunFigures(len(pairs) + more)
    for rounds in pairs:
        figures.add(merge_rounds(rounds), rounds)
    sections = (figures.labels, figures.tests, figures.repairs, figures.confidence, figures.spending)
    return {block["title"]: block for section in sections for block in section}


@pytest.fixture(scope="module")
def blocks(seen: list[Observation]) -> dict[str, Figure]:
    return drawn(*([each] for each in seen), more=5)


def cells(block: Figure, table: int = 0) -> dict[str, dict[str, str]]:
    """The rows of a table by their first cell, each by its columns."""
    found = block["tables"][table]
    return {row[0]: dict(zip(found["columns"][1:], row[1:], strict=True)) for row in found["rows"]}


def one(**fields: object) -> Observation:
    return Observation(Annotation.model_validate({"id": "1", "input_sha256": "", **fields}))


def test_the_funnel_leads_from_pairs_to_labels(blocks: dict[str, Figure], tally: Tally) -> None:
    funnel = blocks["From pairs to labels"]
    rows = {(stage, outcome): int(count) for stage, outcome, count, _ in funnel["tables"][0]["rows"]}
    assert (rows["pairs", "annotated"], rows["pairs", "not yet"]) == (COUNT, 5)
    assert rows["screened", "unclear"] == rows["programs", "written"] == tally.programs
    assert rows["executed", "ran"] == tally.executed
    assert rows["tests", PROVES_NOTHING] == tally.vacuous == 2
    assert {name: count for (stage, name), count in rows.items() if stage == "labels"} == tally.labels
    assert funnel["chart"] is not None
    assert f"screened: match {rows['screened', 'match']}" in funnel["chart"]["alt"]


def test_the_funnel_says_what_an_audit_of_the_screener_found() -> None:
    text = drawn([one(label=0, screen_verdict="match", audited=True)])["From pairs to labels"]["text"]
    assert "1 of 1 verdicts audited: tests contradict 1 of 1" in text


def test_a_snippet_that_does_not_parse_has_no_program() -> None:
    test = TestReport(status=Status.ERROR, cause=Cause.SNIPPET, message="invalid syntax")
    rows = drawn([one(label=0, test=test)])["From pairs to labels"]["tables"][0]["rows"]
    assert ["programs", "none: the snippet does not parse", "1", "100.0%"] in rows
    assert not any(row[0] in ("executed", "tests") for row in rows)


def test_deciders_errors_and_ways_are_those_of_the_tally(blocks: dict[str, Figure], tally: Tally) -> None:
    deciders = cells(blocks["Who decided"])
    assert {name: sum(map(int, row.values())) for name, row in deciders.items()} == {
        name: counts.total() for name, counts in tally.deciders.items()
    }
    assert {name: int(row["errors"]) for name, row in cells(blocks["Errors"]).items()} == tally.errors
    assert {
        name: int(row["programs"]) for name, row in cells(blocks["Programs that ran"]).items()
    } == tally.run_outcomes
    assert set(tally.run_outcomes) == {"ran without repairs", "ran after repairs"}


def test_outcomes_have_their_causes_and_labels(blocks: dict[str, Figure], tally: Tally) -> None:
    causes, labels = cells(blocks["Outcomes and causes"]), cells(blocks["Labels by test outcome"])
    assert list(causes) == list(labels) == ["passed", PROVES_NOTHING, "failed"]
    assert causes["passed"]["snippet"] == causes["failed"]["no failure"] == "0"
    assert causes["failed"]["snippet"] == str(tally.outcomes["failed"].total())
    assert sum(int(count) for row in labels.values() for count in row.values()) == tally.programs


def test_labels_that_go_against_what_their_test_says_are_counted() -> None:
    passed = TestReport(status=Status.PASSED)
    tests = [passed, passed.model_copy(update={"vacuous": True}), TestReport(status=Status.ERROR, cause=Cause.SNIPPET)]
    text = drawn(*([one(id=str(number), label=0, test=test)] for number, test in enumerate(tests)))
    assert text["Labels by test outcome"]["text"].startswith("1 label goes against the outcome")


def test_mutants_repairs_and_stand_ins_are_those_of_the_tally(blocks: dict[str, Figure], tally: Tally) -> None:
    strength = blocks["Strength of the programs"]
    assert cells(strength) == {
        "returns_nothing": {"noticed": str(tally.programs - 2), "missed": "2"},
        "swapped_comparison": {"noticed": "0", "missed": str(tally.programs)},
    }
    assert f"the mean share that a program noticed is {tally.mean_strength:.2f}. Of 2 programs" in strength["text"]
    repairs, stand_ins = blocks["Repairs by kind"], blocks["Stand-ins"]
    assert f"{tally.repairs} repairs on {tally.repaired} pairs" in repairs["text"]
    assert cells(repairs) == {"packages installed": {"installed": str(tally.repairs)}}
    assert f"{tally.with_stand_ins} of {tally.programs} programs" in stand_ins["text"]
    assert cells(stand_ins) == {"FakeClient": {"programs": str(tally.with_stand_ins)}}


def test_cost_by_node_adds_up_to_the_whole(blocks: dict[str, Figure], tally: Tally) -> None:
    cost = blocks["Cost by node"]
    assert sum(int(row["calls paid"]) for row in cells(cost).values()) == tally.usage.calls
    assert list(cells(cost)) == ["screen", "generate_test", "arbitrate"]
    assert cost["chart"] is not None
    assert cost["chart"]["layout"]["xaxis"]["title"]["text"] == "US dollars"


def test_an_unknown_price_is_no_cost_of_zero(seen: list[Observation]) -> None:
    def unpriced(each: Observation) -> list[Observation]:
        assert each.history is not None
        events = [
            event.model_copy(update={"usage": event.usage + Usage(cost_usd=None)})
            if event.kind == "exchange"
            else event
            for event in each.history.events
        ]
        return [Observation(each.annotation, each.history.model_copy(update={"events": tuple(events)}))]

    cost = drawn(*map(unpriced, seen))["Cost by node"]
    assert {row["cost"] for row in cells(cost).values()} == {"unknown"}
    assert cost["chart"] is not None
    assert cost["chart"]["layout"]["xaxis"]["title"]["text"].startswith("tokens")


def test_time_by_node_is_parted_into_model_programs_and_rest(blocks: dict[str, Figure], tally: Tally) -> None:
    time = cells(blocks["Time by node"])
    assert time["screen"]["visits"] == str(COUNT)
    assert time["execute"] == {
        "visits": str(tally.programs), "median": "300 ms", "all": format_duration(tally.programs * 0.3),
        "model": "0 ms",
        "programs": format_duration(0.1 * (tally.programs + tally.repairs)),
        "rest": format_duration(tally.programs * 0.3 - 0.1 * (tally.programs + tally.repairs)),
    }  # fmt: skip
    assert time["check_validity"]["programs"] == format_duration(0.05 * tally.programs)


def test_a_run_of_which_no_node_came_to_its_end_says_so() -> None:
    broken = one(error=ErrorInfo(type="ModelError", message="no reply"))
    block = drawn([broken])["Time by node"]
    assert (block["chart"], block["tables"], block["text"]) == (None, [], "No node came to its end.")


@pytest.mark.parametrize(("confidence", "name"), [(0.0, "[0.0, 0.1)"), (0.8, "[0.8, 0.9)"), (1.0, "[0.9, 1.0]")])
def test_confidence_is_drawn_in_bins_and_asks_for_gold_where_there_is_none(confidence: float, name: str) -> None:
    found = one(label=1, confidence=confidence)
    block = drawn([found])["Confidence"]
    assert cells(block) == {name: {"1": "1"}}
    assert "--gold" in block["text"]
    judged = drawn([Observation(found.annotation, gold=1)])["Confidence"]
    assert judged["text"] == "Calibration compares it with 1 gold label."
    assert "Confidence" not in drawn([one(label=1)])


def test_rounds_are_drawn_with_their_majority_and_agreement() -> None:
    labels = {"a": (1, 1, 0), "b": (0, 0, 0)}
    found = drawn(*(
        [one(id=pair, round=number, label=label) for number, label in enumerate(each)] for pair, each in labels.items()
    ))["Rounds"]  # fmt: skip
    assert cells(found)["majority"] == {"1": "1", "0": "1"}
    assert "66.7%" in found["text"]
    alpha = krippendorff.alpha([(1, 0), (1, 0), (0, 0)], level_of_measurement="nominal")
    assert f"alpha between rounds is {alpha:.3f}" in found["text"]
    assert "Rounds" not in drawn([one(label=1)])


@pytest.mark.parametrize(("cost", "text"), [(None, "unknown"), (0.0, "$0"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")])
def test_money_is_written_as_far_as_it_matters(cost: float | None, text: str) -> None:
    assert format_cost(cost) == text
