"""Runs with batches against a server that fails lines, expires batches and restarts."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent import Annotator, Pair
from agent.errors import (
    AccountError,
    BudgetExceeded,
    ConfigError,
    DeadlineReached,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    Outage,
    UsageError,
)
from agent.events import Event, Note, Waiting
from agent.llm import batch as api
from agent.llm.base import MOST_REPLY_BYTES
from agent.llm.batch import ResultLine, build_request_line, read_line
from agent.llm.budget import Budget
from agent.llm.models import parse_model
from agent.llm.openai import OpenAIModel
from agent.runs import batches
from agent.runs.store.run_view import load_run
from agent.types import Annotation
from tests.llm.batch_server import BatchServer, Faults
from tests.test_annotator import collect

Serve = Callable[..., BatchServer]
PRICES = {"test-model": {"input": 1.0, "output": 10.0}}
KEY = "0" * 64
PAIRS = [Pair(id=f"p{number}", query=f"query {number}", code=f"def f(): return {number}") for number in range(40)]


def answer(body: dict[str, Any]) -> str:
    """Find every fifth pair unclear. Reject one pair, and send an unusable first reply for another one."""
    number = int(re.search(r"return (\d+)", body["messages"][1]["content"])[1])
    if number == 13:
        raise ValueError("the text was flagged")
    if number == 7 and len(body["messages"]) == 2:
        return "I would rather not say."
    if '"verdict"' in body["messages"][0]["content"]:
        return json.dumps({"reason": "r", "verdict": ["unclear", "match", "non_match"][number % 5 and number % 2 + 1]})
    return json.dumps({"reason": "r", "label": number % 2})


def verbose(body: dict[str, Any]) -> str:
    """Return the replies of `answer`, lengthened by 2,000 tokens of spaces."""
    return answer(body).replace("{", "{" + " " * 8_000)


def with_intents(body: dict[str, Any]) -> str:
    """Return the replies of `answer`, and search intent for each query."""
    if "return " not in body["messages"][1]["content"]:
        return json.dumps({"reason": "r", "intent": "yes"})
    return answer(body)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers: list[BatchServer] = []

    def start(answers: str = "answer", **faults: Any) -> BatchServer:
        server = BatchServer(tmp_path / f"server{len(servers)}", f"{__name__}:{answers}", Faults(**faults))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.runs.batches._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("agent.runs.batches._SEND_PAUSES", (0.01,))


async def run(server: BatchServer, folder: Path, *, batch: bool = True, **options: Any) -> dict[str, Annotation]:
    """Annotate the pairs and return the annotations by id."""
    pairs, config = options.pop("pairs", PAIRS), {"runner.batch": batch, **options.pop("config", {})}
    model = {"model": "test-model", "base_url": server.url, "prices": PRICES, "attempts": 4, "api_key": "k"}
    options = {**model, "variant": "ps_fa", "run_dir": folder / "run", "cache": folder / "cache.sqlite", **options}
    annotations = await collect(Annotator(config=config, **options), pairs)
    assert len({annotation.id for annotation in annotations}) == len(annotations)
    return {annotation.id: annotation for annotation in annotations}


def labels(annotations: dict[str, Annotation]) -> dict[str, Any]:
    return {name: (row.label, row.decided_by, row.error and row.error.type) for name, row in annotations.items()}


class TestRun:
    async def test_labels_are_those_of_a_run_without_batches_at_half_the_price(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        server = serve()
        batched, live = await run(server, tmp_path / "a"), await run(server, tmp_path / "b", batch=False)
        assert labels(batched) == labels(live)
        assert len(batched) == 40
        for name, annotation in batched.items():
            assert annotation.usage.cost_usd == pytest.approx(live[name].usage.cost_usd / 2), name
            assert annotation.usage.calls == live[name].usage.calls
        assert len(server.list_batches()) == 2
        assert set(server.count_replies().values()) == {1}

    async def test_requests_equal_those_of_a_run_without_batches(self, serve: Serve, tmp_path: Path) -> None:
        server = serve()
        options = {
            "temperature": 0.3, "max_tokens": 99, "thinking": "off", "extra_body": {"top_k": 3},
            "reply_format": "json_schema",
        }  # fmt: skip
        await run(server, tmp_path / "a", **options)
        await run(server, tmp_path / "b", batch=False, **options)
        by_batch = [json.dumps(line["body"], sort_keys=True) for line in server.list_requests()]
        assert sorted(by_batch) == sorted(json.dumps(body, sort_keys=True) for body in server.list_live_requests())

    async def test_failed_lines_and_expired_batches_are_resent_without_paying_twice(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        faulty = serve(failing=0.2, expiring=(1, 3), unacknowledged=(2,))
        annotations = await run(faulty, tmp_path / "a")
        assert labels(annotations) == labels(await run(serve(), tmp_path / "b", batch=False))
        assert set(faulty.count_replies().values()) == {1}

    async def test_a_line_that_always_fails_ends_its_pair_after_the_last_attempt(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        server = serve(failing=0.4)
        annotations = await run(server, tmp_path, attempts=2)
        assert len(annotations) == 40
        errors = [annotation.error for annotation in annotations.values() if annotation.error is not None]
        assert {error.type for error in errors} == {"ModelError"}
        twice = sum(count == 2 for count in server.count_failures().values())
        assert len(errors) in (twice, twice + 1)  # a request that is rejected for its text is not retried
        assert max(server.count_failures().values()) == 2

    async def test_a_full_queue_leads_to_smaller_batches(self, serve: Serve, tmp_path: Path) -> None:
        server = serve(enqueued=15)
        assert len(await run(server, tmp_path)) == 40
        assert [batch["status"] for batch in server.list_batches()][:3] == ["failed", "failed", "completed"]
        assert set(server.count_replies().values()) == {1}

    async def test_identical_calls_are_sent_once_per_round(self, serve: Serve, tmp_path: Path) -> None:
        server = serve()
        annotator = Annotator(
            model="test-model", base_url=server.url, api_key="k", variant="single_llm", rounds=2, prices=PRICES,
            config={"runner.batch": True}, run_dir=tmp_path / "run", cache=tmp_path / "c.sqlite",
        )  # fmt: skip
        pairs = [Pair(id=f"{number}", query="query 1", code="def f(): return 1") for number in range(10)]
        annotations = await collect(annotator, pairs)
        assert len(annotations) == 20
        assert len(server.count_replies()) == 2
        assert sum(row.usage.calls for row in annotations) == 2  # the first pair pays, the others use the cache

    async def test_an_unacknowledged_batch_is_found_and_a_lost_one_is_recreated(
        self, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("agent.runs.batches._CREATION_TIMEOUT", 0.2)
        unacknowledged = serve(unacknowledged=(1,))
        assert len(await run(unacknowledged, tmp_path / "a")) == 40
        assert set(unacknowledged.count_replies().values()) == {1}
        assert len(await run(serve(lost=(1,)), tmp_path / "b")) == 40

    @pytest.mark.parametrize("fault", ["forgotten", "emptied"])
    async def test_requests_of_a_lost_batch_are_sent_again(
        self, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        monkeypatch.setattr("agent.runs.batches._CREATION_TIMEOUT", 0.2)
        server = serve(**{fault: (1,)})
        assert len(await run(server, tmp_path, attempts=1)) == 40
        assert len(server.list_batches()) == 3

    async def test_each_model_has_its_own_batches(self, serve: Serve, tmp_path: Path) -> None:
        server, models = serve(), ["test-model", "arbitrate=another-model"]
        batched = await run(server, tmp_path / "a", model=models)
        assert labels(batched) == labels(await run(server, tmp_path / "b", model=models, batch=False))
        requests = Counter((line["body"]["model"], '"label"' in str(line["body"])) for line in server.list_requests())
        assert requests == {("test-model", False): 41, ("another-model", True): 8}

    async def test_shared_calls_are_as_in_a_run_without_batches(self, serve: Serve, tmp_path: Path) -> None:
        pairs = [pair.model_copy(update={"query": f"query {number % 2}"}) for number, pair in enumerate(PAIRS[:12])]
        server, options = serve("with_intents"), {"variant": "cosqa", "pairs": pairs}
        batched = await run(server, tmp_path / "a", **options)
        live = await run(server, tmp_path / "b", batch=False, **options)
        assert labels(batched) == labels(live)
        calls = [sum(annotation.usage.calls for annotation in result.values()) for result in (batched, live)]
        assert calls[0] == calls[1] == len(server.count_replies())
        assert sum("intent" in str(line["body"]["messages"][0]) for line in server.list_requests()) >= 2

    @pytest.mark.parametrize("attempts", [4, 1])
    async def test_a_run_waits_for_a_server_that_restarts(
        self, serve: Serve, tmp_path: Path, attempts: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve()
        monkeypatch.setattr("agent.runs.batches._SEND_PAUSES", (0.1,) * 300)

        def on_event(event: Event) -> None:
            if isinstance(event, Waiting) and "batch_1" in event.what and not restarted:
                restarted.append(event.what)
                server.kill()
                asyncio.get_running_loop().call_later(0.5, server.start)

        restarted: list[str] = []
        assert len(await run(server, tmp_path, on_event=on_event, attempts=attempts)) == 40
        assert re.search(r"batch_1: in_progress, 0 \D+ 40 ", *restarted)
        assert set(server.count_replies().values()) == {1}

    async def test_the_next_start_waits_for_batches_of_a_cancelled_run(self, serve: Serve, tmp_path: Path) -> None:
        server, notes = serve(), list[str]()

        def on_event(event: Event) -> None:
            if isinstance(event, Note):
                notes.append(event.message)
            if isinstance(event, Waiting):
                task.cancel()

        task = asyncio.ensure_future(run(server, tmp_path, on_event=on_event))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert re.search(r"batch_1: 40 .*test-model", notes[0])
        assert notes[-1].startswith("1 batch ")
        assert len(await run(server, tmp_path)) == 40
        assert set(server.count_replies().values()) == {1}

    async def test_a_rejected_batch_ends_the_run_with_the_servers_message(self, serve: Serve, tmp_path: Path) -> None:
        server = serve(rejected=(1,), code="invalid_json_line")
        with pytest.raises(Outage, match="invalid_json_line"):
            await run(server, tmp_path)
        assert len(await run(server, tmp_path)) == 40

    async def test_requests_that_fail_for_lack_of_credit_do_not_count_as_attempts(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        server = serve(unpaid=(1,))
        with pytest.raises(AccountError, match="account"):
            await run(server, tmp_path, attempts=1)
        annotations = await run(server, tmp_path, attempts=1)
        assert [name for name, annotation in annotations.items() if annotation.error is not None] == ["p13"]

    async def test_a_rejected_status_request_ends_the_run_with_a_remedy(self, serve: Serve, tmp_path: Path) -> None:
        server = serve(refused=(1,))
        for _ in range(2):
            with pytest.raises(Outage, match=r"a bad request\. .*batches\.sqlite"):
                await run(server, tmp_path)
        for file in (tmp_path / "run").glob("batches.sqlite*"):
            file.unlink()
        assert len(await run(server, tmp_path)) == 40

    @pytest.mark.parametrize(("operation", "count"), [("POST files", 0), ("GET batches", 1), ("GET files", 1)])
    async def test_a_server_that_returns_web_pages_ends_the_run(
        self, serve: Serve, tmp_path: Path, operation: str, count: int
    ) -> None:
        server = serve(html=(operation,))
        with pytest.raises(Outage):
            await run(server, tmp_path, attempts=1)
        assert len(server.list_batches()) == count

    async def test_a_request_too_large_for_a_batch_ends_only_its_pair(self, serve: Serve, tmp_path: Path) -> None:
        huge = Pair(id="huge", query="query", code="# return 1\n" * 2_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("agent.llm.batch.MOST_BYTES", 20_000)
            patch.setattr("agent.runs.batches.MOST_BYTES", 20_000)
            annotations = await run(serve(), tmp_path, pairs=[huge, *PAIRS[:4]])
        assert [name for name, annotation in annotations.items() if annotation.error is not None] == ["huge"]
        assert "20,000" in str(annotations["huge"].error)

    async def test_pairs_in_error_are_retried_on_request(self, serve: Serve, tmp_path: Path) -> None:
        server = serve(failing=0.4)
        first = await run(server, tmp_path, attempts=1)
        second = await run(server, tmp_path, attempts=4, retry_errors=True)
        errors = [sum(annotation.error is not None for annotation in start.values()) for start in (first, second)]
        assert errors[0] > 10
        assert errors[1] < 5
        assert sum(count > 1 for count in server.count_replies().values()) <= 1  # the unusable reply


class TestLimits:
    async def test_a_batch_beyond_the_budget_is_not_sent(self, serve: Serve, tmp_path: Path) -> None:
        server = serve()
        with pytest.raises(BudgetExceeded, match=r"\$0\.1 .*\$0\.1\d+"):
            await run(server, tmp_path, budget=0.1)
        with pytest.raises(BudgetExceeded, match=r"20,000 .* 8.,..."):
            await run(server, tmp_path, config={"runner.max_tokens_total": 20_000})
        assert server.list_batches() == []
        annotations = await run(server, tmp_path, budget=0.2)  # the replies are shorter than the expected 500 tokens
        assert sum(annotation.usage.cost_usd or 0 for annotation in annotations.values()) < 0.1

    async def test_imported_replies_count_before_their_pairs_finish(self, serve: Serve, tmp_path: Path) -> None:
        server = serve("verbose")
        with pytest.raises(BudgetExceeded, match=r"\$0\.39 "):
            await run(server, tmp_path, budget=0.39)  # enough for most replies, which cost $0.32
        assert len(server.list_batches()) == 1
        with load_run(tmp_path / "run") as view:
            assert 0 < view.index.pair_count < 40
        assert len(await run(server, tmp_path, budget=2.0)) == 40
        assert set(server.count_replies().values()) == {1}

    async def test_replies_of_another_runs_batch_are_counted_once_by_the_run_that_uses_them(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        server, budget = serve("verbose"), Budget()
        with pytest.raises(BudgetExceeded):
            await run(server, tmp_path, budget=0.39)
        annotations = await run(server, tmp_path, run_dir=tmp_path / "another", budget=budget)
        usages = [annotation.usage for annotation in annotations.values()]
        assert budget.spent.calls == sum(usage.calls for usage in usages)
        assert budget.spent.cost_usd == pytest.approx(sum(usage.cost_usd or 0 for usage in usages))
        assert budget.spent.calls > len(server.list_requests()) - 40  # includes some of the first batch

    async def test_the_deadline_ends_the_wait_for_batches(
        self, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve()
        monkeypatch.setattr("agent.runs.batches._FIRST_PAUSE", 60.0)
        with pytest.raises(DeadlineReached):
            await run(server, tmp_path, config={"runner.deadline": "5s"})
        monkeypatch.setattr("agent.runs.batches._FIRST_PAUSE", 0.01)
        assert len(await run(server, tmp_path)) == 40
        assert set(server.count_replies().values()) == {1}

    def test_runs_that_do_not_support_batches_are_rejected(self, tmp_path: Path) -> None:
        config = {"runner.batch": True}
        places: dict[str, Any] = {"run_dir": tmp_path / "run", "cache": tmp_path / "c.sqlite"}
        with pytest.raises(ConfigError, match="heuristic"):
            Annotator(model="heuristic", config=config, **places)
        with pytest.raises(UsageError, match=r"run_dir=.*cache="):
            Annotator(model="gpt", api_key="k", config=config, run_dir=tmp_path)
        with pytest.raises(UsageError, match="--engine ray"):
            Annotator(model="gpt", api_key="k", config={**config, "runner.engine": "ray"}, **places)


class TestLines:
    """Lines of a server's output file."""

    @pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
    def test_malformed_lines_are_errors(self, line: bytes) -> None:
        with pytest.raises(ValueError):  # noqa: PT011
            read_line(line)

    @pytest.mark.parametrize(
        "line",
        [
            b'{"custom_id": 3}', b'{"custom_id": "\\ud800"}', b"{}", b'{"custom_id": "not of ours"}',
            b'{"custom_id": "%s"}' % KEY.encode(),
        ],
    )  # fmt: skip
    def test_lines_of_other_requests_are_none(self, line: bytes) -> None:
        assert read_line(line) is None

    @pytest.mark.parametrize(
        ("fields", "result"),
        [
            ({"response": {"status_code": 200, "body": {}}}, (200, {}, False)),
            ({"response": {"body": 1}}, (None, 1, False)),
            ({"response": {"status_code": 400, "body": 1}, "error": {"code": 500}}, (400, 1, False)),
            ({"error": {"code": 400}}, (400, {"error": {"code": 400}}, False)),
            ({"error": {"code": []}}, (None, {"error": {"code": []}}, False)),
            ({"error": {"code": "batch_expired"}}, (None, {"error": {"code": "batch_expired"}}, True)),
        ],
    )
    def test_responses_and_errors_are_parsed(self, fields: dict[str, Any], result: tuple[Any, ...]) -> None:
        assert read_line(json.dumps({"custom_id": KEY, **fields}).encode()) == ResultLine(KEY, *result)

    @given(text=st.text())
    def test_a_request_is_always_one_line(self, text: str) -> None:
        line = build_request_line("k", {"messages": [{"content": text}]})
        assert line.count(b"\n") == 1
        assert json.loads(line)["custom_id"] == "k"


