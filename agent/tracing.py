"""Spans and metrics by OpenTelemetry for those who ask for them; for all others nothing is loaded and nothing done.

The names of attributes and metrics are those of OpenTelemetry's conventions for generative AI (1.37), `gen_ai.*`,
and `annotator.*` for what those have no name for.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Thread
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.config import TracingConfig
from agent.errors import ConfigError, ExtraMissing, ModelError
from agent.types import Message, Usage

Kind = Literal["pair", "node", "model call", "sandbox"]

_NAME = "test-driven-annotator"
_NAMES = {
    "pair": "annotator.pair.id",
    "error": "error.type",
    "server": "server.address",
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "served": "gen_ai.response.model",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "prompt": "gen_ai.input.messages",
    "reply": "gen_ai.output.messages",
}
_CONTENT = ("prompt", "reply")
_OF_CALLS = ("operation", "provider", "model", "role", "error")  # what a server says has no bounds
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4**power for power in range(14)]
_LONGEST_END, _LONGEST_END_OF_A_FAILED_ONE = 10.0, 1.0


class Span:
    """What is in progress and is traced, or not; `set` says more of it."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def set(self, **values: Any) -> None:
        """Say what is known by now: a text, a number, a truth, or the `usage` of a call; None is nothing."""
        self.values |= values


class _NotTraced(Span):
    __slots__ = ()

    def set(self, **_values: Any) -> None:
        return

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        return


_NOT_TRACED = _NotTraced({})


class Tracer:
    """Traces nothing."""

    def span(self, kind: Kind, name: str, **values: Any) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Trace what happens in the context, in the span that is in progress in this task or in one that began it."""
        return _NOT_TRACED

    def call_in_flight(self) -> AbstractContextManager[None]:
        """Count a model call as in flight while the context lasts."""
        return nullcontext()


UNTRACED = Tracer()


class _OpenTelemetry(Tracer):
    """Gives spans and metrics to the providers that the process has."""

    def __init__(self, content: bool) -> None:
        from opentelemetry import metrics, trace

        self._content = content
        self._trace = trace
        self._tracer = trace.get_tracer(_NAME)
        meter = metrics.get_meter(_NAME)
        histogram = partial(meter.create_histogram, explicit_bucket_boundaries_advisory=_SECONDS)
        self._pairs = meter.create_counter("annotator.pairs", "{pair}", "Pairs annotated, by outcome")
        self._cost = meter.create_counter("annotator.cost", "USD", "What model calls cost")
        self._in_flight = meter.create_up_down_counter("annotator.calls.in_flight", "{call}", "Model calls in flight")
        self._sandboxes = histogram("annotator.sandbox.duration", "s", "What was done in sandboxes")
        self._calls = histogram("gen_ai.client.operation.duration", "s", "Model calls, attempts and waits included")
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens paid for", explicit_bucket_boundaries_advisory=_TOKENS
        )

    @contextmanager
    def span(self, kind: Kind, name: str, **values: Any) -> Iterator[Span]:
        """Trace what happens in the context. Messages of errors may quote pairs: their types alone are told."""
        what = self._trace.SpanKind.CLIENT if kind == "model call" else self._trace.SpanKind.INTERNAL
        started, said = time.perf_counter(), Span(values)
        with self._tracer.start_as_current_span(
            _text(name), kind=what, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield said
            except BaseException as error:
                said.set(error=type(error).__name__, usage=error.usage if isinstance(error, ModelError) else None)
                raise
            finally:
                self._measured(kind, said.values, time.perf_counter() - started)
                span.set_attributes(self._attributes(said.values))
                if said.values.get("error") is not None:
                    span.set_status(self._trace.StatusCode.ERROR)

    @contextmanager
    def call_in_flight(self) -> Iterator[None]:
        """Count a model call as in flight while the context lasts."""
        self._in_flight.add(1)
        try:
            yield
        finally:
            self._in_flight.add(-1)

    def _attributes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        usage: Usage | None = values.get("usage")
        flat = {name: value for name, value in values.items() if name != "usage"}
        if usage is not None:
            flat |= usage.model_dump()
        if (address := flat.get("server")) is not None:
            flat["server"] = urlsplit(address).hostname
        for name in _CONTENT:
            if (found := flat.pop(name, None)) is not None and self._content:
                flat[name] = _messages(found)
        return _named(flat, flat)

    def _measured(self, kind: Kind, values: Mapping[str, Any], seconds: float) -> None:
        if kind == "pair" and "decided_by" in values:  # else the run stopped, or the pair comes again
            self._pairs.add(1, _named(values, ("variant", "label", "decided_by", "error")))
        elif kind == "sandbox":
            self._sandboxes.record(seconds, _named(values, ("backend", "status", "error")))
        elif kind == "model call" and not values.get("cached"):
            self._calls.record(values.get("seconds") or seconds, _named(values, _OF_CALLS))
            if (usage := values.get("usage")) is not None:
                about = _named(values, _OF_CALLS)
                self._tokens.record(usage.input_tokens, {**about, "gen_ai.token.type": "input"})
                self._tokens.record(usage.output_tokens, {**about, "gen_ai.token.type": "output"})
                self._cost.add(usage.cost_usd or 0.0, about)


def _named(values: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """Return these of the values as attributes, by their full names."""
    found = {name: values.get(name) for name in wanted}
    return {
        _NAMES.get(name, f"annotator.{name}"): _text(value) if isinstance(value, str) else value
        for name, value in found.items()
        if value is not None
    }


def _text(value: str) -> str:
    """Return a text that can be sent: an id or a model's name may hold half of a surrogate pair."""
    return value.encode("utf-8", "backslashreplace").decode()


