"""Runs by batches, against a server with a Batch API that fails lines, expires batches and restarts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import Annotator, Pair
from agent.types import Annotation
from tests.llm.batch_server import BatchServer, Faults

ANSWERS = "tests.test_batches:answer"
PRICES = {"test-model": {"input": 1.0, "output": 10.0}}
PAIRS = [Pair(id=f"p{number}", query=f"query {number}", code=f"def f(): return {number}") for number in range(40)]


def answer(body: dict[str, Any]) -> str:
    """Find every fifth pair unclear and simulate; refuse one pair, and give one an unusable reply at first."""
    number = int(re.search(r"return (\d+)", body["messages"][1]["content"])[1])
    if number == 13:
        raise ValueError("the text was flagged")
    if number == 7 and len(body["messages"]) == 2:
        return "I would rather not say."
    if '"verdict"' in body["messages"][0]["content"]:
        return json.dumps({"reason": "r", "verdict": ["unclear", "match", "non_match"][number % 5 and number % 2 + 1]})
    return json.dumps({"reason": "r", "label": number % 2})


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., BatchServer]]:
    servers: list[BatchServer] = []

    def start(**faults: Any) -> BatchServer:
        server = BatchServer(tmp_path / f"server{len(servers)}", ANSWERS, Faults(**faults))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.batches._FIRST_PAUSE", 0.01)


async def run(server: BatchServer, folder: Path, *, batch: bool = True, **options: Any) -> dict[str, Annotation]:
    """Annotate the pairs, and return the annotations by id."""
    config = {"runner.batch": batch, **options.pop("config", {})}
    model = {"model": "test-model", "base_url": server.url, "prices": PRICES, "attempts": 4, "api_key": "k"}
    given = {**model, "variant": "ps_fa", "run_dir": folder / "run", "cache": folder / "cache.sqlite", **options}
    async with Annotator(config=config, **given) as annotator:
        found = [annotation async for annotation in annotator.annotate(PAIRS)]
    assert len({each.id for each in found}) == len(found)
    return {each.id: each for each in found}


def labels(annotations: dict[str, Annotation]) -> dict[str, Any]:
    return {name: (each.label, each.decided_by, each.error and each.error.type) for name, each in annotations.items()}


class TestARun:
    async def test_labels_are_those_of_a_run_without_batches_at_half_the_price(
        self, serve: Callable[..., BatchServer], tmp_path: Path
    ) -> None:
        server = serve()
        batched, live = await run(server, tmp_path / "a"), await run(server, tmp_path / "b", batch=False)
        assert labels(batched) == labels(live)
        assert len(batched) == 40
        for name, each in batched.items():
            assert each.usage.cost_usd == pytest.approx(live[name].usage.cost_usd / 2), name
            assert each.usage.calls == live[name].usage.calls
        assert len(server.batches()) == 2
        assert set(server.answered().values()) == {1}

    async def test_requests_are_those_of_the_live_path(self, serve: Callable[..., BatchServer], tmp_path: Path) -> None:
        server = serve()
        options = {
            "temperature": 0.3, "max_tokens": 99, "thinking": "off", "extra_body": {"top_k": 3},
            "reply_format": "json_schema",
        }  # fmt: skip
        await run(server, tmp_path / "a", **options)
        await run(server, tmp_path / "b", batch=False, **options)
        by_batch = [json.dumps(line["body"], sort_keys=True) for line in server.requests()]
        assert sorted(by_batch) == sorted(json.dumps(body, sort_keys=True) for body in server.live())

    async def test_failed_lines_and_expired_batches_are_sent_again_and_nothing_is_paid_twice(
        self, serve: Callable[..., BatchServer], tmp_path: Path
    ) -> None:
        faulty = serve(failing=0.2, expiring=(1, 3), unheard=(2,))
        annotations = await run(faulty, tmp_path / "a")
        assert labels(annotations) == labels(await run(serve(), tmp_path / "b", batch=False))
        assert set(faulty.answered().values()) == {1}

    async def test_a_line_that_always_fails_ends_its_pair_after_so_many_attempts(
        self, serve: Callable[..., BatchServer], tmp_path: Path
    ) -> None:
        server = serve(failing=0.4)
        annotations = await run(server, tmp_path, attempts=2)
        assert len(annotations) == 40
        failed = [each.error for each in annotations.values() if each.error is not None]
        assert {error.type for error in failed} == {"ModelError"}
        twice = sum(count == 2 for count in server.failed().values())
        assert len(failed) in (twice, twice + 1)  # what is refused for its text is not tried again
        assert max(server.failed().values()) == 2

    async def test_a_full_queue_is_waited_for_with_smaller_batches(
        self, serve: Callable[..., BatchServer], tmp_path: Path
    ) -> None:
        server = serve(enqueued=15)
        assert len(await run(server, tmp_path)) == 40
        assert [each["status"] for each in server.batches()][:3] == ["failed", "failed", "completed"]
        assert set(server.answered().values()) == {1}

    async def test_rounds_and_equal_questions_are_asked_as_often_as_they_differ(
        self, serve: Callable[..., BatchServer], tmp_path: Path
    ) -> None:
        server = serve()
        config = {"runner.batch": True}
        async with Annotator(
            model="test-model", base_url=server.url, api_key="k", variant="single_llm", rounds=2, config=config,
            run_dir=tmp_path / "run", cache=tmp_path / "c.sqlite", prices=PRICES,
        ) as annotator:  # fmt: skip
            pairs = [Pair(id=f"{number}", query="query 1", code="def f(): return 1") for number in range(10)]
            found = [each async for each in annotator.annotate(pairs)]
        assert len(found) == 20
        assert len(server.answered()) == 2
        assert sum(each.usage.calls for each in found) == 2  # paid for by the first, in the cache for the others
