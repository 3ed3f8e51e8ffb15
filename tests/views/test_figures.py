"""Figures say what the annotations say; the run's summary, which counts on its own, says the same."""

from __future__ import annotations

from collections.abc import Sequence

import krippendorff
import pytest

from agent.cli.summary import Summary, Tally
from agent.evaluation.calibration import reliability
from agent.history import Exchange, History, Visit
from agent.store import load_run
from agent.types import PROVES_NOTHING, Annotation, Cause, ErrorInfo, Pair, Status, TestReport, Usage
from agent.views.charts import Block
from agent.views.figures.base import Figure, Seen, as_one, duration, money
from agent.views.figures.confidence import Confidence
from agent.views.figures.labels import Deciders, Errors, Funnel
from agent.views.figures.repairs import Repairs, StandIns
from agent.views.figures.rounds import Rounds
from agent.views.figures.running import Executed, Mutants, Outcomes
from agent.views.figures.spending import Cost, Time
from tests.views.report_runs import make_pairs, make_run

COUNT = 60


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """Annotations of every kind, with their evidence."""
    folder = make_run(tmp_path_factory.mktemp("figures") / "run", make_pairs(COUNT))
    with load_run(folder) as run:
        return [Seen(found, run.evidence(found.id)) for found in run.annotations()]


@pytest.fixture(scope="module")
def summary(seen: list[Seen]) -> Summary:
    tally = Tally()
    for each in seen:
        tally.add(each.annotation)
    return tally.summary()


def shown(figure: Figure, seen: Sequence[Seen]) -> list[Block]:
    for each in seen:
        figure.add(each)
    return figure.blocks()


def cells(block: Block, table: int = 0) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    return {row[0]: row[1:] for row in block["tables"][table]["rows"]}


def test_the_funnel_leads_from_pairs_to_labels(seen: list[Seen], summary: Summary) -> None:
    (funnel,) = shown(Funnel(COUNT + 5), seen)
    rows = {(stage, outcome): int(count) for stage, outcome, count, _ in funnel["tables"][0]["rows"]}
    assert (rows["pairs", "annotated"], rows["pairs", "not yet"]) == (COUNT, 5)
    assert sum(count for (stage, _), count in rows.items() if stage == "screened") == COUNT
    assert rows["screened", "unclear"] == rows["programs", "written"] == summary.programs
    assert rows["executed", "ran"] == summary.programs_executed
    tests = {name: count for (stage, name), count in rows.items() if stage == "tests"}
    assert tests.pop(PROVES_NOTHING) == summary.tests_vacuous == 2
    assert tests == summary.statuses | {"passed": summary.statuses["passed"] - 2}
    assert (rows["labels", "1"], rows["labels", "0"]) == (summary.labels["1"], summary.labels["0"])
    assert rows["labels", "error"] == sum(summary.errors.values())
    assert rows["labels", "undecided"] == summary.labels["null"] - rows["labels", "error"]
    assert funnel["chart"] is not None
    assert f"screened: match {rows['screened', 'match']}" in funnel["chart"]["alt"]


def test_a_snippet_that_does_not_parse_has_no_program() -> None:
    test = TestReport(status=Status.ERROR, cause=Cause.SNIPPET, message="invalid syntax")
    found = Annotation(id="1", input_sha256="", label=0, test=test)
    (funnel,) = shown(Funnel(1), [Seen(found, History(pair=Pair(id="1", query="q", code="def")))])
    assert ["programs", "none, for the snippet does not parse", "1", "100.0%"] in funnel["tables"][0]["rows"]
    assert not any(row[0] in ("executed", "tests") for row in funnel["tables"][0]["rows"])


def test_deciders_and_errors_are_those_of_the_summary(seen: list[Seen], summary: Summary) -> None:
    (deciders,) = shown(Deciders(), seen)
    assert {name: sum(map(int, row)) for name, row in cells(deciders).items()} == summary.decided_by
    (errors,) = shown(Errors(), seen)
    assert {name: int(row[0]) for name, row in cells(errors).items()} == summary.errors


def test_programs_that_ran_after_repairs_are_told_from_those_that_ran_at_once(seen: list[Seen]) -> None:
    figure = Executed()
    (block,) = shown(figure, seen)
    repaired = sum(each.annotation.repairs > 0 for each in seen)
    assert cells(block)["ran after repairs"][0] == str(repaired)
    assert cells(block)["ran at once"][0] == str(figure.executed - repaired)


def test_outcomes_have_their_causes_and_labels(seen: list[Seen], summary: Summary) -> None:
    causes, labels = shown(Outcomes(), seen)
    told = {f"{status}: {cause}": int(count) for status, cause, count in causes["tables"][0]["rows"] if cause != "–"}
    assert told == {**summary.causes, "passed: proves nothing": summary.tests_vacuous}
    assert list(cells(labels)) == ["passed", PROVES_NOTHING, "failed"]
    assert sum(int(count) for row in cells(labels).values() for count in row) == summary.programs