async def test_a_malformed_response_is_a_transient_error(httpserver: HTTPServer) -> None:
    model = parse_model("m", base_url=httpserver.url_for("/v1"), attempts=1)
    assert isinstance(model, OpenAIModel)
    requests: list[Any] = [
        (api.upload, BytesIO()),
        (api.create, "f", "t"),
        (api.find_batch, "t", 0.0),
        (api.retrieve, "b"),
    ]
    for body, kind in (("<html>", "text/html"), ("[]", "application/json"), ("{", "application/json")):
        httpserver.expect_request(re.compile("/v1/.*")).respond_with_data(body, content_type=kind)
        for send, *arguments in requests:
            with pytest.raises(ModelUnavailable, match="OpenAI's API"):
                await model.request(send, *arguments)
    await model.aclose()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{" + b" " * MOST_REPLY_BYTES, ModelError),
        (b"{}\n" * 5, ModelError),
        (b"{}\n" * 2, None),
        (b"", None),
    ],
)
async def test_a_file_that_cannot_be_the_results_of_a_batch_is_not_downloaded(
    httpserver: HTTPServer, content: bytes, error: type[ModelError] | None
) -> None:
    model, file = parse_model("m", base_url=httpserver.url_for("/v1"), attempts=1), BytesIO()
    assert isinstance(model, OpenAIModel)
    httpserver.expect_request("/v1/files/f/content").respond_with_data(content)
    with pytest.raises(error) if error else nullcontext():
        await model.request(api.download, "f", file, 2)
    await model.aclose()
    assert error or file.getvalue() == content


