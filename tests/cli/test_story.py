"""`agent show` tells what happened in the order in which it happened, in colours where they are wanted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent.cli.story import Ran, happenings
from agent.history import Command, Exchange, Execution, History, Visit
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Cause,
    Pair,
    QuerySpec,
    Reading,
    Status,
    TestReport,
)
from tests.cli.commands import Commands
from tests.histories import make_history, mutant_of, program_of
from tests.store.samples import make_annotation, open_folder

BROKEN = TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY)
PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))
SPEC = QuerySpec(
    readings=(Reading(text="a list backwards", requirements=("all items", "a new list")), Reading(text=""))
)
WRONG = (
    mutant_of("returns_nothing", Status.FAILED, change="the body is `return None`"),
    mutant_of("swapped_comparison", Status.PASSED, change="`<` is `>`"),
)
CODE = "def first(items):\n    return items[0]  # take it\n"
PAIR = Pair(id="p", query="first of a list", code=CODE, context="lists are never empty")
STEERING = "\x1b[2J\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\u202egnp.exe\u2066\x9b31m\x00\x7f\r"


def asked(role: str, reply: str = "{}") -> Exchange:
    return Exchange(role=role, key="k", messages=({"role": "user", "content": f"prompt of {role}"},), reply=reply)


def ran(report: TestReport, program: int = 0) -> Execution:
    return Execution(program=program, report=report)


def told(evidence: History) -> list[str]:
    """Return what happened, a word for each."""
    words: list[str] = []
    for each in happenings(evidence):
        if isinstance(each, Exchange):
            words.append(each.role)
        elif isinstance(each, Ran):
            words.append(f"execution {each.number}")
        elif isinstance(each, Command):
            words.append(each.command)
        else:
            words.append("readings" if isinstance(each, QuerySpec) else "mutants")
    return words


REPAIRED = make_history(
    PAIR,
    asked("screen"),
    asked("query_spec"),
    Visit(node="specify_query", outcome="specified", seconds=0.1, spec=SPEC),
    asked("generate_test"),
    program_of(CODE),
    ran(BROKEN),
    Command(command="pip install a", outcome="installed"),
    ran(BROKEN),
    asked("repair", "no"),
    asked("repair", "```bash\nmkdir b\n```"),
    Command(command="mkdir b", outcome="ran"),
    ran(PASSED),
    *WRONG,
    asked("arbitrate"),
)


def test_a_story_is_told_in_its_order() -> None:
    assert told(REPAIRED) == [
        "screen",
        "query_spec",
        "readings",
        "generate_test",
        "execution 1",
        "pip install a",
        "execution 2",
        "repair",
        "repair",
        "mkdir b",
        "execution 3",
        "mutants",
        "arbitrate",
    ]


def write(agent: Commands, *kept: tuple[Annotation, History]) -> None:
    """Make a run that holds these."""
    with open_folder(agent.folder / "run", pairs="p") as folder:
        for annotation, evidence in kept:
            folder.commit(annotation, evidence)


def titles(text: str) -> list[str]:
    return [line.removeprefix("── ") for line in text.splitlines() if line.startswith("── ")]


def test_all_that_a_label_rests_on_is_told(agent: Commands) -> None:
    label = make_annotation(
        "p", label=1, decided_by="arbitrate", reason="it does", reading="a list backwards", stand_ins=("Fake",),
        strength=0.5, votes=(1, 0, None), confidence=0.625, test=PASSED,
    )  # fmt: skip
    write(agent, (label, REPAIRED))
    story = agent("show", "run", "p", "--prompts")
    assert story.code == 0
    for text in (
        "── context\nlists are never empty\n",
        "── readings of the query\n1. a list backwards\n   - all items\n   - a new list\n2. \n",
        "── mutants in the snippet's place: the program noticed 1 of 2\n"
        "  noticed  returns_nothing: the body is `return None`\n"
        "  missed   swapped_comparison: `<` is `>`\n",
        "── label 1, decided by arbitrate\nit does\nreading: a list backwards\nstand-ins: Fake\n"
        "strength: 0.50 of the mutants noticed\nvotes: 1 0 -\nconfidence: 0.62\n",
        "── repair: user\nprompt of repair\n",
        "── command, ran\n$ mkdir b\n",
    ):
        assert text in story.out
    assert titles(story.out).count("program of execution 1") == 1
    assert "program of execution 2: that of execution 1" in titles(story.out)
    assert "prompt of" not in agent("show", "run", "p").out


def test_an_arbiter_that_abstained_and_runs_that_disagree_are_told(agent: Commands) -> None:
    flaky = TestReport(status=Status.ERROR, cause=Cause.FLAKY, message="it ended in two ways")
    label = make_annotation("p", decided_by="arbitrate", reason="unclear", abstained=True, test=flaky)
    write(agent, (label, REPAIRED))
    out = agent("show", "run", "p").out
    assert "── test, all in all\nerror (cause: flaky)\nit ended in two ways\n" in out
    assert "── label undecided, decided by arbitrate\nunclear\nabstained: the evidence does not decide\n" in out


def test_every_round_is_told_or_the_one_that_is_asked_for(agent: Commands) -> None:
    rounds = [make_annotation("p", round=number, label=1, reason=f"reason {number}") for number in (0, 1, 2)]
    write(agent, *((label, REPAIRED) for label in rounds))
    story = agent("show", "run", "p").out
    assert [title for title in titles(story) if title.startswith("round")] == ["round 0", "round 1", "round 2"]
    one = agent("show", "run", "p", "--round", "1").out
    assert ("reason 1" in one, "reason 0" in one, "round" in "".join(titles(one))) == (True, False, False)
    told = agent("show", "run", "p", "--json").json
    assert [each["annotation"]["round"] for each in (told, *told["other_rounds"])] == [0, 1, 2]
    missing = agent("show", "run", "p", "--round", "9")
    assert (missing.code, "run has no round 9 of the pair 'p'; it has: 0, 1, 2" in missing.err) == (2, True)
    assert "give its id" in agent("show", "run", "--round", "1").err


def test_rounds_end_with_their_majority_and_print_pair_and_program_once(agent: Commands) -> None:
    rounds = [make_annotation("p", round=number, label=label) for number, label in enumerate((1, None, 1))]
    write(agent, *((label, REPAIRED) for label in rounds))
    story = agent("show", "run", "p").out
    assert story.endswith("── all 3 rounds: label 1 by majority\nrounds: 1 undecided 1\n\n")
    assert [titles(story).count(title) for title in ("query", "code", "program of execution 1")] == [1, 1, 1]
    assert titles(story).count("program of execution 1: that of execution 1 of round 0") == 2
    assert "majority" not in agent("show", "run", "p", "--round", "1").out


CASES = "".join(f"\n\ndef test_{number}():\n    assert first([{number}]) == {number}\n" for number in range(5))
WRITTEN = f'Here it is.\n```json\n{{"stand_ins": []}}\n```\n```python\nimport re\n\n# <candidate>{CASES}```\nDone.'


def test_a_program_is_printed_once_as_it_was_executed_unless_prompts_are_asked_for(agent: Commands) -> None:
    program = f"import re\n\n{CODE.rstrip()}{CASES}"
    evidence = make_history(PAIR, asked("generate_test", WRITTEN), program)
    write(agent, (make_annotation("p", label=1), evidence))
    story = agent("show", "run", "p").out
    assert "```python\n… 22 lines, word for word in the program of execution 1, below …\n```\nDone." in story
    assert program in story
    assert story.count("def test_3():") == 1
    assert WRITTEN in agent("show", "run", "p", "--prompts").out


def test_ids_near_an_unknown_one_are_named(agent: Commands) -> None:
    write(agent, *((make_annotation(name), REPAIRED) for name in ("cosqa-dev-12", "cosqa-dev-121", "other")))
    ended = agent("show", "run", "cosqa-dev-122")
    assert (ended.code, ended.out) == (2, "")
    assert "near it are: 'cosqa-dev-12', 'cosqa-dev-121'" in " ".join(ended.err.split()).replace(
        "'cosqa-dev-121', 'cosqa-dev-12'", "'cosqa-dev-12', 'cosqa-dev-121'"
    )
    assert "near" not in agent("show", "run", "???").err


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": ""}
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39]\d(?:;\d+)*m")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_code_has_colours_on_a_terminal_and_none_elsewhere(agent: Commands) -> None:
    write(agent, (make_annotation("p", label=1), REPAIRED))
    coloured = agent("show", "run", "p", **TERMINAL).out
    assert COLOUR.search(coloured.split("── code")[1].split("── screen")[0])
    piped = agent("show", "run", "p", TERM="xterm-256color", FORCE_COLOR="").out
    assert "\x1b" not in piped
    assert CODE in piped
    assert without_colours(coloured) == piped
    assert not COLOUR.search(agent("show", "run", "p", **{**TERMINAL, "NO_COLOR": "1"}).out)


@pytest.mark.parametrize("colours", [{}, TERMINAL, {**TERMINAL, "NO_COLOR": "1"}])
def test_nothing_that_steers_a_terminal_gets_through_the_colours(agent: Commands, colours: dict[str, str]) -> None:
    text = f"x = '{STEERING}'\n# {STEERING}\n"
    hostile = asked("arbitrate", f"```python\n{text}```\n```{STEERING}\n{text}```").model_copy(
        update={"model": STEERING, "problem": STEERING}
    )
    report = PASSED.model_copy(update={"message": STEERING})
    spec = QuerySpec(readings=(Reading(text=STEERING, requirements=(STEERING,)),))
    evidence = make_history(
        PAIR.model_copy(update={"query": STEERING, "code": text, "language": f"python{STEERING}"}),
        hostile,
        asked("screen", "{" + STEERING),
        Visit(node="specify_query", outcome="specified", seconds=0.0, spec=spec),
        program_of(text),
        ran(report).model_copy(update={"stdout": STEERING, "installed": (STEERING,)}),
        Command(command=STEERING, outcome="ran", output=STEERING),
        mutant_of(STEERING, Status.PASSED, change=STEERING),
    )
    label = make_annotation("p", label=1, decided_by=STEERING, reason=STEERING, reading=STEERING, stand_ins=(STEERING,))
    write(agent, (label, evidence))
    ended = agent("show", "run", "p", "--prompts", **colours)
    assert ended.code == 0
    left = without_colours(ended.out)
    assert {character for character in STEERING if character in left} <= set(re.findall(r"[ -~]", STEERING))
    assert left.count(r"\x1b[2J\x1b]8;;https://evil.example\x07link") >= 12


def test_lone_surrogates_and_deep_json_are_one_document(agent: Commands) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    raw = {"choices": deep, "\ud800": "\udfff"}
    exchange = asked("screen", "\ud800").model_copy(update={"raw": raw})
    pair = PAIR.model_copy(update={"query": "\udc00", "meta": {"\ud800": ["\ud800"], "deep": deep}})
    evidence = make_history(pair, exchange)
    write(agent, (make_annotation("p", label=1, reason="\ud800", meta=pair.meta), evidence))
    shown = agent("show", "run", "p", "--json")
    assert shown.code == 0
    told = json.loads(shown.out)
    assert told["evidence"]["events"][0]["raw"] == raw
    assert (told["evidence"]["pair"]["meta"], told["annotation"]["meta"]) == (pair.meta, pair.meta)
    assert "\\ud800" in agent("show", "run", "p").out


def test_long_code_is_shown_without_colours(agent: Commands) -> None:
    code = "x = 1\n" * 20_000
    write(agent, (make_annotation("p", label=1), make_history(PAIR.model_copy(update={"code": code}))))
    assert code in agent("show", "run", "p", **TERMINAL).out