def test_labels_that_go_against_what_their_test_says_are_counted() -> None:
    passed = TestReport(status=Status.PASSED)
    tests = [passed, passed.model_copy(update={"vacuous": True}), TestReport(status=Status.ERROR, cause=Cause.SNIPPET)]
    _, labels = shown(Outcomes(), [Seen(Annotation(id="1", input_sha256="", label=0, test=test)) for test in tests])
    assert labels["text"].startswith("1 label goes against its test.")


def test_mutants_are_counted_by_kind(seen: list[Seen], summary: Summary) -> None:
    (block,) = shown(Mutants(), seen)
    tested, noticed = str(summary.programs), str(summary.programs - summary.tests_vacuous)
    assert cells(block) == {
        "returns_nothing": [tested, noticed, "90.0%"], "swapped_comparison": [tested, "0", "0.0%"]
    }  # fmt: skip
    assert f"the mean share that a program noticed is {summary.mean_strength:.2f}" in block["text"]
    assert f"Of {summary.tests_vacuous} programs it was nothing but crashes" in block["text"]


def test_repairs_and_stand_ins_are_those_of_the_summary(seen: list[Seen], summary: Summary) -> None:
    (repairs,) = shown(Repairs(), seen)
    assert f"{summary.repairs} repairs on {summary.pairs_repaired} pairs" in repairs["text"]
    assert cells(repairs) == {"packages installed": [str(summary.repairs)]}
    (stand_ins,) = shown(StandIns(), seen)
    assert f"{summary.pairs_with_stand_ins} of {summary.programs} programs" in stand_ins["text"]
    assert cells(stand_ins, 1) == {"FakeClient": [str(summary.pairs_with_stand_ins)]}


def test_cost_by_node_adds_up_to_the_whole(seen: list[Seen], summary: Summary) -> None:
    figure = Cost()
    (block,) = shown(figure, seen)
    assert sum(int(row[0]) for row in cells(block).values()) == summary.usage.calls == figure.usage.calls
    assert list(cells(block)) == ["screen", "generate_test", "arbitrate"]
    assert block["chart"] is not None
    assert block["chart"]["layout"]["xaxis"]["title"]["text"] == "US dollars"


def test_what_was_asked_again_is_counted_without_the_last_reply() -> None:
    tries = [
        Exchange(role="judge", key="k", messages=(), reply="no", problem="p", attempt=attempt) for attempt in (0, 1)
    ]
    evidence = History(pair=Pair(id="1", query="q", code="c"), events=tuple(tries))
    (block,) = shown(Cost(), [Seen(Annotation(id="1", input_sha256=""), evidence)])
    assert (
        dict(zip(block["tables"][0]["columns"], ["judge", *cells(block)["judge"]], strict=True))["asked again"] == "1"
    )


def test_an_unknown_price_is_no_cost_of_zero(seen: list[Seen]) -> None:
    def unpriced(each: Seen) -> Seen:
        assert each.evidence is not None
        events = [
            event.model_copy(update={"usage": event.usage + Usage(cost_usd=None)})
            if isinstance(event, Exchange)
            else event
            for event in each.evidence.events
        ]
        return Seen(each.annotation, each.evidence.model_copy(update={"events": tuple(events)}))

    (block,) = shown(Cost(), [unpriced(each) for each in seen])
    assert {row[-1] for row in cells(block).values()} == {"unknown"}
    assert block["chart"] is not None
    assert block["chart"]["layout"]["xaxis"]["title"]["text"].startswith("tokens")


def test_time_by_node_is_parted_into_model_programs_and_rest(seen: list[Seen], summary: Summary) -> None:
    (block,) = shown(Time(), seen)
    assert cells(block)["screen"][0] == str(COUNT)
    assert cells(block)["execute"] == [
        str(summary.programs), "300 ms", duration(summary.programs * 0.3), "0 ms",
        duration(0.1 * (summary.programs + summary.repairs)),
        duration(summary.programs * 0.3 - 0.1 * (summary.programs + summary.repairs)),
    ]  # fmt: skip
    assert cells(block)["check_validity"][3:5] == ["0 ms", duration(0.05 * summary.programs)]
    assert cells(block)["generate_test"][3:5] == [duration(1.5 * summary.programs), "0 ms"]


def test_the_time_of_calls_belongs_to_the_node_that_made_them_whatever_their_role() -> None:
    asked = [
        Exchange(role=role, key=role, messages=(), reply="", seconds=2.0, cached=cached)
        for role, cached in (("scaffold", False), ("generate_blind", False), ("arbitrate", False), ("arbitrate", True))
    ]
    events = (
        *asked[:2],
        Visit(node="generate_blind", outcome="generated", seconds=5.0),
        asked[2],
        Visit(node="arbitrate", outcome="decided", seconds=2.5),
        asked[3],
        Visit(node="rate_confidence", outcome="rated", seconds=0.5),
    )
    evidence = History(pair=Pair(id="1", query="q", code="c"), events=events)
    (block,) = shown(Time(), [Seen(Annotation(id="1", input_sha256="", label=1), evidence)])
    assert {node: row[2:] for node, row in cells(block).items()} == {
        "generate_blind": ["5.0 s", "4.0 s", "0 ms", "1.0 s"],
        "arbitrate": ["2.5 s", "2.0 s", "0 ms", "500 ms"],
        "rate_confidence": ["500 ms", "0 ms", "0 ms", "500 ms"],
    }


