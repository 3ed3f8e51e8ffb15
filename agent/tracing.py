"""OpenTelemetry spans and metrics, loaded only if enabled.

The names of attributes and metrics follow OpenTelemetry's conventions for generative AI. Names that these conventions
do not define begin with `annotator.`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from textwrap import shorten
from threading import Thread
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.config import TracingConfig
from agent.errors import ConfigError, ModelError, needs_extra
from agent.types import Message

_NAME = "test-driven-annotator"
_SCHEMA = "https://opentelemetry.io/schemas/1.41.1"
"""The last version of the conventions that defines all names below; later ones define them elsewhere."""
_PORTS = {"http": 80, "https": 443}
_NAMES = {
    "pair": "annotator.pair.id",
    "error": "error.type",
    "server": "server.address",
    "port": "server.port",
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
# These attributes contain no text from servers, because such text may have any length.
_CALL_ATTRIBUTES = ("operation", "provider", "model", "role", "error")
_BUCKETS = [0.01 * 2**power for power in range(14)]  # seconds, from OpenTelemetry's conventions
_SHUTDOWN_TIMEOUT = 3.0

Kind = Literal["pair", "node", "model call", "sandbox"]
Record = Callable[..., None]
"""A function that adds values to the current span: strings, numbers, or the `usage` of a call.

None values are omitted.
"""


class Tracer:
    """A tracer that records nothing."""

    def span(self, kind: Kind, name: str, **values: Any) -> AbstractContextManager[Record]:  # noqa: ARG002
        """Return a context manager that traces its body as a child of the current span."""
        return _UNTRACED


_UNTRACED = nullcontext(lambda **_values: None)
UNTRACED = Tracer()


class _OpenTelemetry(Tracer):
    """Sends spans and metrics to the process's global OpenTelemetry providers."""

    def __init__(self, content: bool) -> None:
        from opentelemetry import metrics, trace

        self._content, self._trace, self._tracer = content, trace, trace.get_tracer(_NAME, schema_url=_SCHEMA)
        meter, buckets = metrics.get_meter(_NAME, schema_url=_SCHEMA), {"explicit_bucket_boundaries_advisory": _BUCKETS}
        self._pairs = meter.create_counter("annotator.pairs", "{pair}", "annotated pairs by outcome")
        self._cost = meter.create_counter("annotator.cost", "USD", "cost of model calls")
        self._calls = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "duration of model calls", **buckets
        )
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "tokens used")
        self._sandboxes = meter.create_histogram(
            "annotator.sandbox.duration", "s", "duration of work in sandboxes", **buckets
        )

    @contextmanager
    def span(self, kind: Kind, name: str, **values: Any) -> Iterator[Record]:
        """Trace the body of the context manager.

        Only the type of an error is recorded, because the error message may quote a pair.
        """
        started, kinds = time.perf_counter(), self._trace.SpanKind
        span_kind = kinds.CLIENT if kind == "model call" else kinds.INTERNAL
        silent: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span(_escape_surrogates(name), kind=span_kind, **silent) as span:
            try:
                yield values.update
            except BaseException as error:
                values |= {
                    "error": type(error).__name__,
                    "usage": error.usage if isinstance(error, ModelError) else None,
                }
                raise
            finally:
                self._record_metrics(kind, values, time.perf_counter() - started)
                span.set_attributes(self._build_attributes(values))
                if values.get("error") is not None:
                    span.set_status(self._trace.StatusCode.ERROR)

    def _build_attributes(self, values: dict[str, Any]) -> dict[str, Any]:
        if (usage := values.pop("usage", None)) is not None:
            values |= usage.model_dump()
        with suppress(ValueError):  # the address of a user's model may be malformed
            url = urlsplit(values.pop("server", None) or "")
            values |= {"server": url.hostname, "port": url.port or _PORTS.get(url.scheme)}
        for name in _CONTENT:
            content = values.pop(name, None)
            values[name] = _encode_messages(content) if content is not None and self._content else None
        return _select_attributes(values, values)

    def _record_metrics(self, kind: str, values: Mapping[str, Any], seconds: float) -> None:
        if kind == "pair" and "decided_by" in values:  # otherwise the run stopped or the pair will be annotated again
            self._pairs.add(1, _select_attributes(values, ("variant", "label", "decided_by", "error")))
        elif kind == "sandbox":
            self._sandboxes.record(seconds, _select_attributes(values, ("backend", "status", "error")))
        elif kind == "model call" and not values.get("cached"):
            attributes = _select_attributes(values, _CALL_ATTRIBUTES)
            self._calls.record(values.get("seconds") or seconds, attributes)
            if (usage := values.get("usage")) is not None:
                self._tokens.record(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
                self._tokens.record(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})
                self._cost.add(usage.cost_usd or 0.0, attributes)


