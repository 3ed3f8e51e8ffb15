"""Runs to review, and servers started by `agent review`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.pipeline.history import Execution, History, ModelCall
from agent.runs.store.run_folder import RunFolder
from agent.types import Annotation, CaseOutcome, CaseResult, Cause, Pair, Status
from agent.types import TestReport as Report
from tests.cli.commands import Commands, Running
from tests.cli.processes import wait_until
from tests.views.runs import make_program

SECRET = "canary-of-the-evidence"
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


def make_report(passes: int, failures: int) -> Report:
    cases = [CaseResult(name=f"test_right_{n}", outcome=CaseOutcome.PASSED) for n in range(passes)]
    cases += [
        CaseResult(name=f"test_wrong_{n}", outcome=CaseOutcome.FAILED, message=f"{SECRET} 1 != 2", cause=Cause.SNIPPET)
        for n in range(failures)
    ]
    return Report(
        status=Status.FAILED if failures else Status.PASSED,
        cause=Cause.SNIPPET if failures else None,
        cases=tuple(cases),
    )


def make_annotation(pair: Pair, **fields: Any) -> Annotation:
    """Return an annotation with a canary in every text."""
    texts = {"label": 1, "decided_by": "arbitrate", "reason": f"{SECRET} it does so", "reading": SECRET, **fields}
    return Annotation(id=pair.id, input_sha256=pair.input_sha256(), meta=pair.meta, **texts)


def make_history(pair: Pair, annotation: Annotation) -> History:
    """Return a history with an executed program and a reply."""
    source = f"# {SECRET}\ndef test_right_0():\n    assert f(1) == 1\n"
    message = {"role": "user", "content": SECRET}
    model_call = ModelCall(
        role="arbitrate", key="k", messages=(message,), reply=f'{{"reason": "{SECRET}", "label": 1}}'
    )
    execution = Execution(program=0, report=annotation.test or make_report(1, 0))
    return History(pair=pair, events=(make_program(source), execution, model_call))


def make_run(path: Path, annotations: Mapping[str, Mapping[str, Any]], **pair_fields: Any) -> Path:
    """Make a finished run. `annotations` maps ids to fields, or to `rounds` with the fields of several rounds."""
    code = "def reverse(items):\n    return items[::-1]\n"
    pairs = {
        name: Pair(id=name, **{"query": f"query of {name}", "code": code, "meta": {"gold": SECRET}, **pair_fields})
        for name in annotations
    }
    folder = RunFolder(path, identity={"pipeline": {"criterion": "exact"}}, pairs=list(pairs.values()), environment={})
    with folder:
        for name, fields in annotations.items():
            for number, changes in enumerate(fields.get("rounds", [fields])):
                annotation = make_annotation(pairs[name], round=number, **changes)
                folder.commit(annotation, make_history(pairs[name], annotation))
    return path


class RunningReview:
    """A running `agent review`. `output` is its JSON output."""

    def __init__(self, process: Running, output: Mapping[str, Any]) -> None:
        self.process = process
        self.output = output
        address = urlsplit(output["url"])
        assert address.hostname == "127.0.0.1"
        assert address.port is not None
        self.port = address.port
        self.token = address.query.removeprefix("token=")
        self.host = f"127.0.0.1:{self.port}"
        self._page: str | None = None

    @property
    def page(self) -> str:
        """The path of the page without the trailing `/`."""
        if self._page is None:
            status, headers, _ = self.request("GET", f"/?token={self.token}", Cookie="", page="")
            assert status == 303
            self._page = urlsplit(headers["location"]).path.rstrip("/")
        return self._page

    def request(
        self, method: str, path: str, body: object = None, *, page: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request. `headers` replace the defaults. `_` in a name becomes `-`. An empty value removes the header.

        `path` is relative to `page`, by default the path of the page.
        """
        all_headers = {
            "Host": self.host,
            "Cookie": f"agent-review={self.token}",
            "Origin": f"http://{self.host}",
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        connection.putrequest(
            method, (self.page if page is None else page) + path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in all_headers.items():
            if value:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body

    def json(self, path: str, body: object = None) -> Any:
        """Send a request as the page does and return the JSON document of the response."""
        status, _, content = self.request("GET" if body is None else "POST", path, body)
        assert status == 200, content
        return json.loads(content)

    def stop(self, signal_number: signal.Signals = signal.SIGINT) -> str:
        """Stop the server with a signal and return its standard error."""
        return self.process.stop(signal_number, 20).err


def serve_review(run: Path, *options: str, reviewer: str = "ann") -> AbstractContextManager[RunningReview]:
    """Serve the review page of a run."""
    return serve_page(run.parent, "review", run, "--reviewer", reviewer, *options)


@contextmanager
def serve_page(folder: Path, *words: str | Path) -> Iterator[RunningReview]:
    """Run a command that serves a page."""
    agent = Commands(folder)
    process = agent.start(*words, "--json")
    try:
        wait_until(lambda: process.out.read_bytes().endswith(b"\n") or process.has_ended(), "an address")
        assert not process.has_ended(), process.wait().err
        yield RunningReview(process, json.loads(process.out.read_text()))
    finally:
        agent.kill()
