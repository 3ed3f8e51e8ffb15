"""Functions of installed releases are tested in their modules in both sandboxes, and the tests can be replayed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from agent import Annotator, Pair, ScriptedLLM
from agent.evaluation.replay import ReplayResult
from agent.sandbox.dependencies.environments import DependencyPolicy
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.types import Origin, Status
from tests.evaluation.replays import open_run_replayer
from tests.runs.store.samples import read_evidence
from tests.sandbox.conftest import BACKENDS, start
from tests.sandbox.stores import replace_environments
from tests.sandbox.wheelhouse import make_sdist, make_wheel, use_folder
from tests.scripts import make_replies

CODE = '''def add(self, number):
    """Add a number, and round the sum."""
    return shorten(super().__repr__() and self.start + number)
'''
SOURCE = f"""from sums.rounding import shorten
class Adder:
    def __init__(self, start): self.start = start
{textwrap.indent(CODE, "    ")}"""
PROGRAM = """from sums.core import Adder


def test_sum():
    assert Adder(1).add(2.04) == 3.0
"""
ORIGIN = Origin(repository="Sums", commit="1.0", name="add", module="sums.core", class_name="Adder", lines=(4, 6))
FILES = {
    "sums/__init__.py": "",
    "sums/core.py": SOURCE,
    "sums/rounding.py": "def shorten(number):\n    return round(number, 1)\n",
    "sums/broken.py": SOURCE.replace("rounding", "nothing"),
}
PAIRS: dict[str, dict[str, str | None]] = {
    "inside": {},
    "other code": {"class_name": None},
    "broken": {"module": "sums.broken"},
    "no release": {"commit": "3.0"},
    "in conflict with the requirements": {"commit": "2.0"},
    "only a source distribution": {"repository": "six"},
    "refused by the index rule": {"repository": "others"},
}


@pytest.mark.parametrize("name", BACKENDS)
async def test_a_method_is_tested_in_its_module(
    name: str, tmp_path: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path, "sums", files=FILES)
    make_wheel(tmp_path, "sums", "2.0", files=FILES)
    make_wheel(tmp_path, "others", files=FILES)
    make_sdist(tmp_path, "six")
    use_folder(monkeypatch, tmp_path)
    pairs = [
        Pair(id=id, query="add numbers", code=CODE, origin=ORIGIN.model_copy(update=changes))
        for id, changes in PAIRS.items()
    ]
    model = ScriptedLLM(lambda call: make_replies(PROGRAM if call.pair_id == "inside" else f"# <candidate>\n{PROGRAM}",
                                                  repair=["```bash\n```"])[call.role][0])  # fmt: skip
    backend, config = await start(name), {"pipeline.context": "module"}
    policy = DependencyPolicy(rule=IndexRule(None), base_requirements=("sums!=2.0",))
    replace_environments(monkeypatch, backend, open_folder, policy)
    try:
        for present in (pairs[:1], pairs):  # the second run resumes the first
            async with Annotator(model=model, sandbox=backend, config=config, run_dir=tmp_path / "run") as annotator:
                results = {annotation.id: annotation async for annotation in annotator.annotate(present)}
        assert [call.role for call in model.calls if call.pair_id == "inside"] == [
            "screen",
            "generate_test",
            "arbitrate",
        ]
        async with open_run_replayer(tmp_path / "run", backend) as replayer:
            replayed = await replayer.replay("inside")
    finally:
        await backend.close()
    inside = results.pop("inside")
    assert inside.test is not None
    assert (inside.test.status, inside.stand_ins, inside.installed) == (Status.PASSED, (), ("sums==1.0",))
    assert [inside.module_context and inside.module_context.module] == ["sums.core"]
    assert isinstance(replayed, ReplayResult)
    assert (replayed.differences, replayed.report.status) == ((), Status.PASSED)
    assert read_evidence(tmp_path / "run", "inside").probes == {0}
    for annotation in results.values():
        assert annotation.module_context is not None
        assert (annotation.module_context.module, bool(annotation.module_context.reason)) == (None, True)
        assert annotation.test is not None
        assert annotation.test.status is not Status.PASSED
