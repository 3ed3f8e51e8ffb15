"""`agent corpus answer` and `agent score` of its output: replies of every kind, stops, resumption and wrong usage."""

from __future__ import annotations

import os
import re
import signal

import pytest

from agent.cli import DONE, SOME_ERRORS, STOPPED, WRONG_USAGE
from agent.corpus.answers import MAX_CONSECUTIVE_ERRORS
from tests.cli.commands import CommandResult, Commands
from tests.cli.processes import wait_until
from tests.exports.runs import read_lines
from tests.llm.server import Answer, ChatServer, Request, fails, says, slow

HOSTILE = "\x1b[2J\u202ewin\u2066\ud800"


def write_triples(agent: Commands, count: int) -> None:
    """Write a folder of `agent corpus stackexchange` whose test part has questions 0, 1, … in C and one in Rust."""
    (agent.folder / "qa").mkdir()
    agent.write("qa/stackexchange.json", "{}")
    languages = ["c"] * count + ["rust"]
    rows = [
        {"id": str(number), "query": f"Question {number}\nHow?", "code": f"Answer {number}.", "language": language}
        for number, language in enumerate(languages)
    ]
    agent.write("qa/test.jsonl", rows)


def find_number(request: Request) -> int:
    """Return the number of the question in a prompt."""
    return int(re.findall(r"Question (\d+)", request.prompt)[0])


def ask(agent: Commands, server: ChatServer, *options: str, out: str = "out.jsonl") -> CommandResult:
    model = ("--model", "m", "--base-url", server.url)
    return agent("corpus", "answer", "qa", "-o", out, *model, "--language", "c", *options)


CHOICES = {"--split trian": "from test", "--language go": "c, rust", "--model answer=heuristic": "replay:"}
NO_SERVER = "--model", "m", "--base-url", "http://localhost:1/v1"
REFUSAL = {"message": {"role": "assistant", "content": None, "refusal": "I cannot help with that."}}
REPLIES: dict[str, tuple[Answer, str | None]] = {
    "answered": (says("<think>hm</think>\nAnswer 0.\n"), "Answer 0."),
    "cut off": (says("Answer", finish_reason="length"), "Answer"),
    "empty": (says(" \n"), None),
    "refused": (says(None, choices=[REFUSAL]), None),
    "error": (fails(400, f"flagged {HOSTILE}"), None),
}
OTHERS = {
    "only a thinking part": ("empty", says("<think>hm</think>")),
    "a cut thinking part": ("cut off", says("<think>hm</think>", finish_reason="length")),
    "a filter": ("refused", says("The ans", finish_reason="content_filter")),
    "an unfinished thinking part": ("error", says("<think>hm", finish_reason="length")),
}


