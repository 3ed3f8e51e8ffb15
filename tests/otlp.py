"""A local OTLP/HTTP receiver that stores the spans and metrics it receives.

with Collector() as collector:
    ...  # OTEL_EXPORTER_OTLP_ENDPOINT=collector.url
collector.list_spans()
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response


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
        self._status = status
        self._server = HTTPServer(threaded=True)
        self._server.expect_request(re.compile("")).respond_with_handler(self._respond)

    def _respond(self, request: Request) -> Response:
        body = request.get_data()
        packed = request.headers.get("Content-Encoding") == "gzip"
        self.bodies.append((request.path, gzip.decompress(body) if packed else body))
        return Response(status=self._status)

    def __enter__(self) -> Self:
        self._server.start()
        self.url = self._server.url_for("")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

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
