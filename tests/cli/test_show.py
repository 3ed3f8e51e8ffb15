"""`agent show` prints one pair's story, in colours where they are wanted, or sums up a run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent.history import Command, Event, Exchange, Execution, History, Mutant
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Pair,
    Status,
    TestReport,
)
from tests.cli.commands import ADD, Commands, Ended, pairs, reply
from tests.evaluation.runs import annotated, make_error, write_run
from tests.llm.server import Answer, ChatServer, Request
from tests.scripts import label
from tests.store.samples import make_annotation, open_folder
from tests.views.runs import program

HOSTILE = "\x1b[31m\u202e\x07"


def judged(agent: Commands) -> Ended:
    """Make a run of three pairs: asked again and labelled, labelled at once, without a usable reply."""

    def answer(request: Request) -> Answer:
        again = len(request.body["messages"]) > 2
        if "way 0" in request.prompt and not again:
            return reply("no idea")
        return reply(f"{HOSTILE} I would rather not" if "way 2" in request.prompt else label(1, f"it adds {HOSTILE}"))

    rows = [{**row, "code": ADD + f"# {HOSTILE}\n", "id": f"pair/{n}"} for n, row in enumerate(pairs(3))]
    with ChatServer(answer) as server:
        options = ("--variant", "single_llm", "--model", "m", "--base-url", server.url, "-o", "run")
        return agent("annotate", agent.write("p.jsonl", rows), *options)


def test_a_pairs_story_goes_from_query_to_label(agent: Commands) -> None:
    assert judged(agent).code == 1
    story = agent("show", "run", "pair/0")
    assert story.code == 0
    titles = [line.removeprefix("── ") for line in story.out.splitlines() if line.startswith("── ")]
    assert [title.split(", ")[0] for title in titles] == [
        "query", "code", "judge: reply of served-model", "asked again", "judge: reply of served-model",
        "judge: decided", "label 1",
    ]  # fmt: skip
    assert "add two numbers, way 0" in story.out
    assert "# Reply" not in story.out
    assert "── judge: system" in agent("show", "run", "pair/0", "--prompts").out


def test_a_pair_without_a_label_says_why(agent: Commands) -> None:
    judged(agent)
    told = agent("show", "run", "pair/2").out
    assert "── no label\nReplyError: no usable reply to 'judge'" in told
    replies = re.findall(r"^── (?:judge: )?(asked again|unusable|reply)", told, re.M)
    assert replies == ["reply", "asked again", "reply", "asked again", "reply", "unusable"]


def test_without_an_id_the_run_is_summed_up(agent: Commands) -> None:
    judged(agent)
    assert "2 match · 0 no match · 0 undecided" in agent("show", "run").out
    told = agent("show", "run", "--json").json
    assert (told["labels"]["1"], told["errors"]) == (2, {"ReplyError": 1})
    assert told["manifest"]["identity"]["variant"]["name"] == "single_llm"


def listed(ended: Ended) -> list[str]:
    """Return the ids of a printed list."""
    return [line.split()[0] for line in ended.out.splitlines() if line.startswith(("p/", "q/"))]


@pytest.fixture
def mixed(agent: Commands) -> Commands:
    """A run of four pairs in two rounds, the last of which came first."""
    found = [
        make_error("q/3"),
        annotated("p/2", 0, "failed", "snippet"),
        annotated("p/1", 1, "passed", round=1),
        annotated("p/1", 0, "error", "dependency"),
        annotated("p/0", 1),
    ]
    queries = {"p/0": f"Sort {HOSTILE}", "p/1": "sort numbers", "p/2": "reverse", "q/3": "SORT all"}
    write_run(agent.folder / "run", found, queries)
    return agent


def test_a_run_lists_its_pairs_in_the_order_of_the_input_and_of_the_rounds(mixed: Commands) -> None:
    shown = mixed("show", "run")
    assert [line.split() for line in shown.out.partition("\npair ")[2].splitlines()[1:]] == [
        ["p/0", "0", "1", "screen", "-", "Sort", r"\x1b[31m\u202e\x07"],
        ["p/1", "0", "0", "arbitrate", "error", "sort", "numbers"],
        ["p/1", "1", "1", "arbitrate", "passed", "sort", "numbers"],
        ["p/2", "0", "0", "arbitrate", "failed", "reverse"],
        ["q/3", "0", "error", "-", "ModelError", "SORT", "all"],
    ]
    assert mixed("show", "run", "--json").json["annotations_listed"][1] == {
        "id": "p/1", "round": 0, "label": 0, "decided_by": "arbitrate", "status": "error", "error": None,
        "query": "sort numbers",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (("--label", "1"), ["p/0", "p/1"]),
        (("--label", "null"), ["q/3"]),
        (("--errors",), ["q/3"]),
        (("--status", "failed"), ["p/2"]),
        (("--query", "sort"), ["p/0", "p/1", "p/1", "q/3"]),
        (("--query", "sort", "--label", "0"), ["p/1"]),
        (("--query", "nowhere"), []),
        (("--limit", "2"), ["p/0", "p/1"]),
        (("--limit", "2", "--page", "3"), ["q/3"]),
        (("--page", "9"), []),
    ],
)
def test_a_list_is_narrowed_and_paged(mixed: Commands, options: tuple[str, ...], ids: list[str]) -> None:
    ended = mixed("show", "run", *options)
    assert (ended.code, listed(ended)) == (0, ids)
    assert [row["id"] for row in mixed("show", "run", *options, "--json").json["annotations_listed"]] == ids


def test_a_run_without_its_input_is_summed_up_and_not_listed(mixed: Commands) -> None:
    (mixed.folder / "run/input.jsonl.gz").unlink()
    ended = mixed("show", "run")
    assert (ended.code, "pairs       4" in ended.out) == (0, True)
    assert "run holds no input.jsonl.gz: its pairs cannot be listed" in ended.err


def test_a_test_that_proves_nothing_is_told_as_such(agent: Commands) -> None:
    write_run(agent.folder / "run", [annotated("a", 0, "passed", vacuous=True, strength=0.5)])
    story = agent("show", "run", "a").out
    assert "── test, all in all\npassed, but proves nothing\n" in story
    assert "strength: 0.50 of the mutants noticed, by nothing but crashes" in story
    assert "1 passed, of these 1 proves nothing" in agent("show", "run").out
    assert agent("show", "run", "a", "--json").json["annotation"]["test"]["vacuous"] is True


def test_what_is_not_there_is_told(agent: Commands) -> None:
    judged(agent)
    (agent.folder / "empty").mkdir()
    for arguments, message in (
        (("gone",), "gone: no such folder"),
        (("empty",), "manifest.json"),
        (("run", "pair/9"), "run has no annotation of a pair with the id 'pair/9'"),
        (("run", "../../etc/passwd"), "no annotation"),
        (("run", "pair/1", "--label", "1"), "--label is for the list of pairs: leave the id out"),
    ):
        ended = agent("show", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert message in ended.err


def test_without_the_file_of_evidence_the_label_is_shown_and_what_is_missing_is_told(agent: Commands) -> None:
    judged(agent)
    whole = agent("show", "run", "pair/1", "--json").json
    (agent.folder / "run/evidence.sqlite").unlink()
    missing = "note: run holds no evidence.sqlite: what led to the label cannot be shown"
    story, told = agent("show", "run", "pair/1"), agent("show", "run", "pair/1", "--json")
    assert (story.code, "label 1, decided by" in story.out, missing in story.err) == (0, True, True)
    assert (told.code, told.json, missing in told.err) == (0, {**whole, "evidence": None}, True)


@pytest.mark.parametrize("field", [{"label": [1]}, {"label": True}, {"label": "1"}, {"label": 2}, {"seconds": 1e308}])
def test_a_label_that_cannot_be_is_damage_wherever_it_is_met(agent: Commands, field: dict[str, object]) -> None:
    annotate = ("annotate", agent.write("p.jsonl", pairs(2)), "--variant", "single_llm", "--model", "heuristic")
    assert agent(*annotate, "-o", "run").code == 0
    file = agent.folder / "run/annotations.jsonl"
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text("".join((json.dumps({**json.loads(first), **field}) + "\n", *others)))
    (agent.folder / "run/labels.jsonl").unlink()
    agent.write("gold.jsonl", [{"id": row["id"], "label": 1} for row in pairs(2)])
    for command in (
        (*annotate, "-o", "run"),
        ("show", "run"),
        ("show", "run", "--json"),
        ("show", "run", "p0"),
        ("report", "run"),
        ("score", "run", "--gold", "gold.jsonl"),
    ):
        ended = agent(*command)
        assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False)
        assert "run/annotations.jsonl" in ended.err
        assert f"is not an annotation ({next(iter(field))}: " in ended.err


CODE = "def first(items, a, x):\n    return items[0:x:a]  # take it\n"
PAIR = Pair(id="p", query="first of a list", code=CODE, context="lists are never empty")
PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))
STEERING = "\x1b[2J\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\u202egnp.exe\u2066\x9b31m\x00\x7f\r"


def asked(role: str, reply: str = "{}", **fields: Any) -> Exchange:
    messages = ({"role": "user", "content": f"prompt of {role}"},)
    return Exchange(role=role, key="k", messages=messages, reply=reply, **fields)


def happened(*events: Event, **pair: Any) -> History:
    return History(pair=PAIR.model_copy(update=pair), events=events)


TESTED = happened(asked("generate_test"), program(CODE), Execution(program=0, report=PASSED), asked("arbitrate"))


def write(agent: Commands, *kept: tuple[Annotation, History]) -> None:
    """Make a run that holds these."""
    with open_folder(agent.folder / "run", pairs="p") as folder:
        for annotation, history in kept:
            folder.commit(annotation, history)


def titles(text: str) -> list[str]:
    return [line.removeprefix("── ") for line in text.splitlines() if line.startswith("── ")]


def test_a_story_is_printed_in_sections_with_its_facts(agent: Commands) -> None:
    history = happened(
        *TESTED.events,
        Execution(program=0, report=PASSED, purpose="mutant", mutant=Mutant(kind="swapped", change="`<` is `>`")),
        Command(command="mkdir b", outcome="ran"),
    )
    write(agent, (make_annotation("p", label=1, decided_by="arbitrate", reason="it does", confidence=0.625), history))
    story = agent("show", "run", "p", "--prompts")
    assert story.code == 0
    for text in (
        "── context\nlists are never empty\n",
        f"── program 1\n{CODE}",
        "── execution 1 of program 1: passed, 0.00 s\npassed\n  passed   test_a\n",
        "program 1 noticed 0 of 1\n  missed   swapped   `<` is `>`\n",
        "── command, ran\n$ mkdir b\n",
        "── arbitrate: user\nprompt of arbitrate\n",
        "── label 1, decided by arbitrate\nit does\nconfidence: 0.62\n",
    ):
        assert text in story.out
    assert "prompt of" not in agent("show", "run", "p").out


def test_every_round_is_printed_or_the_one_that_is_asked_for(agent: Commands) -> None:
    rounds = [
        make_annotation("p", round=number, label=found, reason=f"reason {number}")
        for number, found in enumerate((1, None, 1))
    ]
    write(agent, *((each, TESTED) for each in rounds))
    whole = agent("show", "run", "p").out
    assert [whole.count(f"reason {number}") for number in range(3)] == [1, 1, 1]
    assert [titles(whole).count(title) for title in ("query", "code", "round 1")] == [1, 1, 1]
    assert whole.endswith("── all 3 rounds: label 1 by majority\nrounds: 1 undecided 1\n\n")
    single = agent("show", "run", "p", "--round", "1").out
    assert ("reason 1" in single, "reason 0" in single, "round" in "".join(titles(single))) == (True, False, False)
    printed = agent("show", "run", "p", "--json").json
    assert [each["annotation"]["round"] for each in (printed, *printed["other_rounds"])] == [0, 1, 2]
    missing = agent("show", "run", "p", "--round", "9")
    assert (missing.code, "run has no round 9 of the pair 'p'; it has: 0, 1, 2" in missing.err) == (2, True)
    assert "give its id" in agent("show", "run", "--round", "1").err


CASES = "".join(f"\n\ndef test_{number}():\n    assert first([{number}]) == {number}\n" for number in range(5))
WRITTEN = f'Here it is.\n```json\n{{"stand_ins": []}}\n```\n```python\nimport re\n\n# <candidate>{CASES}```\nDone.'


def test_a_program_is_printed_once_as_it_was_executed_unless_prompts_are_asked_for(agent: Commands) -> None:
    source = f"import re\n\n{CODE.rstrip()}{CASES}"
    history = happened(asked("generate_test", WRITTEN), program(source), Execution(program=0, report=PASSED))
    write(agent, (make_annotation("p", label=1), history))
    story = agent("show", "run", "p").out
    assert "```python\n… 22 lines, word for word in program 1, below …\n```\nDone." in story
    assert source in story
    assert story.count("def test_3():") == 1
    assert WRITTEN in agent("show", "run", "p", "--prompts").out


def test_ids_near_an_unknown_one_are_named(agent: Commands) -> None:
    write(agent, *((make_annotation(name), TESTED) for name in ("cosqa-dev-12", "cosqa-dev-121", "other")))
    ended = agent("show", "run", "cosqa-dev-122")
    assert (ended.code, ended.out) == (2, "")
    assert all(name in ended.err for name in ("near it are", "'cosqa-dev-12'", "'cosqa-dev-121'"))
    assert "near" not in agent("show", "run", "???").err


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": ""}
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39]\d(?:;\d+)*m")


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_code_has_colours_on_a_terminal_and_none_elsewhere(agent: Commands) -> None:
    write(agent, (make_annotation("p", label=1), TESTED))
    coloured = agent("show", "run", "p", **TERMINAL).out
    assert COLOUR.search(coloured.split("── code")[1].split("── generate_test")[0])
    piped = agent("show", "run", "p", TERM="xterm-256color", FORCE_COLOR="").out
    assert "\x1b" not in piped
    assert CODE in piped
    assert without_colours(coloured) == piped
    assert "\N{CROSS MARK}" not in piped
    assert not COLOUR.search(agent("show", "run", "p", **{**TERMINAL, "NO_COLOR": "1"}).out)


@pytest.mark.parametrize("colours", [{}, TERMINAL, {**TERMINAL, "NO_COLOR": "1"}])
def test_nothing_that_steers_a_terminal_gets_through_the_colours(agent: Commands, colours: dict[str, str]) -> None:
    text = f"x = '{STEERING}'\n# {STEERING}\n"
    reply = f"```python\n{text}```\n```{STEERING}\n{text}```"
    report = PASSED.model_copy(update={"message": STEERING})
    history = happened(
        asked("arbitrate", reply, model=STEERING, problem=STEERING), asked("screen", "{" + STEERING), program(text),
        Execution(program=0, report=report, stdout=STEERING, installed=(STEERING,)),
        Execution(program=0, report=PASSED, purpose="mutant", mutant=Mutant(kind=STEERING, change=STEERING)),
        Command(command=STEERING, outcome="ran", output=STEERING),
        query=STEERING, code=text, language=f"python{STEERING}",
    )  # fmt: skip
    found = make_annotation("p", label=1, decided_by=STEERING, reason=STEERING, reading=STEERING, stand_ins=(STEERING,))
    write(agent, (found, history))
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
    meta = {"\ud800": ["\ud800"], "deep": deep}
    history = happened(asked("screen", "\ud800", raw=raw), query="\udc00", meta=meta)
    write(agent, (make_annotation("p", label=1, reason="\ud800", meta=meta), history))
    shown = agent("show", "run", "p", "--json")
    assert shown.code == 0
    document = json.loads(shown.out)
    assert document["evidence"]["events"][0]["raw"] == raw
    assert (document["evidence"]["pair"]["meta"], document["annotation"]["meta"]) == (meta, meta)
    assert "\\ud800" in agent("show", "run", "p").out


def test_long_code_is_printed_without_colours(agent: Commands) -> None:
    code = "x = 1\n" * 20_000
    write(agent, (make_annotation("p", label=1), happened(code=code)))
    assert code in agent("show", "run", "p", **TERMINAL).out
