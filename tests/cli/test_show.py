"""`agent show` tells one pair's story, or sums up a run."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.commands import ADD, Commands, Ended, pairs, reply
from tests.evaluation.runs import annotated, write_run
from tests.llm.server import Answer, ChatServer, Request
from tests.scripts import label

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
    assert titles[:2] == ["query", "code"]
    assert titles[-1] == "label 1, decided by judge"
    assert [title.split(",")[0] for title in titles[2:5]] == [
        "judge: reply of served-model",
        "judge: asked again",
        "judge: reply of served-model",
    ]
    assert "add two numbers, way 0" in story.out
    assert "# Reply" not in story.out
    assert "── judge: system" in agent("show", "run", "pair/0", "--prompts").out


def test_a_pair_without_a_label_says_why(agent: Commands) -> None:
    judged(agent)
    told = agent("show", "run", "pair/2").out
    assert "── no label\nReplyError: no usable reply to 'judge'" in told
    replies = re.findall(r"^── judge: (asked again|unusable|reply)", told, re.M)
    assert replies == ["reply", "asked again", "reply", "asked again", "reply", "unusable"]


def test_text_of_strangers_cannot_steer_the_terminal(agent: Commands) -> None:
    shown = [judged(agent), agent("show", "run", "pair/1", "--prompts"), agent("show", "run", "pair/2")]
    for ended in shown:
        assert not set(HOSTILE) & {"\x1b", "\u202e", "\x07"} & set(ended.out + ended.err)
    assert "\\x1b[31m\\u202e\\x07" in shown[1].out


def test_code_is_shown_character_by_character(agent: Commands) -> None:
    code = "def middle(xs, a, x, b):\n    return xs[a:x:b]\n"
    rows = [{"id": "1", "query": "take xs[a:x:b]", "code": code}]
    agent("annotate", agent.write("p.jsonl", rows), "-o", "run", "--variant", "single_llm", "--model", "heuristic")
    plain, coloured = agent("show", "run", "1").out, agent("show", "run", "1", FORCE_COLOR="1").out
    assert code in plain
    for shown in (plain, re.sub(r"\x1b\[[0-9;]*m", "", coloured)):
        assert shown.count("xs[a:x:b]") >= 2
        assert "\N{CROSS MARK}" not in shown


def test_json_holds_annotation_and_evidence_as_they_are(agent: Commands) -> None:
    judged(agent)
    told = agent("show", "run", "pair/1", "--json").json
    assert told["annotation"]["reason"] == f"it adds {HOSTILE}".strip()
    assert told["evidence"]["pair"]["code"].endswith(f"# {HOSTILE}\n")
    assert len(told["evidence"]["exchanges"]) == 1


def test_without_an_id_the_run_is_summed_up(agent: Commands) -> None:
    judged(agent)
    assert "2 match · 0 no match · 0 undecided" in agent("show", "run").out
    told = agent("show", "run", "--json").json
    assert (told["labels"]["1"], told["errors"]) == (2, {"ReplyError": 1})
    assert told["manifest"]["identity"]["variant"]["name"] == "single_llm"


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
        (("empty",), "is not the folder of a run"),
        (("run", "pair/9"), "run has no annotation of a pair with the id 'pair/9'"),
        (("run", "../../etc/passwd"), "no annotation"),
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


def test_numbers_that_cannot_be_are_damage_and_no_json_holds_what_is_none(agent: Commands) -> None:
    judged(agent)
    file = agent.folder / "run/annotations.jsonl"
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    file.write_text("".join(json.dumps({**line, "seconds": 1e308}) + "\n" for line in lines))
    for command in (("show", "run"), ("show", "run", "--json"), ("show", "run", "pair/1"), ("report", "run")):
        ended = agent(*command)
        assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False)
        assert "run/annotations.jsonl" in ended.err
        assert "is not an annotation (seconds: Input should be less than or equal to" in ended.err


@pytest.mark.parametrize("label", [[1], True, "1", 2])
def test_a_label_that_cannot_be_is_damage_wherever_it_is_met(agent: Commands, label: object) -> None:
    annotate = ("annotate", agent.write("p.jsonl", pairs(2)), "--variant", "single_llm", "--model", "heuristic")
    assert agent(*annotate, "-o", "run").code == 0
    file = agent.folder / "run/annotations.jsonl"
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text("".join((json.dumps({**json.loads(first), "label": label}) + "\n", *others)))
    (agent.folder / "run/labels.jsonl").unlink()
    for command in (
        (*annotate, "-o", "run"),
        ("show", "run"),
        ("report", "run"),
        ("score", "run", "--gold", "p.jsonl"),
    ):
        ended = agent(*command)
        assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False)
        assert "annotations.jsonl:1: is not an annotation (label: neither 0 nor 1 nor null)" in ended.err


def test_a_damaged_line_is_named(agent: Commands) -> None:
    judged(agent)
    file = agent.folder / "run/annotations.jsonl"
    file.write_bytes(b"{}\n" + file.read_bytes())
    ended = agent("show", "run")
    assert (ended.code, "annotations.jsonl" in ended.err, "Traceback" in ended.err) == (2, True, False)
