"""Figures show the counts of the tally."""

from __future__ import annotations

import re
from collections.abc import Sequence

import krippendorff
import pytest

from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs, merge_rounds
from agent.runs.store.run_view import load_run
from agent.text import Figure
from agent.types import Annotation, Cause, ErrorInfo, Status, TestReport, Usage
from agent.views.figures import RunFigures, format_cost, format_duration
from tests.views.runs import make_pairs, make_run

COUNT = 60


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> list[Observation]:
    """Annotations of every kind, with their histories."""
    folder = make_run(tmp_path_factory.mktemp("figures") / "run", make_pairs(COUNT))
    with load_run(folder) as run:
        return [annotated for _, rounds in iterate_annotated_pairs(run, with_history=True) for annotated in rounds]


@pytest.fixture(scope="module")
def tally(observations: list[Observation]) -> Tally:
    tally = Tally()
    for observation in observations:
        tally.add(observation)
    return tally


def draw(*pairs: Sequence[Observation], remaining: int = 0) -> dict[str, Figure]:
    """Return all figures by title. `remaining` pairs are not annotated yet."""
    figures = RunFigures(len(pairs) + remaining)
    for rounds in pairs:
        figures.add(merge_rounds(rounds), rounds)
    sections = (figures.labels, figures.tests, figures.repairs, figures.spending)
    return {block["title"]: block for section in sections for block in section}


@pytest.fixture(scope="module")
def blocks(observations: list[Observation]) -> dict[str, Figure]:
    return draw(*([observation] for observation in observations), remaining=5)


def cells(block: Figure, table: int = 0) -> dict[str, dict[str, str]]:
    """Return the rows of a table, keyed by first cell and column."""
    columns, rows = block["tables"][table]["columns"], block["tables"][table]["rows"]
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}


def observe(**fields: object) -> Observation:
    return Observation(Annotation.model_validate({"id": "1", "input_sha256": "", **fields}))


def test_the_funnel_counts_pairs_at_every_stage(blocks: dict[str, Figure], tally: Tally) -> None:
    funnel = blocks["From pairs to labels"]
    rows = {(stage, outcome): int(count) for stage, outcome, count, _ in funnel["tables"][0]["rows"]}
    assert (rows["pairs", "annotated"], rows["pairs", "not annotated"]) == (COUNT, 5)
    assert rows["screened", "unclear"] == rows["programs", "written"] == tally.programs
    assert rows["executed", "ran"] == tally.executed
    assert rows["tests", "failed"] == tally.outcomes["failed"].total() > 0
    assert {name: count for (stage, name), count in rows.items() if stage == "labels"} == tally.labels
    assert funnel["chart"] is not None
    assert f"screened: match {rows['screened', 'match']}" in funnel["chart"]["alt"]


def test_the_funnel_includes_the_audit_of_the_screener() -> None:
    text = draw([observe(label=0, screen_verdict="match", audited=True)])["From pairs to labels"]["text"]
    assert text.count("1 of 1") >= 2


def test_a_snippet_that_does_not_parse_has_no_program() -> None:
    test = TestReport(status=Status.ERROR, cause=Cause.SNIPPET, message="invalid syntax")
    rows = draw([observe(label=0, test=test)])["From pairs to labels"]["tables"][0]["rows"]
    assert [[row[0], *row[2:]] for row in rows if row[0] == "programs"] == [["programs", "1", "100.0%"]]
    assert not any(row[0] in ("executed", "tests") for row in rows)


def test_deciders_errors_and_run_outcomes_match_the_tally(blocks: dict[str, Figure], tally: Tally) -> None:
    deciders = cells(blocks["Who decided"])
    assert {name: sum(map(int, row.values())) for name, row in deciders.items()} == {
        name: counts.total() for name, counts in tally.deciders.items()
    }
    assert {name: int(row["errors"]) for name, row in cells(blocks["Errors"]).items()} == tally.errors
    assert {
        name: int(row["programs"]) for name, row in cells(blocks["Programs that ran"]).items()
    } == tally.run_outcomes


def test_outcomes_are_broken_down_by_cause_and_label(blocks: dict[str, Figure], tally: Tally) -> None:
    causes, labels = cells(blocks["Outcomes and causes"]), cells(blocks["Labels by test outcome"])
    assert list(causes) == list(labels) == ["passed", "failed"]
    assert causes["passed"]["snippet"] == causes["failed"]["no failure"] == "0"
    assert causes["failed"]["snippet"] == str(tally.outcomes["failed"].total())
    assert sum(int(count) for row in labels.values() for count in row.values()) == tally.programs


