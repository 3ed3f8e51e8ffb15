"""A local OTLP/HTTP receiver that stores the spans and metrics it receives.

with Collector() as collector:
    ...  # OTEL_EXPORTER_OTLP_ENDPOINT=collector.url
collector.list_spans()
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span. `parent` is the name of its parent, empty for a root span."""

    name: str
    parent: str
    trace: bytes
    failed: bool
    attributes: dict[str, Any] = field(compare=False)


@dataclass(frozen=True)
class Point:
    """A data point of a metric. For a histogram, the sum and the number of its values."""

    attributes: dict[str, Any]
    sum: float
    count: int = 1


class Collector:
    """Responds with `status` and stores the paths and bodies of requests."""

    def __init__(self, status: int = 200) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                collector.bodies.append((self.path, gzip.decompress(body) if packed else body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def received(self) -> bytes:
        """All bodies, concatenated."""
        return b"".join(body for _, body in self.bodies)

    def get_resource(self) -> dict[str, Any]:
        """Return the attributes of the resource that the spans belong to."""
        return _attributes(self._traces()[0].resource_spans[0].resource.attributes)

    def get_schemas(self) -> set[str]:
        """Return the schema URLs of the spans and metrics."""
        metrics = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        resources = [resource for request in self._traces() for resource in request.resource_spans]
        scopes: list[Any] = [scope for resource in resources for scope in resource.scope_spans]
        scopes += [scope for request in metrics for part in request.resource_metrics for scope in part.scope_metrics]
        return {scope.schema_url for scope in scopes}

    def list_spans(self) -> list[ReceivedSpan]:
        """Return all spans in the order of their start times."""
        received_spans = [
            span
            for request in self._traces()
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        names = {span.span_id: span.name for span in received_spans}
        return [
            ReceivedSpan(
                span.name,
                names.get(span.parent_span_id, "?") if span.parent_span_id else "",
                span.trace_id,
                span.status.code == 2,
                _attributes(span.attributes),
            )
            for span in sorted(received_spans, key=lambda span: span.start_time_unix_nano)
        ]

    def collect_metrics(self) -> dict[str, list[Point]]:
        """Return the data points of each metric in its latest export."""
        latest: dict[str, list[Point]] = {}
        for body in (body for path, body in self.bodies if path == "/v1/metrics"):
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    if metric.HasField("histogram"):
                        points = [
                            Point(_attributes(point.attributes), point.sum, point.count)
                            for point in metric.histogram.data_points
                        ]
                    else:
                        points = [
                            Point(_attributes(point.attributes), point.as_int or point.as_double)
                            for point in metric.sum.data_points
                        ]
                    latest[metric.name] = points
        return latest

    def _traces(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)
