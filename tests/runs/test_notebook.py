"""Annotations convert to pandas and display in notebooks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import Annotation, Annotations, Annotator, ScriptedLLM, ScriptedSandbox, annotate, load_run
from agent.errors import ExtraMissing
from agent.types import CaseOutcome, CaseResult, ErrorInfo, Status, TestReport, Usage
from tests.scripts import PAIR, label
from tests.test_annotator import collect

TEST = TestReport(
    status=Status.FAILED, cases=(CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message="1 < 2 & <b>"),)
)
LABELLED = Annotation(
    id="a", input_sha256="0", label=0, decided_by="arbitrate", reason="no", test=TEST, usage=Usage(cost_usd=0.5)
)
FAILED = Annotation(id="b", input_sha256="0", error=ErrorInfo(type="ModelTimeout", message="late"))


def test_a_table_has_one_row_per_annotation_and_flat_columns() -> None:
    frame = Annotations([LABELLED, FAILED]).to_pandas()
    assert frame["label"].tolist() == [0, pandas.NA]
    assert frame["test_status"][0] == "failed"
    assert (frame["cost_usd"][0], frame["cases_failed"][0]) == (0.5, 1)
    assert frame["error"][1] == "ModelTimeout"
    assert not any(isinstance(value, list | dict | tuple) for column in frame for value in frame[column])


def test_an_empty_table_has_the_same_columns() -> None:
    assert list(Annotations().to_pandas()) == list(Annotations([LABELLED]).to_pandas())


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ExtraMissing, match=r"pandas .*\[io\]"):
        Annotations([LABELLED]).to_pandas()


def test_an_annotation_shows_label_reason_cases_and_error() -> None:
    html = LABELLED._repr_html_()
    for part in ("<td>0</td>", "arbitrate", "test_a", "failed 1 &lt; 2 &amp; &lt;b&gt;"):
        assert part in html
    assert "ModelTimeout: late" in FAILED._repr_html_()


def test_a_case_may_have_the_name_of_a_field() -> None:
    case = CaseResult(name="label", outcome=CaseOutcome.PASSED)
    test = TestReport(status=Status.PASSED, cases=(case, case))
    html = LABELLED.model_copy(update={"test": test})._repr_html_()
    assert html.count("<td>passed</td>") >= 2
    assert "<th>label</th><td>0</td>" in html


@given(st.text())
def test_no_text_becomes_markup_or_reorders_its_surroundings(text: str) -> None:
    hostile = LABELLED.model_copy(update={"id": text, "reason": text + "<script>\u202e", "installed": (text,)})
    for html in (hostile._repr_html_(), Annotations([hostile])._repr_html_()):
        assert "<" not in re.sub(r"</?(table|thead|tbody|tr|th|td|p)>", "", html)
        assert "\u202e" not in html
        assert html.encode()


def test_a_list_shows_its_first_annotations() -> None:
    html = Annotations([LABELLED] * 30)._repr_html_()
    assert html.startswith("<p>30 annotations</p>")
    assert html.count("<tr>") == 21


async def test_a_run_displays_its_properties_and_first_annotations(tmp_path: Path) -> None:
    model = ScriptedLLM(lambda _: label(1, "<i>yes</i>"))
    await collect(Annotator(model=model, variant="single_llm", run_dir=tmp_path / "run"), [PAIR])
    with load_run(tmp_path / "run") as run:
        html = run._repr_html_()
        assert run.to_pandas()["id"].tolist() == [PAIR.id]
        assert all(part in repr(run) for part in (str(tmp_path / "run"), "single_llm", "scripted"))
    for part in ("single_llm", "scripted", "&lt;i&gt;yes&lt;/i&gt;", "<th>annotations</th><td>1</td>"):
        assert part in html


def test_annotate_returns_annotations() -> None:
    annotations = annotate([PAIR], model=ScriptedLLM([label(1)]), variant="single_llm", sandbox=ScriptedSandbox())
    assert annotations.to_pandas()["label"].tolist() == [1]