def test_labels_that_contradict_their_test_are_counted() -> None:
    tests = [TestReport(status=Status.PASSED), TestReport(status=Status.ERROR, cause=Cause.SNIPPET)]
    texts_by_title = draw(*([observe(id=str(number), label=0, test=test)] for number, test in enumerate(tests)))
    assert texts_by_title["Labels by test outcome"]["text"].split()[0] == "1"


def test_tests_in_modules_are_counted_by_label(blocks: dict[str, Figure]) -> None:
    contexts = ({"module": "a.b"}, {"module": "c"}, {"reason": "no origin"})
    drawn = draw(*([observe(id=str(n), label=n % 2, module_context=context)] for n, context in enumerate(contexts)))
    assert cells(drawn["Tests in modules"]) == {
        "in its module": {"1": "1", "0": "1"}, "alone: no origin": {"1": "0", "0": "1"}
    }  # fmt: skip
    assert "Tests in modules" not in blocks


def test_repairs_and_stand_ins_match_the_tally(blocks: dict[str, Figure], tally: Tally) -> None:
    repairs, stand_ins = blocks["Repairs by kind"], blocks["Stand-ins"]
    assert re.findall(r"\d+", repairs["text"]) == [str(tally.repairs), str(tally.repaired)]
    assert cells(repairs) == {"packages installed": {"installed": str(tally.repairs)}}
    assert re.findall(r"\d+", stand_ins["text"])[:2] == [str(tally.with_stand_ins), str(tally.programs)]
    assert cells(stand_ins) == {"FakeClient": {"programs": str(tally.with_stand_ins)}}


def test_cost_by_node_adds_up_to_the_total(blocks: dict[str, Figure], tally: Tally) -> None:
    cost = blocks["Cost by node"]
    assert sum(int(row["paid calls"]) for row in cells(cost).values()) == tally.usage.calls
    assert list(cells(cost)) == ["screen", "generate_test", "arbitrate"]
    assert cost["chart"] is not None
    assert cost["chart"]["layout"]["xaxis"]["title"]["text"] == "US dollars"


def test_an_unknown_price_is_shown_as_unknown(observations: list[Observation]) -> None:
    def unprice(observation: Observation) -> list[Observation]:
        assert observation.history is not None
        events = [
            event.model_copy(update={"usage": event.usage + Usage(cost_usd=None)})
            if event.kind == "model_call"
            else event
            for event in observation.history.events
        ]
        return [Observation(observation.annotation, observation.history.model_copy(update={"events": tuple(events)}))]

    cost = draw(*map(unprice, observations))["Cost by node"]
    assert {row["cost"] for row in cells(cost).values()} == {"unknown"}
    assert cost["chart"] is not None
    assert cost["chart"]["layout"]["xaxis"]["title"]["text"].startswith("tokens")


def test_time_by_node_is_split_into_model_programs_and_rest(blocks: dict[str, Figure], tally: Tally) -> None:
    time = cells(blocks["Time by node"])
    assert time["screen"]["visits"] == str(COUNT)
    assert time["execute"] == {
        "visits": str(tally.programs), "median": "300 ms", "total": format_duration(tally.programs * 0.3),
        "model": "0 ms",
        "programs": format_duration(0.15 * tally.programs + 0.1 * tally.repairs),
        "rest": format_duration(0.15 * tally.programs - 0.1 * tally.repairs),
    }  # fmt: skip


def test_time_by_node_is_empty_if_no_node_finished() -> None:
    failed = observe(error=ErrorInfo(type="ModelError", message="no reply"))
    block = draw([failed])["Time by node"]
    assert (block["chart"], block["tables"], bool(block["text"])) == (None, [], True)


def test_rounds_are_drawn_with_their_majority_and_agreement() -> None:
    labels = {"a": (1, 1, 0), "b": (0, 0, 0)}
    block = draw(*(
        [observe(id=pair, round=number, label=label) for number, label in enumerate(votes)]
        for pair, votes in labels.items()
    ))["Rounds"]  # fmt: skip
    assert cells(block)["majority"] == {"1": "1", "0": "1"}
    assert "66.7%" in block["text"]
    alpha = krippendorff.alpha([(1, 0), (1, 0), (0, 0)], level_of_measurement="nominal")
    assert f"{alpha:.3f}" in block["text"]
    assert "Rounds" not in draw([observe(label=1)])


@pytest.mark.parametrize(("cost", "text"), [(None, "unknown"), (0.0, "$0"), (0.0123, "$0.0123"), (1234.5, "$1,234.50")])
def test_costs_are_formatted_with_adaptive_precision(cost: float | None, text: str) -> None:
    assert format_cost(cost) == text
