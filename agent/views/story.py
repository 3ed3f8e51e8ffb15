"""The story of a pair: the steps that `agent show`, the report and the review page render."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.datasets.encoding import dumps
from agent.evaluation.tally import describe_place
from agent.pipeline.history import Command, Execution, History, ModelCall, NodeRun, Program
from agent.runs.store.annotations import LabelStatus, get_status
from agent.text import plural, truncate
from agent.types import Annotation, Cause, Comparison, Pair, Preference, Status, TestReport, WrittenCode

TEXT_LIMIT = 60_000
PartKind = Literal["prose", "code", "reply", "prompt", "console", "outcomes"]
StoryStepKind = Literal[
    "query", "context", "code", "fields", "reply", "program", "execution", "rerun", "command", "node_run", "test",
    "simulated", "label",
]  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A part of a step: a text, or a list of outcomes, each with a status, a name and a message."""

    text: str = ""
    title: str = ""
    kind: PartKind = "prose"
    language: str = ""
    outcomes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class StoryStep:
    """An event or a fact about a pair. `facts` are short, but `parts` may be long."""

    kind: StoryStepKind
    title: str
    parts: tuple[Part, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)


def iterate_pair_steps(pair: Pair) -> Iterator[StoryStep]:
    """Iterate over the steps that show the pair itself: query, context and code."""
    yield StoryStep("query", "query", (Part(pair.query),))
    if isinstance(pair, Comparison):
        yield StoryStep("code", "first snippet", (Part(pair.first, kind="code", language=pair.language),))
    if pair.context:
        yield StoryStep("context", "context", (Part(pair.context),))
    yield StoryStep("code", "code", (Part(pair.code, kind="code", language=pair.language),))


def iterate_input_fields(pair: Pair) -> Iterator[StoryStep]:
    """Yield a step with the input fields that `iterate_pair_steps` does not show, if the pair has any.

    No prompt contains these fields, because they may reveal the label.
    """
    if pair.meta:
        text = dumps(pair.meta, indent=True).decode("utf-8")
        yield StoryStep("fields", "other input fields", (Part(text, kind="code", language="json"),))


def iterate_event_steps(history: History) -> Iterator[StoryStep]:
    """Iterate over the steps that show a pair's events, in order."""
    executions = programs = 0
    is_reask = dict(zip(map(id, history.model_calls), history.asked_again(), strict=True))
    for event in history.events:
        match event:
            case ModelCall():
                yield _describe_model_call(event, is_reask[id(event)])
            case Program():
                programs += 1
                source = Part(event.source, kind="code", language=history.pair.language)
                stand_ins = {"stand-ins": ", ".join(event.stand_ins)} if event.stand_ins else {}
                probe = " (probe of the module)" if programs - 1 in history.probes else ""
                yield StoryStep("program", f"program {programs}{probe}", (source,), stand_ins)
            case Execution():
                executions += event.purpose == "test"
                yield _describe_execution(event, executions)
            case Command():
                text = f"$ {event.command}\n{event.output.rstrip()}".rstrip()
                yield StoryStep("command", f"command: {event.outcome}", (Part(text, kind="console"),))
            case NodeRun():
                yield StoryStep("node_run", f"{event.node}: {event.outcome}", (), {"time": f"{event.seconds:.2f} s"})


def iterate_result_steps(annotation: Annotation, history: History | None) -> Iterator[StoryStep]:
    """Iterate over the steps that show the result: the overall test outcome, the predicted outcome and the label.

    The overall test outcome is omitted if it is the same as the report of the last execution.
    """
    last = history.tests[-1].report if history is not None and history.tests else None
    if annotation.test is not None and annotation.test != last:
        yield StoryStep(
            "test", "test" if last is None else "overall test outcome", tuple(_iterate_report_parts(annotation.test))
        )
    if annotation.simulated is not None:
        yield StoryStep(
            "simulated", f"predicted outcome: {annotation.simulated.status}", (Part(annotation.simulated.reason),)
        )
    if annotation.error is not None:
        yield StoryStep("label", "no label", (Part(f"{annotation.error.type}: {annotation.error.message}"),))
        return
    document = annotation.document
    code = (Part(document.code, "written code", "code"),) if isinstance(document, WrittenCode) else ()
    by = f", decided by {annotation.decided_by}" if annotation.decided_by else ""
    yield StoryStep(
        "label",
        f"{describe_status(get_status(annotation))}{by}",
        (Part(annotation.reason), *code),
        _collect_grounds(annotation),
    )


def describe_status(status: LabelStatus) -> str:
    """Describe the status of a pair, as in `label 1` or `no label`."""
    return "no label" if status in ("error", "no_intent") else f"label {status}"


def as_json(steps: Iterable[StoryStep], shared: Callable[[str], int | None] | None = None) -> list[dict[str, Any]]:
    """Return steps as JSON for a page, without empty values.

    The page stores a system message once for many pairs. `shared` returns the number of such a message, or None if the
    page does not store it. Without `shared`, prompts are omitted.
    """
    return [
        _drop_empty(
            kind=step.kind,
            title=step.title,
            facts={name: truncate(text, TEXT_LIMIT) for name, text in step.facts.items()},
            parts=[_part_as_json(part, shared) for part in step.parts if part.kind != "prompt" or shared is not None],
        )
        for step in steps
    ]