async def test_creating_a_batch_times_out_before_it_counts_as_never_created(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 3 * api._CREATE_SECONDS < batches._CREATION_TIMEOUT  # each for connection, request and response
    monkeypatch.setattr("agent.llm.batch._CREATE_SECONDS", 0.1)
    model = parse_model("m", base_url=httpserver.url_for("/v1"), api_key="k")
    assert isinstance(model, OpenAIModel)

    def respond(_request: Request) -> Response:
        time.sleep(1)
        return Response(json.dumps({"id": "batch_1"}), content_type="application/json")

    httpserver.expect_request("/v1/batches").respond_with_handler(respond)
    with pytest.raises(ModelTimeout):
        await model.request(api.create, "file-1", "token", once=True)
    await model.aclose()


PROGRAM = """
import random
# <candidate>

def test_it():
    assert f() == -1, random.random()
"""


def varying_test(body: dict[str, Any]) -> str:
    """Find every pair unclear, and write a test with a different failure message on each run."""
    system = body["messages"][0]["content"]
    if '"verdict"' in system:
        return json.dumps({"reason": "r", "verdict": "unclear"})
    if '"label"' in system:
        return json.dumps({"reason": "r", "label": 0})
    return f'```json\n{{"stand_ins": []}}\n```\n```python\n{PROGRAM}```\n'


@pytest.mark.bwrap
async def test_a_program_runs_once_even_if_its_output_varies(serve: Serve, tmp_path: Path) -> None:
    server = serve("varying_test")
    annotations = await run(server, tmp_path, variant="full", sandbox="bwrap", pairs=PAIRS[:4])
    assert [(result.label, result.test.status) for result in annotations.values() if result.test] == [(0, "failed")] * 4
    assert [batch["request_counts"]["total"] for batch in server.list_batches()] == [4, 4, 4]
    assert len(server.count_replies()) == 12
