"""Every path of a pair through the pipeline, with scripted replies and results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.config import Config, PipelineConfig
from agent.errors import DependencyUnavailable, ModelError, Outage, SandboxError
from agent.events import Event, StepDone
from agent.languages.base import Program, Snippet
from agent.languages.python.language import PythonLanguage
from agent.llm.base import Call
from agent.pipeline.state import Node, State, Step, Tools
from agent.sandbox.base import CommandResult, Environment, ReportLine, RunResult, SandboxJob
from agent.types import Cause, Status, Usage, Verdict
from tests.runs.store.samples import read_evidence
from tests.scripts import (
    PAIR,
    PROGRAM,
    commands,
    environment,
    fail_all,
    fail_import,
    label,
    make_replies,
    pass_all,
    program,
    screen,
)

IMPORTING = "import unheard_of\n" + PROGRAM


async def annotate(
    replies: Mapping[str, Sequence[Any]] | ScriptedLLM,
    sandbox: ScriptedSandbox | None = None,
    pair: Pair = PAIR,
    **options: Any,
) -> Annotation:
    model = replies if isinstance(replies, ScriptedLLM) else ScriptedLLM(replies)
    async with Annotator(model=model, sandbox=sandbox or ScriptedSandbox(pass_all), **options) as annotator:
        return await anext(annotator.annotate([pair]))


@pytest.mark.parametrize(("verdict", "expected"), [("match", 1), ("non_match", 0)])
async def test_a_clear_verdict_of_the_screener_becomes_the_label(verdict: str, expected: int) -> None:
    sandbox = ScriptedSandbox()
    annotation = await annotate({"screen": [screen(verdict, "obvious")]}, sandbox)
    assert (annotation.label, annotation.decided_by, annotation.reason) == (expected, "screen", "obvious")
    assert annotation.screen_verdict == Verdict(verdict)
    assert annotation.test is None
    assert sandbox.acquired == 0


@pytest.mark.parametrize(("run", "status"), [(pass_all, Status.PASSED), (fail_all, Status.FAILED)])
async def test_an_unclear_pair_is_tested_and_arbitrated(run: Any, status: Status) -> None:
    sandbox = ScriptedSandbox(run)
    annotation = await annotate(make_replies(arbitrate=[label(1, "ran well")]), sandbox)
    assert (annotation.label, annotation.decided_by, annotation.reason) == (1, "arbitrate", "ran well")
    assert annotation.test.status is status
    assert [case.name for case in annotation.test.cases] == ["test_small", "test_negative"]
    # a passed program runs once more in a new sandbox
    assert sandbox.released == sandbox.acquired == (2 if run is pass_all else 1)


async def test_no_sandbox_is_in_use_during_a_model_call() -> None:
    """The next sandbox is a new one, so successful commands run there again."""
    runs = iter([fail_import("yaml"), fail_import("nothing_known"), fail_import("nothing_known")])
    outcomes = iter([CommandResult(0, ""), CommandResult(0, ""), CommandResult(1, "no")])
    sandbox = ScriptedSandbox(
        lambda job: next(runs, None) or pass_all(job), commands=lambda _: next(outcomes), environments=environment
    )
    repairs, in_use = iter([commands("touch data.txt"), commands("cat missing.txt")]), []

    def answer(call: Call) -> str:
        in_use.append((call.role, sandbox.acquired - sandbox.released))
        replies = {"screen": screen(), "generate_test": program("import yaml\n" + PROGRAM), "arbitrate": label(0)}
        return next(repairs) if call.role == "repair" else replies[call.role]

    annotation = await annotate(ScriptedLLM(answer), sandbox)
    assert (annotation.label, annotation.repairs) == (0, 2)
    assert in_use == [(role, 0) for role in ("screen", "generate_test", "repair", "repair", "arbitrate")]
    assert sandbox.commands == [("touch", "data.txt"), ("touch", "data.txt"), ("cat", "missing.txt")]


@pytest.mark.parametrize("code", ["def f():\n    return 1\n" + "#" * 100_000, "x = 1" + " + 1" * 1_500])
async def test_a_snippet_beyond_the_limits_causes_an_error_and_no_label(code: str) -> None:
    model = ScriptedLLM(make_replies(value=0))
    annotation = await annotate(model, pair=PAIR.model_copy(update={"code": code}))
    assert (annotation.label, annotation.error.type, annotation.test) == (None, "SnippetTooLarge", None)
    assert [call.role for call in model.calls] == ["screen"]


@pytest.mark.parametrize(("code", "cause"), [("def f(:\n", Cause.SNIPPET), ("x = t'{y}'\n", Cause.DEPENDENCY)])
async def test_a_snippet_that_does_not_parse_is_decided_by_the_arbiter_without_a_test(code: str, cause: Cause) -> None:
    sandbox = ScriptedSandbox()
    broken = PAIR.model_copy(update={"code": code})
    annotation = await annotate({"screen": [screen()], "arbitrate": [label(0)]}, sandbox, broken)
    assert (annotation.test.status, annotation.test.cause) == (Status.ERROR, cause)
    assert (annotation.label, sandbox.acquired) == (0, 0)


@pytest.mark.parametrize(("module", "name"), [("yaml", "pyyaml"), ("unheard_of", "unheard-of")])
async def test_a_missing_import_is_installed_from_the_import_map_or_the_index_without_a_model_call(
    module: str, name: str
) -> None:
    runs, index = iter([fail_import(module)]), {"unheard_of": "unheard-of"}
    sandbox = ScriptedSandbox(lambda job: next(runs, None) or pass_all(job), environments=environment, index=index.get)
    annotation = await annotate(make_replies(f"import {module}\n{PROGRAM}"), sandbox)
    assert annotation.test.status is Status.PASSED
    assert (annotation.repairs, annotation.installed) == (1, (f"{name}==1",))
    assert sandbox.requirements == [(name,)]
    assert sandbox.jobs[1].environment == f"k{name}"


async def test_commands_of_the_model_run_and_the_program_runs_again() -> None:
    runs = iter([fail_import("unheard_of")])
    sandbox = ScriptedSandbox(
        lambda job: next(runs, None) or pass_all(job),
        commands=lambda _: CommandResult(0, ""),
        environments=environment,
    )
    repair = commands("sudo apt install x", "pip install unheard-of", "mkdir data")
    annotation = await annotate(make_replies(IMPORTING, repair=[repair]), sandbox)
    assert (annotation.repairs, annotation.installed) == (1, ("unheard-of==1",))
    assert set(sandbox.commands) == {("mkdir", "data")}


async def test_commands_that_change_nothing_end_the_repair() -> None:
    sandbox = ScriptedSandbox([fail_import("unheard_of")], commands=[CommandResult(1, "no")])
    replies = make_replies(IMPORTING, 0, repair=[commands("false", "sudo id")])
    assert (await annotate(replies, sandbox)).repairs == 0


@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_repair_rounds_are_limited(rounds: int) -> None:
    sandbox = ScriptedSandbox(lambda _: fail_import("unheard_of"), commands=lambda _: CommandResult(0, ""))
    replies = make_replies(IMPORTING, 0, repair=[commands(f"mkdir data{n}") for n in range(10)])
    config = Config(pipeline=PipelineConfig(max_repairs=rounds))
    annotation = await annotate(replies, sandbox, config=config)
    assert (annotation.repairs, len(sandbox.jobs)) == (rounds, rounds + 1)


async def test_the_model_sees_a_failed_installation() -> None:
    model = ScriptedLLM(make_replies("import yaml\n" + PROGRAM, 0, repair=[commands()]))
    sandbox = ScriptedSandbox([fail_import("yaml")], environments=[DependencyUnavailable("no package index answers")])
    annotation = await annotate(model, sandbox)
    repair = next(call for call in model.calls if call.role == "repair")
    assert "no package index answers" in repair.messages[-1].content
    assert annotation.error is None


async def test_one_unavailable_package_does_not_keep_out_the_others() -> None:
    def build(requirements: Sequence[str]) -> Environment | DependencyUnavailable:
        return DependencyUnavailable("no usable wheel") if "mysqlclient" in requirements else environment(requirements)

    runs = iter([fail_import("attr"), fail_import("MySQLdb")])
    sandbox = ScriptedSandbox(lambda _: next(runs), environments=build)
    annotation = await annotate(make_replies(f"import attr, MySQLdb\n{PROGRAM}", 0, repair=[commands()]), sandbox)
    assert (annotation.installed, annotation.test.cause) == (("attrs==1",), Cause.DEPENDENCY)
    assert sandbox.requirements == [("attrs", "mysqlclient"), ("attrs",), ("attrs", "mysqlclient")]
    assert "no usable wheel" in annotation.test.message


async def test_a_broken_sandbox_is_replaced_once() -> None:
    runs = iter([SandboxError("engine gone")])
    sandbox = ScriptedSandbox(lambda job: next(runs, None) or pass_all(job))
    annotation = await annotate(make_replies(), sandbox)
    assert (annotation.label, sandbox.acquired, sandbox.released) == (1, 3, 3)


async def test_a_sandbox_that_stays_broken_causes_an_error_and_no_label() -> None:
    sandbox = ScriptedSandbox(lambda _: SandboxError("engine gone"))
    annotation = await annotate({"screen": [screen()], "generate_test": [program()]}, sandbox)
    assert (annotation.label, annotation.decided_by) == (None, None)
    assert (annotation.error.type, annotation.error.message) == ("SandboxError", "engine gone")
    assert annotation.screen_verdict is Verdict.UNCLEAR


async def test_unparsable_replies_cause_an_error_and_no_label() -> None:
    annotation = await annotate({"screen": ["what?", "", "still what?"]})
    assert annotation.label is None
    assert annotation.error.type == "ReplyError"
    assert annotation.usage.calls == 3


async def test_a_failed_call_causes_an_error_and_its_cost_counts() -> None:
    failure = ModelError("the server broke", usage=Usage(calls=2, input_tokens=10))
    annotation = await annotate({"screen": [failure]})
    assert annotation.error.type == "ModelError"
    assert (annotation.label, annotation.usage.calls, annotation.usage.input_tokens) == (None, 2, 10)


async def test_a_malformed_program_is_requested_again() -> None:
    programs = [program(PROGRAM.replace("# <candidate>", "")), program()]
    model = ScriptedLLM(make_replies(generate_test=programs))
    annotation = await annotate(model)
    assert annotation.label == 1
    assert "`# <candidate>`" in model.calls[2].messages[-1].content


async def test_the_pair_timeout_ends_a_pair_without_a_label() -> None:
    async def wait_forever(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    annotation = await annotate(ScriptedLLM(wait_forever), pair_timeout=0.05)
    assert (annotation.label, annotation.error.type) == (None, "PairTimeout")


async def test_simulated_outcomes_are_separate_from_tests() -> None:
    replies = make_replies(simulate=['{"reason": "would add", "status": "passed"}'])
    annotation = await annotate(replies, variant="ps_tpg_sim_fa")
    assert annotation.test is None
    assert annotation.simulated.status == "passed"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (pass_all, 1),
        (fail_all, 0),
        (lambda job: RunResult((ReportLine("start", job.cases[0]),), exit_code=None, timed_out=True), None),
    ],
)
async def test_the_rule_arbiter_decides_by_the_test_alone(run: Any, expected: int | None) -> None:
    replies = {"screen": [screen()], "generate_test": [program()]}
    annotation = await annotate(replies, ScriptedSandbox(run), variant="rule_arbiter")
    assert (annotation.label, annotation.decided_by, annotation.error) == (expected, "arbitrate", None)


@pytest.mark.parametrize(("passing", "expected"), [(("test_small",), 1), ((), 0)])
async def test_with_criterion_half_the_rule_arbiter_needs_half_of_the_cases(
    passing: tuple[str, ...], expected: int
) -> None:
    def run(job: SandboxJob) -> RunResult:
        halves = [
            pass_all(replace(job, cases=(name,))) if name in passing else fail_all(replace(job, cases=(name,)))
            for name in job.cases
        ]
        return RunResult((*(record for half in halves for record in half.records[:-1]), ReportLine("end")))

    config = Config(pipeline=PipelineConfig(criterion="half"))
    replies = {"screen": [screen()], "generate_test": [program()]}
    annotation = await annotate(replies, ScriptedSandbox(run), variant="rule_arbiter", config=config)
    assert (annotation.test.status, annotation.test.passed, annotation.label) == (Status.FAILED, len(passing), expected)


async def test_labels_votes_and_meta_never_reach_a_prompt() -> None:
    canary = "CANARY-7319"
    pair = PAIR.model_copy(update={"id": canary, "meta": {"label": canary, "votes": [canary], "why": canary}})
    runs = iter([fail_import("unheard_of")])
    model = ScriptedLLM(make_replies(IMPORTING, repair=[commands("mkdir x")]))
    sandbox = ScriptedSandbox(lambda job: next(runs, None) or pass_all(job), commands=lambda _: CommandResult(0, ""))
    annotation = await annotate(model, sandbox, pair)
    assert annotation.meta == pair.meta
    assert {call.role for call in model.calls} == {"screen", "generate_test", "repair", "arbitrate"}
    shown = [message.content for call in model.calls for message in call.messages]
    assert not [text for text in shown if canary in text]


async def test_visits_are_recorded_with_their_times(tmp_path: Path) -> None:
    events: list[Event] = []
    replies = make_replies(arbitrate=["no label", "none", "none"])
    annotation = await annotate(replies, run_dir=tmp_path / "run", on_event=events.append)
    history = read_evidence(tmp_path / "run")
    assert [(node_run.node, node_run.outcome) for node_run in history.node_runs] == [
        ("screen", "unclear"), ("generate_test", "generated"), ("execute", "evidence")
    ]  # fmt: skip
    steps = [(event.node, event.outcome) for event in events if isinstance(event, StepDone)]
    assert steps == [(node_run.node, node_run.outcome) for node_run in history.node_runs]
    assert 0 < sum(node_run.seconds for node_run in history.node_runs) <= annotation.seconds + 0.01


async def test_requirements_of_a_pair_are_installed_before_the_first_execution() -> None:
    sandbox = ScriptedSandbox(pass_all, environments=environment)
    pair = PAIR.model_copy(update={"meta": {"requirements": ["pyyaml"]}})
    annotation = await annotate(make_replies(), sandbox, pair)
    assert (annotation.label, annotation.installed) == (1, ("pyyaml==1",))
    assert [job.environment for job in sandbox.jobs] == ["kpyyaml"]


async def test_a_pair_with_unavailable_requirements_gets_no_label() -> None:
    def refuse(requirements: Sequence[str]) -> Any:
        raise DependencyUnavailable(f"{requirements[0]}: not installed because the project is too new")

    pair = PAIR.model_copy(update={"meta": {"requirements": ["nmupy"]}})
    annotation = await annotate(make_replies(), ScriptedSandbox(pass_all, environments=refuse), pair)
    assert annotation.label is None
    assert (annotation.error.type, "nmupy" in annotation.error.message) == ("RequirementsUnavailable", True)


@pytest.mark.parametrize("meta", ["see README", [1, 2], None, {"a": "b"}, []])
async def test_a_requirements_field_that_is_not_a_list_of_strings_is_ignored(meta: Any) -> None:
    sandbox = ScriptedSandbox(pass_all)
    annotation = await annotate(make_replies(), sandbox, PAIR.model_copy(update={"meta": {"requirements": meta}}))
    assert (annotation.label, sandbox.requirements) == (1, [])


async def test_a_pair_may_have_at_most_100_requirements() -> None:
    pair = PAIR.model_copy(update={"meta": {"requirements": [f"a{n}" for n in range(101)]}})
    annotation = await annotate(make_replies(), ScriptedSandbox(pass_all, environments=environment), pair)
    assert "100" in annotation.error.message


class TestAudit:
    """A share of the pairs that the screener decides is tested, and the arbiter decides their label."""

    async def test_an_audited_pair_is_treated_as_unclear(self) -> None:
        replies = make_replies(screen=[screen("match", "obvious")], arbitrate=[label(0, "no")])
        annotation = await annotate(replies, ScriptedSandbox(fail_all), config={"pipeline.screen_audit_rate": 1.0})
        assert (annotation.label, annotation.decided_by, annotation.reason) == (0, "arbitrate", "no")
        assert (annotation.screen_verdict, annotation.audited) == (Verdict.MATCH, True)
        assert annotation.test is not None

    async def test_an_unclear_pair_is_not_audited(self) -> None:
        replies = {"screen": [screen("unclear")], "arbitrate": [label(1)]}
        annotation = await annotate(replies, variant="ps_fa", config={"pipeline.screen_audit_rate": 1.0})
        assert (annotation.screen_verdict, annotation.audited) == (Verdict.UNCLEAR, False)

    async def test_a_pair_that_ends_in_an_error_still_counts_as_audited(self) -> None:
        replies = {"screen": [screen("match")], "arbitrate": [ModelError("gone")]}
        annotation = await annotate(replies, variant="ps_fa", config={"pipeline.screen_audit_rate": 1.0})
        assert (annotation.label, annotation.screen_verdict, annotation.audited) == (None, Verdict.MATCH, True)

    async def test_the_evidence_explains_the_audit(self, tmp_path: Path) -> None:
        replies = {"screen": [screen("match", "obvious")], "arbitrate": [label(1)]}
        await annotate(replies, variant="ps_fa", run_dir=tmp_path / "run", config={"pipeline.screen_audit_rate": 1.0})
        node_run = read_evidence(tmp_path / "run").node_runs[0]
        assert (node_run.node, node_run.outcome) == ("screen", "unclear")
        assert re.fullmatch("match, .*audit.*: obvious", node_run.reason)

    def test_the_run_identity_omits_a_disabled_audit(self) -> None:
        plain, audited = (
            Annotator(
                model=ScriptedLLM([]), config={} if share is None else {"pipeline.screen_audit_rate": share}
            ).identity()
            for share in (None, 0.02)
        )
        assert "screen_audit_rate" not in plain["pipeline"]
        assert audited["pipeline"]["screen_audit_rate"] == 0.02


class Broken(Node):
    """A node that raises for all pairs but one."""

    name = "broken"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"ended": frozenset({"label", "decided_by", "reason"})}

    async def __call__(self, state: State, tools: Tools) -> Step:  # noqa: ARG002
        if state["pair"].id == "whole":
            return Step("ended", {"label": 1, "decided_by": self.name, "reason": "r"})
        raise KeyError("no such field")


class BrokenLanguage(PythonLanguage):
    def inspect(self, code: str) -> Snippet:  # noqa: ARG002
        raise KeyError("no such field")


BROKEN: Mapping[str, Any] = {
    "nodes": {"broken": Broken()},
    "variant": {"start": "broken", "nodes": {"broken": {"ended": "end"}}},
    "sandbox": None,
}


@pytest.mark.parametrize(
    ("options", "node"), [(BROKEN, "broken"), ({"languages": [BrokenLanguage()]}, "generate_test")]
)
async def test_an_exception_in_a_user_node_or_language_ends_only_its_pair(
    options: Mapping[str, Any], node: str, tmp_path: Path
) -> None:
    pairs = [PAIR, PAIR.model_copy(update={"id": "whole"})]
    model = ScriptedLLM(lambda call: screen("match" if call.pair_id == "whole" else "unclear"))
    chosen = {"model": model, "sandbox": ScriptedSandbox(pass_all), **options}
    async with Annotator(**chosen, run_dir=tmp_path / "run") as annotator:
        annotations = {annotation.id: annotation async for annotation in annotator.annotate(pairs)}
    assert annotations["whole"].label == 1
    error = annotations[PAIR.id].error
    assert (error.type, annotations[PAIR.id].label) == ("NodeError", None)
    assert all(word in error.message for word in (node, "KeyError", "no such field"))
    history = read_evidence(tmp_path / "run")
    assert (history.node_runs[-1].node, history.node_runs[-1].outcome) == (node, "raised")


async def test_a_value_error_of_a_user_language_is_not_the_models_fault() -> None:
    class Unfinished(PythonLanguage):
        def insert(self, template: str, snippet: Snippet) -> Program:
            raise ValueError(f"{len(template)} and {snippet}")

    model = ScriptedLLM({"screen": [screen()], "generate_test": [program()] * 3})
    annotation = await annotate(model, languages=[Unfinished()])
    assert (annotation.error.type, [call.role for call in model.calls]) == ("NodeError", ["screen", "generate_test"])
    assert "ValueError" in annotation.error.message


@pytest.mark.parametrize("error", [OSError("too many open files"), KeyError("image")])
async def test_any_error_of_a_users_sandbox_is_a_sandbox_error(error: Exception) -> None:
    class Broken(ScriptedSandbox):
        async def acquire(self) -> Any:
            self.acquired += 1
            raise error

    sandbox = Broken()
    annotation = await annotate({"screen": [screen()], "generate_test": [program()]}, sandbox)
    assert (annotation.error.type, annotation.label, sandbox.acquired) == ("SandboxError", None, 3)


@pytest.mark.parametrize(
    "step",
    [
        Step("unknown", {}),
        Step("ended", {"label": 1}),
        Step("ended", {"label": "yes", "decided_by": "n", "reason": ""}),
    ],  # type: ignore[typeddict-item]
)
async def test_an_undeclared_step_ends_only_its_pair(step: Step) -> None:
    class Wrong(Broken):
        async def __call__(self, state: State, tools: Tools) -> Step:  # noqa: ARG002
            return step

    annotation = await annotate({}, **{**BROKEN, "nodes": {"broken": Wrong()}})
    assert annotation.error.type == "NodeError"


async def test_a_variant_that_loops_ends_the_pair_with_an_error() -> None:
    variant = {"start": "screen", "nodes": {"screen": {"match": "end", "non_match": "end", "unclear": "screen"}}}
    annotation = await annotate(ScriptedLLM(lambda _: screen("unclear")), variant=variant)
    assert annotation.error.type == "NodeError"


async def test_a_user_node_that_always_raises_ends_the_run() -> None:
    pairs = [PAIR.model_copy(update={"id": str(number)}) for number in range(40)]
    async with Annotator(model=ScriptedLLM([]), **BROKEN) as annotator:
        with pytest.raises(Outage, match="NodeError"):
            [annotation async for annotation in annotator.annotate(pairs)]


async def test_an_exception_in_a_built_in_node_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agent.pipeline.nodes.generate_test.collect_pair_variables", lambda state, _tools: state["nothing"]
    )
    with pytest.raises(KeyError):
        await annotate({"screen": [screen()], "generate_test": [program()]})