def test_a_run_of_which_no_node_came_to_its_end_is_no_older_one() -> None:
    broken = Annotation(id="1", input_sha256="", error=ErrorInfo(type="ModelError", message="no reply"))
    (block,) = shown(Time(), [Seen(broken, History(pair=Pair(id="1", query="q", code="c")))])
    assert (block["chart"], block["tables"], block["text"]) == (None, [], "No node came to its end.")


def test_confidence_is_drawn_where_there_is_any(seen: list[Seen]) -> None:
    (block,) = shown(Confidence(), seen)
    told = sum(each.annotation.confidence is not None for each in seen)
    assert sum(int(count) for row in cells(block).values() for count in row) == told
    assert shown(Confidence(), [Seen(each.annotation.model_copy(update={"confidence": None})) for each in seen]) == []


@pytest.mark.parametrize(("confidence", "name"), [
    (0.0, "[0.0, 0.1)"), (0.8, "[0.8, 0.9)"), (0.95, "[0.9, 1.0]"), (1.0, "[0.9, 1.0]"),
])  # fmt: skip
def test_confidence_is_drawn_in_the_bins_of_the_calibration(confidence: float, name: str) -> None:
    found = Annotation(id="1", input_sha256="", label=1, confidence=confidence)
    (block,) = shown(Confidence(), [Seen(found)])
    assert list(cells(block)) == [name] == [each.name for each in reliability([confidence], [True]) if each.count]


def test_gold_is_asked_for_only_where_none_was_given() -> None:
    found = Annotation(id="1", input_sha256="", label=1, confidence=0.7)
    (asking,) = shown(Confidence(), [Seen(found)])
    (given,) = shown(Confidence(), [Seen(found, gold=1), Seen(found)])
    assert "--gold" in asking["text"]
    assert given["text"] == "Calibration says whether it can be believed, by 1 that people labelled, too."


def rounds_of(*labels: int | str | None, confidence: float = 0.9) -> list[Seen]:
    """A pair in rounds that ended so."""
    ends = [{"error": {"type": each, "message": ""}} if isinstance(each, str) else
            {"label": each, "decided_by": "arbitrate", "confidence": None if each is None else confidence}
            for each in labels]  # fmt: skip
    rows = [{"id": "a", "input_sha256": "", "round": number, "reason": str(number), **end}
            for number, end in enumerate(ends)]  # fmt: skip
    return [Seen(Annotation.model_validate(row), gold=1) for row in rows]


@pytest.mark.parametrize(("labels", "label", "reason", "confidence"), [
    ((0,), "0", "0", 0.9), ((0, 1, 1), "1", "1", (0.1 + 0.9 + 0.9) / 3), (("E", 0, "E"), "0", "1", 0.9),
    (("E", "F"), "error", "0", None), (("E", None), "undecided", "1", None), ((1, 0, None), "undecided", "2", None),
    (("E", 0, 1), "undecided", "1", None),
])  # fmt: skip
def test_a_pair_counts_once_as_the_first_round_that_ended_as_the_majority(
    labels: tuple[int | str | None, ...], label: str, reason: str, confidence: float | None
) -> None:
    whole = as_one(rounds_of(*labels))
    assert (whole.label, whole.annotation.reason, whole.gold) == (label, reason, 1)
    assert whole.annotation.confidence == (None if confidence is None else pytest.approx(confidence))


def test_a_tie_was_decided_by_nobody() -> None:
    assert as_one(rounds_of(0, 1)).annotation.decided_by is None


def test_rounds_are_told_with_their_majority_and_agreement() -> None:
    labels = {"a": (1, 1, 0), "b": (0, 0, 0)}
    found = [
        Seen(Annotation.model_validate({"id": pair, "input_sha256": "", "round": number, "label": label}))
        for pair, each in labels.items() for number, label in enumerate(each)
    ]  # fmt: skip
    (block,) = shown(Rounds(), found)
    assert cells(block)["majority"][:2] == ["1", "1"]
    assert "66.7%" in block["text"]
    alpha = krippendorff.alpha([(1, 0), (1, 0), (0, 0)], level_of_measurement="nominal")
    assert f"alpha between rounds is {alpha:.3f}" in block["text"]
    assert shown(Rounds(), found[:1]) == []


@pytest.mark.parametrize(("cost", "told"), [(None, "unknown"), (0.0, "$0"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")])
def test_money_is_told_as_far_as_it_matters(cost: float | None, told: str) -> None:
    assert money(cost) == told
