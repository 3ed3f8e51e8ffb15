"""`tracing.otel` sends spans and metrics as configured by the OTEL_* variables, without disturbing the run."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.commands import Commands, pairs, read_annotations, reply
from tests.cli.processes import wait_until
from tests.llm.server import Answer, ChatServer, Request
from tests.otlp import Collector, Point
from tests.scripts import label, program, screen

QUERY, CODE, REPLY, TESTED, PRINTED = "canaryquery", "canarycode", "canaryreply", "canarytest", "canaryoutput"
CANARIES = [word.encode() for word in (QUERY, CODE, REPLY, TESTED, PRINTED, "exactly match")]
PAIR = {
    "id": "the id",
    "query": f"add {QUERY}",
    "code": f"def add(a, b):\n    print('{PRINTED}')\n    return a + b  # {CODE}\n",
}
PROGRAM = f"# <candidate>\n\n\ndef test_{TESTED}():\n    assert add(1, 2) == 3\n"


def answer_request(request: Request) -> Answer:
    """Answer as the role of the prompt requires."""
    if "test_" + TESTED in request.prompt:
        return reply(label(1, REPLY), prompt_tokens=3000, completion_tokens=30)
    if "<candidate>" in request.prompt:
        return reply(program(PROGRAM), completion_tokens=20)
    return reply(screen("unclear", REPLY), cached_tokens=1500)


def annotate(agent: Commands, server: ChatServer, *options: str, **variables: str) -> tuple[int, str]:
    rows = [PAIR]
    options = ("--model", "gpt-4o-mini", "--base-url", server.url, "--sandbox", "bwrap", "-o", "out", *options)
    done = agent("annotate", agent.write("p.jsonl", rows), *options, OPENAI_API_KEY="sk-canarykey", **variables)
    return done.code, done.err


@pytest.mark.bwrap
def test_pair_is_a_tree_of_spans_without_content(agent: Commands) -> None:
    with Collector() as collector, ChatServer(answer_request) as server:
        code, err = annotate(agent, server, "-c", "tracing.otel=true", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert code == 0, err
    spans = collector.list_spans()
    assert [(span.parent, span.name) for span in spans] == [
        ("", "pair"),
        ("pair", "node screen"),
        ("node screen", "chat gpt-4o-mini"),
        ("pair", "node generate_test"),
        ("node generate_test", "chat gpt-4o-mini"),
        ("pair", "node execute"),
        ("node execute", "sandbox run"),
        ("node execute", "sandbox run"),  # a program that passed runs a second time
        ("pair", "node arbitrate"),
        ("node arbitrate", "chat gpt-4o-mini"),
    ]
    assert len({span.trace for span in spans}) == 1
    assert not any(span.failed for span in spans)
    assert spans[0].attributes == {
        "annotator.pair.id": "the id",
        "annotator.round": 0,
        "annotator.variant": "full",
        "annotator.label": 1,
        "annotator.decided_by": "arbitrate",
    }
    assert spans[1].attributes == {"annotator.node": "screen", "annotator.outcome": "unclear"}
    attributes = spans[2].attributes
    assert 0 < attributes.pop("annotator.seconds") < 30
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.response.model": "served-model",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 2000,
        "gen_ai.usage.cache_read.input_tokens": 1500,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": urlsplit(server.url).port,
        "annotator.role": "screen",
        "annotator.calls": 1,
        "annotator.cached": False,
        "annotator.cost_usd": pytest.approx((500 * 0.15 + 1500 * 0.075 + 10 * 0.6) / 1e6),
    }
    run = spans[6].attributes
    assert {"annotator.backend": "bwrap", "annotator.status": "clean", "annotator.shared": False}.items() <= run.items()
    assert run["annotator.seconds"] > 0
    assert run["annotator.waited"] >= 0
    assert collector.get_resource()["service.name"] == "test-driven-annotator"
    assert collector.get_schemas() == {"https://opentelemetry.io/schemas/1.41.1"}
    for canary in (*CANARIES, b"sk-canarykey"):
        assert canary not in collector.received


@pytest.mark.bwrap
def test_metrics_count_pairs_tokens_cost_and_seconds(agent: Commands) -> None:
    with Collector() as collector, ChatServer(answer_request) as server:
        annotate(agent, server, "-c", "tracing.otel=true", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    metrics = collector.collect_metrics()
    outcome = {"annotator.variant": "full", "annotator.label": 1, "annotator.decided_by": "arbitrate"}
    assert metrics["annotator.pairs"] == [Point(outcome, 1)]
    tokens = {
        (point.attributes["annotator.role"], point.attributes["gen_ai.token.type"]): point.sum
        for point in metrics["gen_ai.client.token.usage"]
    }
    assert tokens == {
        ("screen", "input"): 2000, ("screen", "output"): 10,
        ("generate_test", "input"): 2000, ("generate_test", "output"): 20,
        ("arbitrate", "input"): 3000, ("arbitrate", "output"): 30,
    }  # fmt: skip
    cost = read_annotations(agent.folder / "out")[0]["usage"]["cost_usd"]
    assert sum(point.sum for point in metrics["annotator.cost"]) == pytest.approx(cost)
    assert [point.count for point in metrics["gen_ai.client.operation.duration"]] == [1, 1, 1]
    durations = metrics["annotator.sandbox.duration"]
    assert [(point.count, point.attributes["annotator.status"]) for point in durations] == [(2, "clean")]


@pytest.mark.bwrap
def test_spans_have_prompts_and_replies_if_enabled(agent: Commands) -> None:
    with Collector() as collector, ChatServer(answer_request) as server:
        options = ("-c", "tracing.otel=true", "-c", "tracing.content=true")
        assert annotate(agent, server, *options, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)[0] == 0
    attributes = collector.list_spans()[2].attributes
    for canary in (QUERY, CODE):
        assert canary in attributes["gen_ai.input.messages"]
    assert REPLY in attributes["gen_ai.output.messages"]
    assert b"sk-canarykey" not in collector.received


def test_unreachable_collector_is_reported_once_and_does_not_disturb_the_run(agent: Commands) -> None:
    rows = agent.write("p.jsonl", pairs(3))
    options = ("--model", "heuristic", "--variant", "ps_fa", "-c", "tracing.otel=true")
    with Collector() as collector:
        pass
    for number, broken in enumerate((collector.url, "nonsense")):
        done = agent("annotate", rows, *options, "-o", f"out{number}", OTEL_EXPORTER_OTLP_ENDPOINT=broken)
        assert done.code == 0
        assert len(read_annotations(agent.folder / f"out{number}")) == 3
        assert done.err.count("opentelemetry") == 1
        assert "Traceback" not in done.err
    with Collector(status=400) as refusing:
        done = agent("annotate", rows, *options, "-o", "out2", OTEL_EXPORTER_OTLP_ENDPOINT=refusing.url)
    assert (done.code, done.err.count("opentelemetry")) == (0, 1)


def test_otel_variables_apply_and_nothing_is_sent_by_default(agent: Commands) -> None:
    rows = agent.write("p.jsonl", pairs(1))
    command = ("annotate", rows, "--model", "heuristic", "--variant", "ps_fa")
    with Collector() as collector:
        agent(*command, "-o", "off", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        assert not collector.bodies
        agent(
            *(*command, "-o", "on"),
            AGENT_TRACING__OTEL="true",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="mine",
        )
        assert {path for path, _ in collector.bodies} == {"/v1/traces", "/v1/metrics"}
        assert collector.get_resource()["service.name"] == "mine"


def test_spans_before_ctrl_c_are_sent(agent: Commands) -> None:
    def answer(request: Request) -> Answer:
        return reply(screen("match")) if "way 0" in request.prompt else Answer(ending="keep_alive")

    agent.write("p.jsonl", pairs(2))
    with Collector() as collector, ChatServer(answer) as server:
        running = agent.start(
            *("annotate", "p.jsonl", "-c", "tracing.otel=true", "--variant", "ps_fa", "-o", "out"),
            *("--model", "m", "--base-url", server.url),
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OPENAI_API_KEY="none",
        )
        file = Path(agent.folder / "out" / "annotations.jsonl")
        wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") == len(server.requests) - 1 == 1, "a pair")
        assert running.stop().code == 3
    pair_spans = {span.attributes["annotator.pair.id"]: span for span in collector.list_spans() if span.name == "pair"}
    assert pair_spans["p0"].attributes["annotator.label"] == 1
    assert (pair_spans["p1"].failed, pair_spans["p1"].attributes["error.type"]) == (True, "CancelledError")
    assert sum(point.sum for point in collector.collect_metrics()["annotator.pairs"]) == 1
