"""The toolchain of a language is checked before any model call, and its version is recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent import Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.corpus.fill import Gap, fill
from agent.errors import SandboxUnavailable
from agent.evaluation.ablation import choose_variants
from agent.evaluation.recorded import RecordedSandbox
from agent.languages.python.language import PythonLanguage
from agent.runs.store.manifest import read_manifest
from agent.sandbox.base import CommandResult, Toolchain
from agent.sandbox.toolchains import Toolchains
from tests.scripts import PAIR, label, make_replies, pass_all, screen


class Tooled(PythonLanguage):
    """A language with a toolchain."""

    name = "tooled"
    toolchain = Toolchain("tool", "agent_test_tool", (2,), "pip install tool")


class ToolSandbox(ScriptedSandbox):
    """A backend whose sandboxes have a version of the toolchain."""

    def __init__(self, version: str) -> None:
        super().__init__(pass_all, commands=[CommandResult(0, f"v{version}")])
        self.toolchains = Toolchains(self.acquire, lambda: None)

    async def require_toolchain(self, toolchain: Toolchain) -> str:
        return await self.toolchains.require(toolchain)

    def describe(self) -> Mapping[str, str]:
        return {"backend": "bwrap", **self.toolchains.versions}


PAIRS = [PAIR, PAIR.model_copy(update={"id": "tooled", "language": "tooled"})]


def make(backend: ScriptedSandbox, model: ScriptedLLM, **options: Any) -> Annotator:
    return Annotator(model=model, sandbox=backend, languages=[Tooled()], **options)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("unsupported", ["fail", "judge", "skip"])
async def test_no_program_is_written_without_its_toolchain(unsupported: str, is_stream: bool) -> None:
    async def stream() -> AsyncIterator[Pair]:
        yield PAIRS[1]

    model = ScriptedLLM(lambda call: label(0) if call.role == "judge" else screen())
    async with make(ToolSandbox("1.9"), model, unsupported=unsupported) as annotator:
        annotations = annotator.annotate(stream() if is_stream else PAIRS[1:])
        if unsupported == "fail":
            with pytest.raises(SandboxUnavailable, match="pip install tool"):
                await anext(annotations)
        else:
            annotation = await anext(annotations)
            assert ("pip install tool" in annotation.reason) == (unsupported == "skip")
    assert [call.role for call in model.calls] == (["judge"] if unsupported == "judge" else [])


async def test_the_version_is_recorded_and_compared_by_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedLLM(lambda call: make_replies()[call.role][0])
    async with make(ToolSandbox("2.1"), model, run_dir=tmp_path / "run") as annotator:
        labels = [annotation.label async for annotation in annotator.annotate(PAIRS)]
    assert labels == [1, 1]
    recorded = RecordedSandbox.of(read_manifest(tmp_path / "run" / "manifest.json"), 1)
    assert recorded.described["tool"] == "2.1"
    monkeypatch.setattr("agent.evaluation.recorded.Languages", lambda: {"tooled": Tooled()})
    backend = ToolSandbox("1.9")
    await recorded.require_toolchains(backend)
    assert [note for note in recorded.list_notes(recorded.config, backend) if note.startswith("tool:")] == [
        "tool: recorded '2.1', now '1.9'"
    ]


async def test_an_old_toolchain_stops_filling_before_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.corpus.fill.Languages", lambda: {"tooled": Tooled()})
    query = PAIRS[1].model_copy(update={"code": ""})
    (variant,) = choose_variants(["no_screen"])
    model, backend, runs = ScriptedLLM([]), ToolSandbox("1.9"), (tmp_path / "written", tmp_path / "tested")
    with pytest.raises(SandboxUnavailable):
        await fill([Gap(query, query)], runs, variant, 1, model=model, sandbox=backend, languages=[Tooled()])
    assert model.calls == []
