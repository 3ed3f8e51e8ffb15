"""An embedded `Annotator` uses the OpenTelemetry providers of its host and sets none itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agent import Annotator, Pair, ScriptedLLM
from agent.errors import ExtraMissing, ModelError
from agent.llm.base import Call
from agent.llm.gateway import MemoryReplyCache
from tests.llm.server import ChatServer, says
from tests.otlp import Collector
from tests.scripts import label, screen

ON = {"tracing.otel": True, "runner.concurrency": 50}


@pytest.fixture(scope="module")
def _host() -> Iterator[TracerProvider]:
    """The provider of this process, which can be set only once."""
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    yield provider
    provider.shutdown()


@pytest.fixture
def collector(_host: TracerProvider) -> Iterator[Collector]:
    with Collector() as collector:
        processor = SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces"))
        _host.add_span_processor(processor)
        yield collector
        processor.shutdown()


async def test_concurrent_pairs_have_separate_trees_within_the_span_of_the_host(collector: Collector) -> None:
    async def answer(call: Call) -> str:
        await asyncio.sleep(0.01)
        return screen() if call.role == "screen" else label(1)

    pairs = [Pair(id=f"p{number}", query=f"query {number}", code="x = 1") for number in range(40)]
    with trace.get_tracer("host").start_as_current_span("host"):
        async with Annotator(model=ScriptedLLM(answer), variant="ps_fa", config=ON) as annotator:
            async for _ in annotator.annotate(pairs):
                pass
    spans = collector.list_spans()
    assert len({span.trace for span in spans}) == 1
    assert sorted((span.parent, span.name) for span in spans) == sorted(
        [
            ("", "host"),
            *[("host", "pair")] * 40,
            *[("pair", "node screen"), ("node screen", "chat scripted")] * 40,
            *[("pair", "node arbitrate"), ("node arbitrate", "chat scripted")] * 40,
        ]
    )
    assert {span.attributes["annotator.pair.id"] for span in spans if span.name == "pair"} == {p.id for p in pairs}


async def test_only_the_type_of_an_error_is_recorded(collector: Collector) -> None:
    model = ScriptedLLM([ModelError("the model quoted canary")])
    async with Annotator(model=model, variant="single_llm", config=ON) as annotator:
        annotation = await anext(annotator.annotate([Pair(id="half \ud800 a pair", query="q", code="x = 1")]))
    assert annotation.error is not None
    spans = collector.list_spans()
    assert [(span.name, span.failed) for span in spans] == [
        (name, True) for name in ("pair", "node judge", "chat scripted")
    ]
    assert {span.attributes["error.type"] for span in spans} == {"ModelError"}
    assert spans[0].attributes["annotator.pair.id"] == "half \\ud800 a pair"
    assert b"canary" not in collector.received


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("https://llm.example.org/v1", ("llm.example.org", 443)),
        ("http://[::1]:11434", ("::1", 11434)),
        ("http://[", (None, None)),
        ("", (None, None)),
    ],
)
async def test_a_call_has_the_host_and_port_of_its_server(
    collector: Collector, address: str, server: tuple[str | None, int | None]
) -> None:
    model = ScriptedLLM([label(1)])
    vars(model)["address"] = address
    async with Annotator(model=model, variant="single_llm", config=ON) as annotator:
        assert (await anext(annotator.annotate([Pair(id="1", query="q", code="x = 1")]))).label == 1
    (attributes,) = [span.attributes for span in collector.list_spans() if span.name == "chat scripted"]
    assert (attributes.get("server.address"), attributes.get("server.port")) == server


async def test_cached_replies_are_marked(collector: Collector) -> None:
    cache = MemoryReplyCache()
    for _ in range(2):
        model = ScriptedLLM(lambda _call: label(1))
        async with Annotator(model=model, variant="single_llm", cache=cache, config=ON) as annotator:
            await anext(annotator.annotate([Pair(id="1", query="q", code="x = 1")]))
    calls = [span.attributes["annotator.cached"] for span in collector.list_spans() if span.name == "chat scripted"]
    assert calls == [False, True]


@pytest.mark.long
async def test_with_ray_the_driver_traces_pairs_and_calls(collector: Collector) -> None:
    with ChatServer([says(screen("match"), prompt_tokens=2000)]) as server:
        options = {"model": "m", "base_url": server.url, "api_key": "none", "variant": "ps_fa", "engine": "ray"}
        async with Annotator(**options, config=ON) as annotator:
            async for _ in annotator.annotate([Pair(id=str(number), query="q", code="x = 1") for number in range(3)]):
                pass
    spans = collector.list_spans()
    assert sorted((span.parent, span.name) for span in spans) == [("", "pair")] * 3 + [("pair", "chat m")] * 3
    assert len({span.trace for span in spans}) == 3


def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ExtraMissing, match=r"\[otel\]"):
        Annotator(model="heuristic", config=ON)


@pytest.mark.parametrize("on", [False, True])
def test_opentelemetry_is_loaded_only_if_enabled_and_no_provider_is_set(on: bool) -> None:
    code = f"""
import sys
from agent import Annotator, annotate
assert "opentelemetry" not in sys.modules
annotate([{{"query": "q", "code": "x"}}], model="heuristic", variant="ps_fa", config={{"tracing.otel": {on}}})
from opentelemetry import metrics, trace
assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
assert type(metrics.get_meter_provider()).__name__ == "_ProxyMeterProvider"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
