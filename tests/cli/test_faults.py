"""With a server that fails in every way, each pair ends with the server's label or a typed error."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter

import pytest

from agent import errors
from tests.cli.commands import Commands, pairs, read_annotations, reply
from tests.llm.server import Answer, ChatServer, Request, broken, garbage, half_body, keep_alives, rate_limited
from tests.scripts import label

PAIRS = 200
TOKENS = 2000


class Faulty:
    """Answers half of the requests correctly and the rest with faults. Records billed tokens and labels."""

    def __init__(self) -> None:
        self.rng = random.Random(4)
        self.lock = threading.Lock()
        self.billed = 0
        self.labels_sent: dict[str, set[int]] = {}
        self.faults: Counter[str] = Counter()

    def __call__(self, request: Request) -> Answer:
        match = re.search(r"way (\d+)", request.prompt)
        assert match is not None
        with self.lock:
            return self._answer(f"p{match[1]}")

    def _answer(self, pair: str) -> Answer:
        kind = self.rng.choices(
            ["fine", "429", "500", "garbage", "blank", "keep-alives", "half a body", "half an object"],
            [50, 8, 8, 4, 10, 5, 4, 11],
        )[0]
        self.faults[kind] += 1
        if kind == "fine":
            value = self.rng.randint(0, 1)
            self.labels_sent.setdefault(pair, set()).add(value)
            return self._bill(label(value))
        if kind == "blank":
            return self._bill("  \n ")
        if kind == "half an object":
            return self._bill('{"reason": "it does, "label": 0')
        return {
            "429": rate_limited("0"),
            "500": broken(),
            "garbage": garbage(),
            "keep-alives": keep_alives(),
            "half a body": half_body(),
        }[kind]

    def _bill(self, text: str) -> Answer:
        self.billed += TOKENS
        return reply(text, prompt_tokens=TOKENS)


@pytest.mark.long
@pytest.mark.slow
def test_every_pair_ends_with_a_label_or_a_typed_error(agent: Commands) -> None:
    faulty = Faulty()
    with ChatServer(faulty) as server:
        options = ("--variant", "single_llm", "--model", "m", "--base-url", server.url, "-o", "run", "--json")
        limits = ("-c", "call_timeout=5", "-c", "attempts=3", "--concurrency", "64", "-c", "runner.llm_calls=64")
        done = agent("annotate", agent.write("p.jsonl", pairs(PAIRS)), *options, *limits)
    rows = read_annotations(agent.folder / "run")
    assert sorted(a["id"] for a in rows) == sorted(f"p{number}" for number in range(PAIRS))
    assert len(faulty.faults) == 8

    failed = [a for a in rows if a["error"] is not None]
    assert done.code == (1 if failed else 0)
    for annotation in failed:
        assert annotation["label"] is None
        assert annotation["decided_by"] is None
        assert issubclass(getattr(errors, annotation["error"]["type"]), errors.ModelError)
        assert annotation["error"]["message"]
    for annotation in rows:
        if annotation["error"] is None:
            assert annotation["label"] in faulty.labels_sent[annotation["id"]]
    assert len(rows) - len(failed) > PAIRS / 2

    tokens = sum(a["usage"]["input_tokens"] for a in rows)
    assert tokens == done.json["usage"]["input_tokens"] == faulty.billed
