"""`agent corpus answer` and `agent score` of its output: replies of every kind, stops, resumption and wrong usage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent.cli.exit_codes import DONE, SOME_ERRORS, STOPPED, WRONG_USAGE
from agent.corpus.answers import MAX_CONSECUTIVE_ERRORS
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.exports.runs import read_lines
from tests.llm.server import Answer, ChatServer, Request, fails, says, slow

HOSTILE = "\x1b[2J\u202ewin\u2066\ud800"


def write_triples(agent: Commands, count: int) -> None:
    """Write a folder of `agent corpus stackexchange` whose test part has questions 0, 1, … in C and one in Rust."""
    (agent.folder / "qa").mkdir()
    agent.write("qa/stackexchange.json", "{}")
    rows = [{"id": str(n), "query": f"Question {n}\nHow?", "code": f"Answer {n}."} for n in range(count + 1)]
    agent.write("qa/test.jsonl", [{**row, "language": "c"} for row in rows[:-1]] + [{**rows[-1], "language": "rust"}])


def find_number(request: Request) -> int:
    """Return the number of the question in a prompt."""
    return int(re.findall(r"Question (\d+)", request.prompt)[0])


def ask(agent: Callable[..., Any], server: ChatServer, *options: str, out: str = "out.jsonl") -> Any:
    """Run the command, or start it if `agent` is `Commands.start`."""
    model = ("--model", "m", "--base-url", server.url)
    return agent("corpus", "answer", "qa", "-o", out, *model, "--language", "c", *options)


THOUGHT = "<think>hm</think>"
REFUSAL = {"message": {"role": "assistant", "content": None, "refusal": "I cannot help with that."}}
REPLIES: list[tuple[str, str | None, Answer]] = [
    ("cut off", None, says(THOUGHT, finish_reason="length")),
    ("empty", None, says(" \n")),
    ("empty", None, says(THOUGHT)),
    ("refused", None, says(None, choices=[REFUSAL])),
    ("refused", None, says("The ans", finish_reason="content_filter")),
    ("error", None, says("<think>hm", finish_reason="length")),
    ("error", None, fails(400, f"flagged {HOSTILE}")),
    ("cut off", "Answer", says("Answer", finish_reason="length")),
    ("answered", "Answer 8.", says(f"{THOUGHT}\nAnswer 8.\n")),
]
"""The statuses and answers of replies. Only the last one is complete."""
WRONG = {"qa --split trian": "from test", "qa --language go": "c, rust", "qa --model answer=heuristic": "replay:"}
WRONG |= dict.fromkeys(("qa --model judge=m", "qa -o qa/x.jsonl", "qa -o old.jsonl", ".", "missing"), "")
"""Arguments, and what the message contains."""


class TestReplies:
    def test_every_question_has_a_row_in_order_with_a_status(self, agent: Commands) -> None:
        write_triples(agent, len(REPLIES))
        with ChatServer(lambda request: slow(0.2 / (1 + (n := find_number(request))), REPLIES[n][2])) as server:
            done = ask(agent, server, "--json")
            for limit in ("5", "8"):  # without and with errors
                assert "agent score" not in ask(agent, server, "--limit", limit, out=f"{limit}.jsonl").out
        assert (done.code, done.json["statuses"]) == (SOME_ERRORS, Counter(status for status, *_ in REPLIES))
        assert all(f"Question {find_number(request)}\nHow?" in request.prompt for request in server.requests)
        assert not any("Answer " in request.prompt for request in server.requests)
        assert agent("score", "out.jsonl", "--json").json["answers"][0]["statuses"] == done.json["statuses"]
        rows = read_lines(agent.folder / "out.jsonl")
        assert [(row["status"], row["answer"]) for row in rows] == [(status, text) for status, text, _ in REPLIES]
        known = {"id": "7", "language": "c", "question": "Question 7\nHow?", "reference": "Answer 7.", "model": "m"}
        assert rows[7] == {**known, "answer": "Answer", "status": "cut off", "error": None}
        assert not re.search("[\x1b\u202e\u2066]", done.err)

    def test_hostile_replies_are_stored_unchanged_and_never_printed_raw(self, agent: Commands) -> None:
        write_triples(agent, 1)
        with ChatServer(says(f"Answer 0. {HOSTILE}", model=HOSTILE)) as server:
            done = ask(agent, server)
        (row,) = read_lines(agent.folder / "out.jsonl")
        assert row["answer"] == f"Answer 0. {HOSTILE[:-1]}\ufffd"
        scored = agent("score", agent.write(f"{HOSTILE[:-1]}.jsonl", [{**row, "model": HOSTILE, "status": HOSTILE}]))
        assert scored.code == DONE
        assert not re.search("[\x1b\u202e\u2066]", done.out + done.err + scored.out + scored.err)

    def test_another_template_and_temperature_are_used(self, agent: Commands) -> None:
        write_triples(agent, 1)
        (agent.folder / "own").mkdir()
        system = "{% block system %}Reply in {{ language }}.{% endblock %}"
        agent.write("own/answer.j2", system + "{% block user %}{{ question | data('question') }}{% endblock %}")
        with ChatServer(says("yes")) as server:
            ask(agent, server, "-c", "temperature=0", "--prompts", "own")
        (request,) = server.requests
        assert (request.body["temperature"], request.prompt[:11], find_number(request)) == (0, "Reply in c.", 0)


class TestResumption:
    def test_the_budget_includes_earlier_sessions_and_no_question_is_asked_twice(self, agent: Commands) -> None:
        write_triples(agent, 5)
        with ChatServer(says("yes")) as server:  # 110 tokens per call
            for _ in range(2):
                stopped = ask(agent, server, "--concurrency", "1", "-c", "runner.max_tokens_total=250", "--json")
                assert (stopped.code, stopped.out, len(server.requests)) == (STOPPED, "", 3)
                assert "runner.max_tokens_total" in stopped.err
                assert not (agent.folder / "out.jsonl").exists()
            done = ask(agent, server, "--concurrency", "1", "-c", "runner.max_tokens_total=1000", "--json")
            assert (done.code, done.json["usage"]["input_tokens"], len(server.requests)) == (DONE, 500, 5)
        assert len(read_lines(agent.folder / "out.jsonl")) == 5

    def test_after_ctrl_c_the_finished_replies_are_reused(self, agent: Commands) -> None:
        write_triples(agent, 6)
        hangs = True
        with ChatServer(lambda request: slow(60 if hangs and find_number(request) > 1 else 0)) as server:
            running = ask(agent.start, server, "--concurrency", "1")
            wait_until(lambda: len(server.requests) == 3, "the third request")
            stopped = running.stop()
            assert (stopped.code, (agent.folder / "out.jsonl").exists()) == (STOPPED, False)
            hangs = False
            done = ask(agent, server, "--concurrency", "1")
            asked = sorted(map(find_number, server.requests))
        assert (done.code, asked) == (DONE, [0, 1, 2, 2, 3, 4, 5])
        assert [row["id"] for row in read_lines(agent.folder / "out.jsonl")] == list("012345")

    def test_errors_are_asked_again_and_many_of_them_stop_the_command(self, agent: Commands) -> None:
        write_triples(agent, MAX_CONSECUTIVE_ERRORS + 5)
        flagged, broken = fails(400, "flagged"), True
        with ChatServer(lambda request: flagged if broken and find_number(request) != 2 else says("yes")) as server:
            stopped = ask(agent, server, "--concurrency", "1", "--json")
            assert (stopped.code, stopped.out, (agent.folder / "out.jsonl").exists()) == (STOPPED, "", False)
            assert len(server.requests) >= MAX_CONSECUTIVE_ERRORS
            assert ask(agent, server, "--limit", "3").code == SOME_ERRORS
            broken = False
            assert ask(agent, server, "--limit", "3", "--force").code == DONE
        assert sum(find_number(request) == 2 for request in server.requests) == 1


class TestUsage:
    @pytest.mark.parametrize("words", WRONG)
    def test_wrong_usage_leaves_no_output(self, agent: Commands, words: str) -> None:
        write_triples(agent, 1)
        agent.write("old.jsonl", "{}\n")
        model = ("--model", "m", "--base-url", "http://localhost:1/v1")
        agent.check_refused(WRONG[words], "corpus", "answer", "-o", "out.jsonl", *model, *words.split())
        assert {path.name for path in agent.folder.glob("**/*.jsonl")} == {"old.jsonl", "test.jsonl"}

    def test_generated_answers_of_several_models_are_scored(self, agent: Commands) -> None:
        write_triples(agent, 3)
        for name, text in {"good.jsonl": "The answer 1.", "bad.jsonl": "Nothing"}.items():
            with ChatServer(says(text)) as server:
                assert ask(agent, server, "--cache", f"{name}.sqlite", out=name).code == DONE
        good, bad = agent("score", "good.jsonl", "bad.jsonl", "--json").json["answers"]
        assert (good["file"], good["statuses"], bad["scores"]["rouge1"]["f1"]) == ("good.jsonl", {"answered": 3}, 0)
        # "Answer 1." has two words: precision 2/3 and recall 2/2; the others have one of these words
        assert good["scores"]["rouge1"]["f1"] == pytest.approx((0.8 + 2 * 0.4) / 3)
        assert agent("score", "good.jsonl", "bad.jsonl").out.count("rougeL") == 2
        agent.write("labels.jsonl", [{"id": "1", "label": 1}])
        for option in ("--gold labels.jsonl", "--min-agreement 0.5", "--reviews last", "--round 0", "labels.jsonl"):
            refused = agent("score", "good.jsonl", *option.split())
            assert (refused.code, "labels.jsonl:1" in refused.err) == (WRONG_USAGE, False)
