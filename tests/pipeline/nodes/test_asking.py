"""Prompts receive the pair and no other input, and equal runs produce equal evidence."""

from __future__ import annotations

from agent.config import PipelineConfig
from agent.languages.python.language import PythonLanguage
from agent.llm.gateway import Gateway
from agent.pipeline.asker import Asker
from agent.pipeline.history import Recorder
from agent.pipeline.nodes.asking import collect_execution_variables, collect_pair_variables
from agent.pipeline.prompts import Prompts
from agent.pipeline.state import State, Tools
from agent.sandbox.base import RunResult
from agent.types import CaseOutcome, CaseResult, Pair, Status, TestReport
from tests.scripts import PAIR


def make_tools() -> Tools:
    gateway, recorder = Gateway(models=None), Recorder(PAIR)  # type: ignore[arg-type]
    asker, config = Asker(gateway, Prompts(), recorder, pair_id="1"), PipelineConfig(criterion="half")
    return Tools(asker, recorder, PythonLanguage(), config)


def make_evidence(address: str, seconds: str) -> State:
    message = f"AssertionError: <Thing object at {address}> in {seconds}s"
    case = CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message=message)
    report = TestReport(status=Status.FAILED, cases=(case,))
    return {"report": report, "result": RunResult(stdout=f"{message}\n")}


def test_prompts_receive_only_query_code_language_and_context() -> None:
    pair = Pair(id="secret", query="q", code="c", context="ctx", meta={"label": 1, "votes": [1]})
    variables = collect_pair_variables({"pair": pair}, make_tools())
    assert variables == {
        "query": "q", "code": "c", "language": "python", "fence": "python", "context": "ctx", "criterion": "half",
    }  # fmt: skip


def test_equal_runs_have_equal_evidence() -> None:
    first, second = make_evidence("0x7f3a5c0d1e80", "0.31"), make_evidence("0x7fffdeadbeef", "1.07")
    assert collect_execution_variables(first) == collect_execution_variables(second)
