"""Marks name the facts that the bars of a report count. Their number is limited."""

from __future__ import annotations

from pathlib import Path

from agent.evaluation.tally import Observation
from agent.runs.store.run_view import load_run
from agent.types import Annotation, ModuleContext
from agent.views import archive
from agent.views.marks import iterate_marks
from agent.views.report import Report
from tests.views.reading import ReportPage
from tests.views.runs import make_pairs, make_run


def test_marks_describe_the_events_of_a_pair(tmp_path: Path) -> None:
    with load_run(make_run(tmp_path / "run", make_pairs(1))) as view:
        annotation, history = view.annotation("p0"), view.evidence("p0")
    assert annotation is not None
    assert set(iterate_marks(Observation(annotation, history, gold=1))) >= {
        "program: written", "program: ran", "program: ran after repairs", "node: screen", "role: arbitrate",
        "packages installed: installed", "stand-in: FakeClient",
        "with gold, decided by: arbitrate", "with gold, stand-ins: stand-ins",
    }  # fmt: skip
    alone = annotation.model_copy(update={"module_context": ModuleContext(reason="no wheel: x")})
    assert "module: alone: no wheel" in iterate_marks(Observation(alone))
    assert set(iterate_marks(Observation(annotation))) & {"node: screen", "with gold, decided by: arbitrate"} == set()


def test_long_or_excess_names_get_no_mark(tmp_path: Path) -> None:
    name = "n" * 200
    assert list(iterate_marks(Observation(Annotation(id="1", input_sha256="", decided_by=name), gold=1))) == [
        "with gold, test: no test", "with gold, stand-ins: no test"
    ]  # fmt: skip
    run = make_run(tmp_path / "run", make_pairs(3), stand_ins=tuple(f"S{number}" for number in range(600)))
    with load_run(run) as view:
        Report(view).write(tmp_path / "r.html")
    read = ReportPage(tmp_path / "r.html")
    assert len(read.document["marks"]) == archive.MAX_MARKS
    assert all(len(row["marks"]) <= archive.MAX_MARKS for row in read.rows)
