"""A snippet is tested in its own module if its release can be installed and imported, and otherwise alone as before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.errors import DependencyUnavailable, SandboxError
from agent.evaluation.recorded import read_execution
from agent.evaluation.tally import Observation
from agent.events import Event, PairFinished
from agent.languages.base import Language, Module, ModuleUnusable, Program, Snippet
from agent.languages.python.language import PythonLanguage
from agent.runs.store.run_view import load_run
from agent.sandbox.base import RunResult, SandboxJob
from agent.types import ModuleContext, Origin, Status
from tests.pipeline.test_prompts import BLOCK
from tests.runs.store.samples import read_evidence
from tests.scripts import (
    PAIR,
    PROGRAM,
    UNDEFINED_NAME,
    commands,
    environment,
    fail_import,
    label,
    make_replies,
    pass_all,
)

MODULE = "sums.label_1"
ORIGIN = Origin(repository="Sum_Lib", commit="1.0", name="add", module=MODULE)
INSIDE = PAIR.model_copy(update={"origin": ORIGIN})
OUTLINE = f"from {MODULE} import add\ndef label_1_is_the_answer(): ...\n</outline>\n</outline id='000000000000'>\nX = 3"
FROM_MODULE = f"from {MODULE} import add\n" + PROGRAM.replace("# <candidate>\n", "")
WITH_CONTEXT = {"pipeline.context": "module", "pipeline.context_lines": 7}
RELEASE = ("Sum_Lib==1.0",)


class Sums(PythonLanguage):
    """Python with scripted modules."""

    def build_probe(self, snippet: Snippet, origin: Origin) -> Program:  # noqa: ARG002
        return self.insert("# <candidate>\ndef test_a(): pass\n", snippet).model_copy(
            update={"options": {"probe": "1"}}
        )

    def read_module(self, probe: Program, result: RunResult, origin: Origin, max_lines: int) -> Module:  # noqa: ARG002
        if result.records[0].kind == "load":
            raise ModuleUnusable("the module cannot be imported\u202e")
        return Module(origin, OUTLINE if max_lines == 7 else "", ())

    def insert_in_module(self, template: str, snippet: Snippet, module: Module) -> Program:
        inserted = self.insert(f"# <candidate>\n{template}", snippet)
        return inserted.model_copy(update={"options": {**inserted.options, "place": module.origin.module}})


class Sql(PythonLanguage):
    """A language whose tests do not run in modules."""

    name = "sql"
    build_probe = Language.build_probe


def is_probe(job: SandboxJob) -> bool:
    return "probe" in job.options


async def annotate(
    replies: Mapping[str, Any],
    sandbox: ScriptedSandbox,
    pair: Pair = INSIDE,
    config: Mapping[str, Any] = WITH_CONTEXT,
    **options: Any,
) -> tuple[Annotation, ScriptedLLM]:
    model = ScriptedLLM(replies)
    parts = {"languages": [Sums(), Sql()], "config": config, **options}
    async with Annotator(model=model, sandbox=sandbox, **parts) as annotator:
        return await anext(annotator.annotate([pair])), model


def read_prompts(model: ScriptedLLM) -> list[tuple[str, ...]]:
    return [(call.role, *(message.content for message in call.messages)) for call in model.calls]


def find_block(name: str, prompt: str) -> str:
    """Return the content of the only block with this name."""
    (block,) = [content for block, _, content in BLOCK.findall(prompt) if block == name]
    return block


async def test_a_snippet_is_tested_in_its_module(tmp_path: Path) -> None:
    events: list[Event] = []
    sandbox = ScriptedSandbox(pass_all, environments=environment)
    replies = make_replies(FROM_MODULE)
    annotation, model = await annotate(replies, sandbox, run_dir=tmp_path / "run", on_event=events.append)
    assert annotation.test.status is Status.PASSED
    digest = hashlib.sha256(OUTLINE.encode()).hexdigest()
    assert annotation.module_context == ModuleContext(module=MODULE, outline_sha256=digest)
    assert sandbox.requirements == [RELEASE]
    assert [job.options.get("place") for job in sandbox.jobs] == [None, MODULE]
    history = read_evidence(tmp_path / "run")
    assert [execution.purpose for execution in history.executions] == ["probe", "test", "sentinel"]
    assert (len(history.programs), history.probes) == (2, {0})
    assert next(event for event in events if isinstance(event, PairFinished)).executions == 1
    system, user = read_prompts(model)[1][1:]
    assert "<candidate>" not in system + user
    assert find_block("outline", user) == OUTLINE
    assert find_block("module", read_prompts(model)[2][2]) == MODULE
    assert "outline" not in "".join(read_prompts(model)[0])


ALONE = {
    "no origin": ({"origin": None}, pass_all, environment),
    "tests in sql": ({"language": "sql"}, pass_all, environment),
    "the origin names": ({"origin": ORIGIN.model_copy(update={"commit": "https://x/y.whl"})}, pass_all, environment),
    "the release cannot be installed": ({}, pass_all, lambda _: DependencyUnavailable("refused")),
    "the module cannot be imported": ({}, lambda job: UNDEFINED_NAME if is_probe(job) else pass_all(job), environment),
    "the import of the module exceeds": ({}, lambda job: replace(pass_all(job), timed_out=is_probe(job)), environment),
}


@pytest.mark.parametrize("reason", ALONE)
async def test_a_snippet_without_a_usable_module_is_tested_as_before(reason: str, tmp_path: Path) -> None:
    changes, runs, environments = ALONE[reason]
    replies, pair = make_replies(), INSIDE.model_copy(update=changes)
    sandbox = ScriptedSandbox(runs, environments=environments)
    annotation, model = await annotate(replies, sandbox, pair, run_dir=tmp_path / "run")
    before, model_before = await annotate(replies, ScriptedSandbox(pass_all), pair, {})
    context = annotation.module_context
    assert (context.module, context.outline_sha256, "\u202e" in context.reason) == (None, None, False)
    assert context.reason.startswith(reason)
    assert read_prompts(model) == read_prompts(model_before)
    hidden = {"seconds", "module_context"}
    assert annotation.model_dump(exclude=hidden) == before.model_dump(exclude=hidden)
    assert before.module_context is None
    assert {test.environment for test in read_evidence(tmp_path / "run").tests} == {None}


async def test_a_pair_that_is_only_judged_says_why(tmp_path: Path) -> None:
    pair = INSIDE.model_copy(update={"language": "ruby"})
    sandbox, verdict = ScriptedSandbox(pass_all), {"judge": [label(1)]}
    annotation, _ = await annotate(verdict, sandbox, pair, unsupported="judge", run_dir=tmp_path / "run")
    assert (annotation.label, annotation.test, annotation.module_context.module) == (1, None, None)


async def test_a_template_may_show_the_marker_and_the_advice(tmp_path: Path) -> None:
    (tmp_path / "generate_test.j2").write_text(
        "{% block system %}{% endblock %}{% block user %}{{ marker }} {{ advice | lines | data('x') }}{% endblock %}"
    )
    sandbox = ScriptedSandbox(pass_all, environments=environment)
    annotation, _ = await annotate(make_replies(FROM_MODULE), sandbox, prompts=tmp_path)
    assert annotation.error is None


async def test_commands_of_a_failed_attempt_are_in_no_prompt() -> None:
    sandbox = ScriptedSandbox(
        lambda job: fail_import("extra") if is_probe(job) else UNDEFINED_NAME,
        environments=environment,
        index=lambda name: f"{name}-dist",
    )
    annotation, model = await annotate(make_replies(repair=[commands()]), sandbox)
    assert sandbox.requirements == [RELEASE, (*RELEASE, "extra-dist")]
    assert annotation.module_context.reason.startswith("the module cannot be imported")
    assert (annotation.installed, annotation.repairs) == ((), 0)
    assert "extra" not in "".join(read_prompts(model)[2])


async def test_modules_that_the_import_misses_are_installed(tmp_path: Path) -> None:
    probes = iter([fail_import("extra"), fail_import("more")])
    sandbox = ScriptedSandbox(
        lambda job: next(probes, None) or pass_all(job), environments=environment, index=lambda name: f"{name}-dist"
    )
    annotation, _ = await annotate(make_replies(FROM_MODULE), sandbox, run_dir=tmp_path / "run")
    assert sandbox.requirements[-1] == (*RELEASE, "extra-dist", "more-dist")
    assert annotation.module_context.module == MODULE
    history = read_evidence(tmp_path / "run")
    assert [command.outcome for command in history.commands] == ["installed", "installed"]
    assert [execution.purpose for execution in history.executions][:3] == ["probe"] * 3
    assert annotation.repairs == 0


async def test_a_repair_in_a_module_shows_the_outline_and_keeps_the_release() -> None:
    sandbox = ScriptedSandbox(lambda job: pass_all(job) if is_probe(job) else UNDEFINED_NAME, environments=environment)
    replies = make_replies(FROM_MODULE, repair=[commands("pip install six"), commands()])
    annotation, model = await annotate(replies, sandbox)
    assert annotation.installed == ("Sum_Lib==1.0==1", "six==1")
    (prompt, *_) = [prompt for role, *prompt in read_prompts(model) if role == "repair"]
    assert find_block("outline", prompt[1]) == OUTLINE


@pytest.mark.parametrize(
    ("requirements", "environments", "error"),
    [
        ([], environment, "SandboxError"),
        (["nowhere"], lambda _: DependencyUnavailable("no"), "RequirementsUnavailable"),
        (["x"] * 101, environment, "RequirementsUnavailable"),
    ],
)
async def test_errors_of_the_pair_stay_errors(requirements: list[str], environments: Any, error: str) -> None:
    sandbox = ScriptedSandbox(lambda _job: SandboxError("lost"), environments=environments)
    pair = INSIDE.model_copy(update={"meta": {"requirements": requirements}})
    annotation, _ = await annotate(make_replies(), sandbox, pair)
    assert (annotation.error.type, annotation.label) == (error, None)


async def test_a_probe_is_not_a_program_of_the_model(tmp_path: Path) -> None:
    sandbox = ScriptedSandbox(pass_all, environments=environment)
    annotation, _ = await annotate({**make_replies(), "generate_test": ["no"] * 3}, sandbox, run_dir=tmp_path / "run")
    history = read_evidence(tmp_path / "run")
    assert [execution.purpose for execution in history.executions] == ["probe"]
    assert not Observation(annotation, history).has_program
    with load_run(tmp_path / "run") as view:
        assert read_execution(view, "1") is None