def _messages(found: str | Iterable[Message]) -> str:
    """Return a prompt, or the text of a reply, in the form that the conventions have for messages."""
    messages = [Message("assistant", found)] if isinstance(found, str) else found
    parts = [(each.role, [{"type": "text", "content": _text(each.content)}]) for each in messages]
    return json.dumps([{"role": role, "parts": said} for role, said in parts], ensure_ascii=False)


def tracer_for(config: TracingConfig) -> Tracer:
    """Return what traces as the settings say; spans and metrics go to the providers that the process has.

    Raises:
        ExtraMissing: OpenTelemetry is not installed.
    """
    if not config.otel:
        return UNTRACED
    try:
        return _OpenTelemetry(config.content)
    except ImportError as error:
        raise ExtraMissing("otel", error) from error


@contextmanager
def exporting(config: TracingConfig, note: Callable[[str], None]) -> Iterator[None]:
    """Give this process providers that send by OTLP over HTTP, as OpenTelemetry's own variables say; for programs.

    A process that has a provider already keeps it. What goes wrong with sending is given to `note`, once, and has no
    other effect. At the end what is left is sent, for ten seconds at most.

    Raises:
        ExtraMissing: OpenTelemetry is not installed.
        ConfigError: one of the variables has a value that it cannot have.
    """
    if not config.otel:
        yield
        return
    log, failures = logging.getLogger("opentelemetry"), _FirstFailure(note)
    log.addHandler(failures)
    log.propagate = False
    try:
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

        providers = _providers() if isinstance(get_tracer_provider(), ProxyTracerProvider) else []
    except ImportError as error:
        raise ExtraMissing("otel", error) from error
    except ValueError as error:
        raise ConfigError(f"OpenTelemetry cannot be set up by its variables (OTEL_*): {error}") from error
    try:
        yield
    finally:
        ends = [Thread(target=each.shutdown, daemon=True) for each in providers]
        for end in ends:
            end.start()
        until = time.monotonic() + _LONGEST_END
        while any(end.is_alive() for end in ends) and time.monotonic() < until:
            if failures.happened:
                until = min(until, time.monotonic() + _LONGEST_END_OF_A_FAILED_ONE)
                failures.happened = False
            ends[-1].join(0.05)
        log.removeHandler(failures)


def _providers() -> list[Any]:
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": _NAME}).merge(OTELResourceDetector().detect())
    providers: list[Any] = []
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
        providers.append(tracers)
    if os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        providers.append(meters)
    return providers


class _FirstFailure(logging.Handler):
    """Tells of the first thing that OpenTelemetry warns of."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note: Callable[[str], None] | None = note
        self.happened = False

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of it."""
        self.happened = True
        note, self._note = self._note, None
        if note is not None:
            note(f"note: OpenTelemetry: {record.getMessage():.240} (the run goes on; this is said once)")
