"""Creates runs whose programs can be replayed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agent import Annotation, Annotator, Pair, ScriptedLLM
from agent.config import Config, PipelineConfig
from agent.evaluation.recorded import RecordedSandbox
from agent.evaluation.replay import Replayer
from agent.llm.base import Call
from agent.pipeline.history import History, HistoryItem
from agent.runs.store.run_folder import RunFolder
from agent.runs.store.run_view import load_run
from agent.sandbox.base import SandboxBackend
from tests.scripts import commands, program

ADD = "def add(a, b):\n    return a + b\n"
PASSES = "# <candidate>\n\n\ndef test_small():\n    assert add(1, 2) == 3\n"
FAILS = "# <candidate>\n\n\ndef test_small():\n    assert add(1, 2) == 4\n"
ENDLESS = "# <candidate>\n\n\ndef test_ends():\n    while add(1, 2):\n        pass\n"
CHANCES = 40
CHANCE = "import random\n# <candidate>\n" + "".join(
    f"\n\ndef test_{number}():\n    assert random.random() < 0.5\n" for number in range(CHANCES)
)


def program_importing(module: str) -> str:
    """Return a program that passes only with version 1.0 of a module."""
    return f"import {module}\n# <candidate>\n\n\ndef test_version():\n    assert {module}.VERSION == '1.0'\n"


def program_reading(path: str) -> str:
    """Return a program that passes while a file is unchanged."""
    return f"# <candidate>\n\n\ndef test_file():\n    assert open({path!r}).read() == 'as it was'\n"


async def make_run(
    folder: Path,
    backend: SandboxBackend,
    programs: Mapping[str, str],
    *,
    repair: Sequence[str] = (),
    timeout: float = 15.0,
) -> dict[str, Annotation]:
    """Execute each pair's program in a run. `repair` holds the repair commands for broken programs."""

    def replies(call: Call) -> str:
        return commands(*repair) if call.role == "repair" else program(programs[call.pair_id])

    pairs = [Pair(id=name, query="add two numbers", code=ADD) for name in programs]
    config = Config(variant="rule_arbiter", pipeline=PipelineConfig(test_timeout=timeout))
    async with Annotator(
        model=ScriptedLLM(replies), sandbox=backend, without=("screen",), run_dir=folder, config=config
    ) as annotator:
        return {annotation.id: annotation async for annotation in annotator.annotate(pairs)}


@asynccontextmanager
async def open_run_replayer(folder: Path, backend: SandboxBackend) -> AsyncIterator[Replayer]:
    """Yield a replayer of a run on this backend. The run may have used a scripted backend."""
    with load_run(folder) as view:
        (segment,) = view.manifest["segments"][:1]
        environment = segment["environment"]
        if environment["sandbox"]["backend"] == "scripted":
            environment["sandbox"]["backend"] = "bwrap"
        yield Replayer(view, backend, RecordedSandbox.of(view.manifest, 1))


def rewrite(folder: Path, pair_id: str, **changes: object) -> None:
    """Rewrite the evidence of a pair."""
    with load_run(folder) as view:
        evidence, annotation = view.evidence(pair_id), view.annotation(pair_id)
        identity = dict(view.manifest["identity"])
        pairs = list(view.pairs())
    assert evidence is not None
    assert annotation is not None
    identity.pop("input_sha256")
    with RunFolder(folder, identity=identity, pairs=pairs, environment={}) as run:
        run.commit(annotation, History.model_validate({**dict(evidence), **changes}))


def change_events(history: History, kind: type[HistoryItem], **fields: object) -> tuple[HistoryItem, ...]:
    """Return the events of a history, with fields changed in events of one type."""
    return tuple(event.model_copy(update=fields) if isinstance(event, kind) else event for event in history.events)