class TestReplies:
    def test_every_question_has_a_row_in_order_with_a_status(self, agent: Commands) -> None:
        write_triples(agent, len(REPLIES))
        answers = [answer for answer, _ in REPLIES.values()]
        with ChatServer(lambda request: slow(0.2 / (1 + (n := find_number(request))), answers[n])) as server:
            done = ask(agent, server, "--json")
        assert (done.code, done.json["statuses"]) == (SOME_ERRORS, dict.fromkeys(REPLIES, 1))
        assert "Question 1\nHow?" in "".join(request.prompt for request in server.requests)
        assert not any("Answer " in request.prompt for request in server.requests)
        rows = read_lines(agent.folder / "out.jsonl")
        assert [(row["status"], row["answer"]) for row in rows] == [(name, REPLIES[name][1]) for name in REPLIES]
        known = {"id": "1", "language": "c", "question": "Question 1\nHow?", "reference": "Answer 1.", "model": "m"}
        assert rows[1] == {**known, "answer": "Answer", "status": "cut off", "error": None}
        assert not re.search("[\x1b\u202e\u2066]", done.err)

    @pytest.mark.parametrize("name", OTHERS)
    def test_an_unusable_reply_is_no_answer(self, agent: Commands, name: str) -> None:
        write_triples(agent, 1)
        with ChatServer(OTHERS[name][1]) as server:
            done = ask(agent, server)
        row = read_lines(agent.folder / "out.jsonl")[0]
        assert (row["status"], row["answer"], "agent score" in done.out) == (OTHERS[name][0], None, False)

    def test_hostile_replies_are_stored_unchanged_and_never_printed_raw(self, agent: Commands) -> None:
        write_triples(agent, 1)
        with ChatServer(says(f"Answer 0. {HOSTILE}", model=HOSTILE)) as server:
            done = ask(agent, server)
        assert read_lines(agent.folder / "out.jsonl")[0]["answer"] == f"Answer 0. {HOSTILE[:-1]}\ufffd"
        row = {**read_lines(agent.folder / "out.jsonl")[0], "model": HOSTILE, "status": HOSTILE}
        scored = agent("score", agent.write(f"{HOSTILE[:-1]}.jsonl", [row]))
        assert scored.code == DONE
        assert not re.search("[\x1b\u202e\u2066]", done.out + done.err + scored.out + scored.err)

    def test_the_prompt_contains_the_question_and_not_the_answer(self, agent: Commands) -> None:
        write_triples(agent, 1)
        (agent.folder / "own").mkdir()
        template = (
            "{% block system %}Reply in {{ language }}.{% endblock %}{% block user %}{{ question | data('question') }}"
        )
        agent.write("own/answer.j2", template + "{% endblock %}")
        with ChatServer(says("yes")) as server:
            ask(agent, server, "--temperature", "0")
            ask(agent, server, "--prompts", "own", out="own.jsonl")
        assert all("Question 0\nHow?" in request.prompt for request in server.requests)
        assert not any("Answer 0" in request.prompt for request in server.requests)
        assert server.requests[0].body["temperature"] == 0
        assert server.requests[1].prompt.startswith("Reply in c.")


class TestResumption:
    def test_the_budget_includes_earlier_sessions_and_no_question_is_asked_twice(self, agent: Commands) -> None:
        write_triples(agent, 5)
        with ChatServer(says("yes")) as server:  # 110 tokens per call
            for _ in range(2):
                stopped = ask(agent, server, "--concurrency", "1", "--max-tokens-total", "250", "--json")
                assert (stopped.code, stopped.out, len(server.requests)) == (STOPPED, "", 3)
                assert "--max-tokens-total" in stopped.err
                assert not (agent.folder / "out.jsonl").exists()
            done = ask(agent, server, "--concurrency", "1", "--max-tokens-total", "1000", "--json")
            assert (done.code, done.json["usage"]["input_tokens"], len(server.requests)) == (DONE, 500, 5)
        assert len(read_lines(agent.folder / "out.jsonl")) == 5

    def test_after_ctrl_c_the_finished_replies_are_reused(self, agent: Commands) -> None:
        write_triples(agent, 6)
        hangs = True
        with ChatServer(lambda request: slow(60 if hangs and find_number(request) > 1 else 0)) as server:
            command = ("corpus", "answer", "qa", "-o", "out.jsonl", "--model", "m", "--base-url", server.url)
            command = (*command, "--language", "c", "--concurrency", "1")
            running = agent.start(*command)
            wait_until(lambda: len(server.requests) == 3, "the third request")
            os.kill(running.pid, signal.SIGINT)
            stopped = running.wait()
            assert (stopped.code, (agent.folder / "out.jsonl").exists()) == (STOPPED, False)
            hangs = False
            done = agent(*command)
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
    @pytest.mark.parametrize("options", [*CHOICES, "--model judge=m", "-o qa/x.jsonl"])
    def test_wrong_usage_leaves_no_output(self, agent: Commands, options: str) -> None:
        write_triples(agent, 1)
        done = agent("corpus", "answer", "qa", "-o", "out.jsonl", *NO_SERVER, *options.split())
        assert (done.code, CHOICES.get(options, "") in done.err) == (WRONG_USAGE, True)
        assert [path.name for path in agent.folder.glob("**/*.jsonl")] == ["test.jsonl"]

    def test_another_folder_and_an_existing_output_are_errors(self, agent: Commands) -> None:
        write_triples(agent, 1)
        agent.write("old.jsonl", "{}\n")
        for folder, out in (("qa", "old.jsonl"), (".", "out.jsonl"), ("missing", "out.jsonl")):
            assert agent("corpus", "answer", folder, "-o", out, *NO_SERVER).code == WRONG_USAGE

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
