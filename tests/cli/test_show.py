"""`agent show` tells one pair's story, or sums up a run."""

from __future__ import annotations

import re

from tests.cli.commands import ADD, Commands, Ended, pairs, reply
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
    assert "── no label\nReplyError: no usable reply to 'judge'" in agent("show", "run", "pair/2").out


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


def test_a_damaged_line_is_named(agent: Commands) -> None:
    judged(agent)
    file = agent.folder / "run/annotations.jsonl"
    file.write_bytes(b"{}\n" + file.read_bytes())
    ended = agent("show", "run")
    assert (ended.code, "annotations.jsonl" in ended.err, "Traceback" in ended.err) == (2, True, False)