def _select_attributes(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values with the given names as attributes under their full names. None values are omitted."""
    return {
        _NAMES.get(name, f"annotator.{name}"): _escape_surrogates(value) if isinstance(value, str) else value
        for name in names
        if (value := values.get(name)) is not None
    }


def _escape_surrogates(value: str) -> str:
    """Escape lone surrogates, which ids and model names may contain but exporters cannot encode."""
    return value.encode("utf-8", "backslashreplace").decode()


def _encode_messages(content: str | Iterable[Message]) -> str:
    """Encode a prompt or a reply in the message format of OpenTelemetry's conventions for generative AI."""
    messages = [Message("assistant", content)] if isinstance(content, str) else content
    parts = [
        {"role": message.role, "parts": [{"type": "text", "content": _escape_surrogates(message.content)}]}
        for message in messages
    ]
    return json.dumps(parts, ensure_ascii=False)


def create_tracer(config: TracingConfig) -> Tracer:
    """Create a tracer from the settings. Spans and metrics use the process's global OpenTelemetry providers.

    Raises:
        ExtraMissing: OpenTelemetry is not installed.
    """
    with needs_extra("otel"):
        return _OpenTelemetry(config.content) if config.otel else UNTRACED


@contextmanager
def export_traces(config: TracingConfig, note: Callable[[str], None]) -> Iterator[None]:
    """Export spans and metrics over OTLP/HTTP to the endpoint set by OpenTelemetry's environment variables.

    Failures do not affect the run. Only the first failure is passed to `note`. On exit, this function waits at most
    three seconds until pending data has been sent. If environment variables enable LangSmith, LangChain sends traces to
    LangSmith. These traces omit prompts and replies unless `config.content` or LangSmith's own variables include them.

    Raises:
        ExtraMissing: OpenTelemetry is not installed.
        ConfigError: an OpenTelemetry variable has an invalid value.
    """
    threads = _start_langsmith(config.content, note)
    try:
        with needs_extra("otel"):
            threads += _start_opentelemetry(note) if config.otel else []
    except ValueError as error:
        raise ConfigError(f"cannot configure OpenTelemetry from the OTEL_* variables: {error}") from error
    try:
        yield
    finally:
        until = time.monotonic() + _SHUTDOWN_TIMEOUT
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                logging.getLogger(thread.name).warning(
                    "pending data could not be sent within %g s and was lost", _SHUTDOWN_TIMEOUT
                )


def _start_opentelemetry(note: Callable[[str], None]) -> list[Thread]:
    """Set the global OpenTelemetry providers of the process. Return unstarted threads that shut the providers down."""
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _FirstFailure("opentelemetry", note)
    resource = Resource.create({"service.name": _NAME}).merge(OTELResourceDetector().detect())
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    return [Thread(target=part.shutdown, name="opentelemetry", daemon=True) for part in (tracers, meters)]


def _start_langsmith(content: bool, note: Callable[[str], None]) -> list[Thread]:
    """If LangSmith is enabled, hide prompts and replies from it unless `content` is set.

    Return unstarted threads that flush LangSmith's pending data.
    """
    from langsmith.run_trees import get_cached_client
    from langsmith.utils import tracing_is_enabled

    if not tracing_is_enabled():
        return []
    _FirstFailure("langsmith", note)
    os.environ["LANGSMITH_USE_DAEMON"] = "true"  # otherwise an unreachable server delays exit by minutes
    brands, names = ("LANGSMITH", "LANGCHAIN"), () if content else ("HIDE_INPUTS", "HIDE_OUTPUTS")
    hidden = [name for name in names if not any(f"{brand}_{name}" in os.environ for brand in brands)]
    if hidden:
        os.environ.update({f"LANGSMITH_{name}": "true" for name in hidden})
        note("note: LangSmith receives traces without prompts or replies (to include them: -c tracing.content=true)")
    return [Thread(target=lambda: get_cached_client().flush(), name="langsmith", daemon=True)]


class _FirstFailure(logging.Handler):
    """Reports a library's first warning, and keeps all its warnings off standard error."""

    def __init__(self, library: str, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note, self._count = note, count()
        log = logging.getLogger(library)
        log.addHandler(self)
        log.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Report the record if it is the library's first warning."""
        if next(self._count) == 0:
            library = record.name.partition(".")[0]
            message = shorten(record.getMessage(), 240, placeholder=" …")
            self._note(f"note: {library}: {message} (reported once; the run continues)")