def _part_as_json(part: Part, shared: Callable[[str], int | None] | None) -> dict[str, Any]:
    number = shared(part.text) if shared is not None and part.kind == "prompt" and part.title == "system" else None
    outcomes = [(outcome, name, truncate(text, TEXT_LIMIT)) for outcome, name, text in part.outcomes]
    text = truncate(part.text, TEXT_LIMIT) if number is None else ""
    return _drop_empty(kind=part.kind, title=part.title, text=text, outcomes=outcomes) | (
        {} if number is None else {"shared": number}
    )


def _drop_empty(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def describe_path(annotation: Annotation, history: History | None) -> list[str]:
    """Describe in a few words each stage that a pair went through."""
    reasks = 0 if history is None else sum(history.asked_again())
    verdict, test, error = annotation.screen_verdict, annotation.test, annotation.error
    stages = (
        "" if verdict is None else f"screened {verdict.value}{', audited' * annotation.audited}",
        f"re-asked {reasks}×" if reasks else "",
        _describe_repair(annotation, history),
        describe_place(annotation.module_context),
        "" if test is None else _describe_test(test),
        "" if test is None else _describe_introspection(test),
        "" if error is None else f"{error.type}: {error.message}",
    )
    return [stage for stage in stages if stage]


def _describe_repair(annotation: Annotation, history: History | None) -> str:
    commands = () if history is None else history.commands
    if annotation.repairs:
        executed = ", ".join(command.command for command in commands if command.outcome in ("installed", "ran"))
        refusals = sum(command.outcome == "refused" for command in commands)
        details = "; ".join(filter(None, (executed, f"{refusals} refused" if refusals else "")))
        return f"repaired ({details})" if details else "repaired"
    given_up = history is not None and any(node_run.outcome == "given_up" for node_run in history.node_runs)
    return "repair gave up" if given_up else ""


def _describe_test(test: TestReport) -> str:
    if not test.cases and test.cause in (Cause.SNIPPET, Cause.DEPENDENCY):
        return "does not parse"
    cases = plural(len(test.cases), "case")
    if test.status is Status.PASSED:
        return f"test passed, {cases}"
    cause = "" if test.cause is None else f" by the {test.cause.value}"
    return f"test {test.status.value}{cause}, {test.passed} of {cases} passed"


def _describe_introspection(test: TestReport) -> str:
    return f"the code can reach the test harness through {', '.join(test.introspection)}" if test.introspection else ""


def _describe_model_call(model_call: ModelCall, is_reask: bool) -> StoryStep:
    usage = model_call.usage
    cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    parts = [Part(message["content"], message["role"], "prompt") for message in model_call.messages]
    is_json = model_call.reply.lstrip().startswith("{")
    parts.append(Part(model_call.reply, kind="reply", language="json" if is_json else "markdown"))
    if model_call.problem:
        parts.append(Part(model_call.problem, f"{'re-asked' if is_reask else 'unusable'} because"))
    facts = {
        "time": "" if model_call.seconds is None else f"{model_call.seconds:.2f} s",
        "original cost": f"${model_call.saved.cost_usd:.4f}" if model_call.saved.cost_usd else "",
        "tokens": "" if model_call.cached else f"{usage.input_tokens:,} in, {usage.output_tokens:,} out",
    }
    title = f"{model_call.role}: reply from {model_call.model or 'the model'}"
    paid = "from the cache" if model_call.cached else cost
    return StoryStep("reply", f"{title}, {paid}", tuple(parts), _drop_empty(**facts))


def _describe_execution(execution: Execution, number: int) -> StoryStep:
    facts = {
        "exit code": str(execution.exit_code) if execution.exit_code else "",
        "signal": "" if execution.signal is None else str(execution.signal),
        "ended": "timed out" if execution.timed_out else "",
        "result": "reused from an earlier execution of the same program" if execution.shared else "",
        "installed": ", ".join(execution.installed),
        "environment": execution.environment or "",
    }
    parts = list(_iterate_report_parts(execution.report))
    for name, text in (("standard output", execution.stdout), ("standard error", execution.stderr)):
        if text.strip():
            parts.append(Part(text, name, "console"))
    is_test = execution.purpose == "test"
    name = f"execution {number}" if is_test else f"{execution.purpose} run"
    title = f"{name} of program {execution.program + 1}: {execution.report.status.value}, {execution.seconds:.2f} s"
    return StoryStep("execution" if is_test else "rerun", title, tuple(parts), _drop_empty(**facts))


def _iterate_report_parts(report: TestReport) -> Iterator[Part]:
    notes = ("" if report.cause is None else f"cause: {report.cause.value}", _describe_introspection(report))
    outcomes = [(report.status.value, "", "; ".join(filter(None, notes)))]
    for case in report.cases:
        blame = f" ({case.cause.value})" if case.cause is not None and case.cause is not report.cause else ""
        outcomes.append((case.outcome.value, case.name, f"{case.message}{blame}".strip()))
    yield Part(kind="outcomes", outcomes=tuple(outcomes))
    if report.message:
        yield Part(report.message, kind="console")


def _collect_grounds(annotation: Annotation) -> dict[str, str]:
    verdict = annotation.screen_verdict if annotation.audited else None
    grounds = {
        "audited": "" if verdict is None else f"screener verdict: {verdict.value}",
        "choice": annotation.document.choice if isinstance(annotation.document, Preference) else "",
        "reading": annotation.reading,
        "tested": describe_place(annotation.module_context),
        "stand-ins": ", ".join(annotation.stand_ins),
        "installed": ", ".join(annotation.installed),
    }
    return _drop_empty(**grounds)
