"""`agent show` prints the story of a pair, coloured on a terminal, or the summary of a run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent.pipeline.history import Command, Execution, History, HistoryItem, ModelCall
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Pair,
    Status,
    TestReport,
)
from tests.cli.commands import ADD, CommandResult, Commands, pairs, reply
from tests.evaluation.runs import annotate, make_error, write_run
from tests.llm.server import Answer, ChatServer, Request
from tests.runs.store.samples import make_annotation, open_folder
from tests.scripts import label
from tests.views.runs import make_program

HOSTILE = "\x1b[31m\u202e\x07"


def make_judged_run(agent: Commands) -> CommandResult:
    """Create a run of three pairs: labelled after a retry, labelled at once, and without a usable reply."""

    def answer(request: Request) -> Answer:
        is_reask = len(request.body["messages"]) > 2
        if "way 0" in request.prompt and not is_reask:
            return reply("no idea")
        return reply(f"{HOSTILE} I would rather not" if "way 2" in request.prompt else label(1, f"it adds {HOSTILE}"))

    rows = [{**row, "code": ADD + f"# {HOSTILE}\n", "id": f"pair/{n}"} for n, row in enumerate(pairs(3))]
    with ChatServer(answer) as server:
        options = ("--variant", "single_llm", "--model", "m", "--base-url", server.url, "-o", "run")
        return agent("annotate", agent.write("p.jsonl", rows), *options)


def test_story_goes_from_query_to_label(agent: Commands) -> None:
    assert make_judged_run(agent).code == 1
    story = agent("show", "run", "pair/0")
    assert story.code == 0
    titles = [line.removeprefix("── ") for line in story.out.splitlines() if line.startswith("── ")]
    assert [titles[place] for place in (0, 1)] == ["query", "code"]
    assert [title.split()[0] for title in titles].count("judge:") == 3
    assert titles[-1].startswith("label 1")
    assert "add two numbers, way 0" in story.out
    assert "# Reply" not in story.out
    assert "── judge: system" in agent("show", "run", "pair/0", "--with-prompts").out


def test_pair_without_label_shows_its_error(agent: Commands) -> None:
    make_judged_run(agent)
    out = agent("show", "run", "pair/2").out
    assert re.search(r"^ReplyError: .*'judge'", out, re.M)
    assert len(re.findall(r"^── judge: reply", out, re.M)) == 3


def test_without_an_id_the_summary_is_printed(agent: Commands) -> None:
    make_judged_run(agent)
    assert re.search(r"^labels +2 .* 0 .* 0 ", agent("show", "run").out, re.M)
    document = agent("show", "run", "--json").json
    assert (document["labels"]["1"], document["errors"]) == (2, {"ReplyError": 1})
    assert document["manifest"]["identity"]["variant"]["name"] == "single_llm"


def read_ids(result: CommandResult) -> list[str]:
    """Return the ids in a printed list."""
    return [line.split()[0] for line in result.out.splitlines() if line.startswith(("p/", "q/"))]


@pytest.fixture
def mixed(agent: Commands) -> Commands:
    """A run of four pairs, one of them with two rounds, in reverse order."""
    annotations = [
        make_error("q/3"),
        annotate("p/2", 0, "failed", "snippet"),
        annotate("p/1", 1, "passed", round=1),
        annotate("p/1", 0, "error", "dependency"),
        annotate("p/0", 1),
    ]
    queries = {"p/0": f"Sort {HOSTILE}", "p/1": "sort numbers", "p/2": "reverse", "q/3": "SORT all"}
    write_run(agent.folder / "run", annotations, queries)
    return agent


def test_pairs_are_listed_in_input_order(mixed: Commands) -> None:
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
        (("--per-page", "2"), ["p/0", "p/1"]),
        (("--per-page", "2", "--page", "3"), ["q/3"]),
        (("--page", "9"), []),
    ],
)
def test_list_is_filtered_and_paged(mixed: Commands, options: tuple[str, ...], ids: list[str]) -> None:
    result = mixed("show", "run", *options)
    assert (result.code, read_ids(result)) == (0, ids)
    assert [row["id"] for row in mixed("show", "run", *options, "--json").json["annotations_listed"]] == ids


def test_run_without_input_is_summarised_but_not_listed(mixed: Commands) -> None:
    (mixed.folder / "run/input.jsonl.gz").unlink()
    result = mixed("show", "run")
    assert (result.code, "pairs       4" in result.out) == (0, True)
    assert "input.jsonl.gz" in result.err


def test_missing_runs_and_pairs_are_reported(agent: Commands) -> None:
    make_judged_run(agent)
    (agent.folder / "empty").mkdir()
    for arguments, message in (
        (("gone",), "gone: "),
        (("empty",), "empty: "),
        (("run", "pair/9"), "'pair/9'"),
        (("run", "../../etc/passwd"), "'../../etc/passwd'"),
        (("run", "pair/1", "--label", "1"), "--label "),
    ):
        agent.check_refused(message, "show", *arguments)


def test_without_evidence_the_label_is_shown(agent: Commands) -> None:
    make_judged_run(agent)
    document = agent("show", "run", "pair/1", "--json").json
    (agent.folder / "run/evidence.sqlite").unlink()
    missing = "evidence.sqlite"
    story, result_json = agent("show", "run", "pair/1"), agent("show", "run", "pair/1", "--json")
    assert (story.code, "── label 1" in story.out, missing in story.err) == (0, True, True)
    assert (result_json.code, result_json.json, missing in result_json.err) == (0, {**document, "evidence": None}, True)


@pytest.mark.parametrize("field", [{"label": [1]}, {"label": True}, {"label": "1"}, {"label": 2}, {"seconds": 1e308}])
def test_invalid_label_is_reported_by_every_command(agent: Commands, field: dict[str, object]) -> None:
    arguments = ("annotate", agent.write("p.jsonl", pairs(2)), "--variant", "single_llm", "--model", "heuristic")
    assert agent(*arguments, "-o", "run").code == 0
    file = agent.folder / "run/annotations.jsonl"
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text("".join((json.dumps({**json.loads(first), **field}) + "\n", *others)))
    (agent.folder / "run/labels.jsonl").unlink()
    agent.write("gold.jsonl", [{"id": row["id"], "label": 1} for row in pairs(2)])
    for command in (
        (*arguments, "-o", "run"),
        ("show", "run"),
        ("show", "run", "--json"),
        ("show", "run", "p0"),
        ("report", "run"),
        ("score", "run", "--gold", "gold.jsonl"),
    ):
        assert "run/annotations.jsonl" in agent.check_refused(f"({next(iter(field))}: ", *command)


CODE = "def first(items, a, x):\n    return items[0:x:a]  # take it\n"
PAIR = Pair(id="p", query="first of a list", code=CODE, context="lists are never empty")
PASSED = TestReport(status=Status.PASSED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.PASSED),))
STEERING = "\x1b[2J\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\u202egnp.exe\u2066\x9b31m\x00\x7f\r"


def make_model_call(role: str, reply: str = "{}", **fields: Any) -> ModelCall:
    messages = ({"role": "user", "content": f"prompt of {role}"},)
    return ModelCall(role=role, key="k", messages=messages, reply=reply, **fields)


def make_history(*events: HistoryItem, **pair: Any) -> History:
    return History(pair=PAIR.model_copy(update=pair), events=events)


TESTED = make_history(
    make_model_call("generate_test"),
    make_program(CODE),
    Execution(program=0, report=PASSED),
    make_model_call("arbitrate"),
)


def write_run_of(agent: Commands, *entries: tuple[Annotation, History]) -> None:
    """Create a run with these annotations and histories."""
    with open_folder(agent.folder / "run", pairs="p") as folder:
        for annotation, history in entries:
            folder.commit(annotation, history)


def list_titles(text: str) -> list[str]:
    return [line.removeprefix("── ") for line in text.splitlines() if line.startswith("── ")]


def test_story_is_printed_in_sections(agent: Commands) -> None:
    history = make_history(
        *TESTED.events,
        Execution(program=0, report=PASSED, purpose="sentinel"),
        Command(command="mkdir b", outcome="ran"),
    )
    write_run_of(agent, (make_annotation("p", label=1, decided_by="arbitrate", reason="it does"), history))
    story = agent("show", "run", "p", "--with-prompts")
    assert story.code == 0
    for text in (
        "── context\nlists are never empty\n",
        f"── program 1\n{CODE}",
        "── execution 1 of program 1: passed, 0.00 s\npassed\n  passed   test_a\n",
        "── sentinel run of program 1: passed, 0.00 s\npassed\n  passed   test_a\n",
        "── command: ran\n$ mkdir b\n",
        "── arbitrate: user\nprompt of arbitrate\n",
        "── label 1, decided by arbitrate\nit does\n",
    ):
        assert text in story.out
    assert "prompt of" not in agent("show", "run", "p").out


def test_all_rounds_or_one_round_are_printed(agent: Commands) -> None:
    rounds = [
        make_annotation("p", round=number, label=value, reason=f"reason {number}")
        for number, value in enumerate((1, None, 1))
    ]
    write_run_of(agent, *((annotation, TESTED) for annotation in rounds))
    out = agent("show", "run", "p").out
    assert [out.count(f"reason {number}") for number in range(3)] == [1, 1, 1]
    assert [list_titles(out).count(title) for title in ("query", "code", "round 1")] == [1, 1, 1]
    assert re.search(r"^── .*3 rounds: label 1 .*\nrounds: 1 undecided 1\n\n$", out, re.M)
    single = agent("show", "run", "p", "--round", "1").out
    assert ("reason 1" in single, "reason 0" in single, "round" in "".join(list_titles(single))) == (True, False, False)
    printed = agent("show", "run", "p", "--json").json
    assert [annotation["annotation"]["round"] for annotation in (printed, *printed["other_rounds"])] == [0, 1, 2]
    agent.check_refused("0, 1, 2", "show", "run", "p", "--round", "9")
    assert "--round" in agent("show", "run", "--round", "1").err


CASES = "".join(f"\n\ndef test_{number}():\n    assert first([{number}]) == {number}\n" for number in range(5))
WRITTEN = f'Here it is.\n```json\n{{"stand_ins": []}}\n```\n```python\nimport re\n\n# <candidate>{CASES}```\nDone.'


def test_program_is_printed_once_without_prompts(agent: Commands) -> None:
    source = f"import re\n\n{CODE.rstrip()}{CASES}"
    history = make_history(
        make_model_call("generate_test", WRITTEN), make_program(source), Execution(program=0, report=PASSED)
    )
    write_run_of(agent, (make_annotation("p", label=1), history))
    story = agent("show", "run", "p").out
    assert re.search(r"^```python\n… 22 .*program 1, below …\n```\nDone\.$", story, re.M)
    assert source in story
    assert story.count("def test_3():") == 1
    assert WRITTEN in agent("show", "run", "p", "--with-prompts").out


def test_similar_ids_are_suggested(agent: Commands) -> None:
    write_run_of(agent, *((make_annotation(name), TESTED) for name in ("cosqa-dev-12", "cosqa-dev-121", "other")))
    assert "'cosqa-dev-121'" in agent.check_refused("'cosqa-dev-12'", "show", "run", "cosqa-dev-122")
    assert "'other'" not in agent("show", "run", "???").err


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": ""}
COLOUR = re.compile(r"\x1b\[(?:\d+;)*[39]\d(?:;\d+)*m")


def strip_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_code_is_coloured_on_a_terminal_only(agent: Commands) -> None:
    write_run_of(agent, (make_annotation("p", label=1), TESTED))
    coloured = agent("show", "run", "p", **TERMINAL).out
    assert COLOUR.search(coloured.split("── code")[1].split("── generate_test")[0])
    piped = agent("show", "run", "p", TERM="xterm-256color", FORCE_COLOR="").out
    assert "\x1b" not in piped
    assert CODE in piped
    assert strip_colours(coloured) == piped
    assert "\N{CROSS MARK}" not in piped
    assert not COLOUR.search(agent("show", "run", "p", **{**TERMINAL, "NO_COLOR": "1"}).out)


@pytest.mark.parametrize("colours", [{}, TERMINAL, {**TERMINAL, "NO_COLOR": "1"}])
def test_colouring_escapes_control_characters(agent: Commands, colours: dict[str, str]) -> None:
    text = f"x = '{STEERING}'\n# {STEERING}\n"
    reply = f"```python\n{text}```\n```{STEERING}\n{text}```"
    report = PASSED.model_copy(update={"message": STEERING})
    history = make_history(
        make_model_call("arbitrate", reply, model=STEERING, problem=STEERING),
        make_model_call("screen", "{" + STEERING), make_program(text),
        Execution(program=0, report=report, stdout=STEERING, installed=(STEERING,)),
        Command(command=STEERING, outcome="ran", output=STEERING),
        query=STEERING, code=text, language=f"python{STEERING}",
    )  # fmt: skip
    annotation = make_annotation(
        "p", label=1, decided_by=STEERING, reason=STEERING, reading=STEERING, stand_ins=(STEERING,)
    )
    write_run_of(agent, (annotation, history))
    result = agent("show", "run", "p", "--with-prompts", **colours)
    assert result.code == 0
    plain_text = strip_colours(result.out)
    assert {character for character in STEERING if character in plain_text} <= set(re.findall(r"[ -~]", STEERING))
    assert plain_text.count(r"\x1b[2J\x1b]8;;https://evil.example\x07link") >= 12


def test_lone_surrogates_and_deep_json_are_printed_as_json(agent: Commands) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    raw = {"choices": deep, "\ud800": "\udfff"}
    meta = {"\ud800": ["\ud800"], "deep": deep}
    history = make_history(make_model_call("screen", "\ud800", raw=raw), query="\udc00", meta=meta)
    write_run_of(agent, (make_annotation("p", label=1, reason="\ud800", meta=meta), history))
    shown = agent("show", "run", "p", "--json")
    assert shown.code == 0
    document = json.loads(shown.out)
    assert document["evidence"]["events"][0]["raw"] == raw
    assert (document["evidence"]["pair"]["meta"], document["annotation"]["meta"]) == (meta, meta)
    assert "\\ud800" in agent("show", "run", "p").out


def test_long_code_is_printed_without_colours(agent: Commands) -> None:
    code = "x = 1\n" * 20_000
    write_run_of(agent, (make_annotation("p", label=1), make_history(code=code)))
    assert code in agent("show", "run", "p", **TERMINAL).out
