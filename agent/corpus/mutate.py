"""Makes mutants of right code, and keeps those that a check tells apart: a recorded test program, or inputs.

A killed mutant is different from the right code. That makes it wrong for the query, because the right code was
accepted: it has label 1, or its documentation is the query. A timeout or a lack of memory proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from agent.corpus.calls import RAN, CallResult, Calls, CallTask, run_in_sessions, run_tasks
from agent.corpus.labelled import LabelledPair
from agent.corpus.output import CorpusWriter
from agent.datasets.mutants import MUTANT, MutantRecord
from agent.errors import NotReplayable, PairError, UnsupportedLanguage
from agent.evaluation.recorded import RecordedExecution, read_execution
from agent.evaluation.replay import Replayer
from agent.evaluation.tally import iterate_annotated_pairs, merge_rounds
from agent.languages.base import Language, MalformedProgram, MutantKind, Mutation
from agent.languages.registry import Languages
from agent.retrieval.code_views import find_language, split_docstring
from agent.runs.store.run_view import RunView
from agent.sandbox.base import SandboxBackend
from agent.sandbox.inside.python_inputs import Signature, Unfit
from agent.sandbox.session import SandboxSession
from agent.types import CaseOutcome, Cause, Pair, Status, TestReport

SURVIVED, SELDOM, NOT_RUN = "survived", "seldom different", "not run"
TIMED_OUT, OUT_OF_MEMORY = "timed out", "out of memory"
_MAX_EVIDENCE = 200
_MIN_CHANGED = 0.1
"""Minimum share of the informative results that a killed mutant changes. Rare differences are often side cases."""
_BATCH = 40
_LABEL = "label"
_NOT_COPIED = MUTANT, "sha256", "code_id"
"""Fields that describe a change, or the text of the code before its new formatting."""


@dataclass(frozen=True)
class Verdict:
    """What a check says about a mutant. `reason` says why the mutant is not used, and is empty if it was killed."""

    mutation: Mutation
    reason: str
    evidence: dict[str, Any] = field(default_factory=dict)
    crashes: bool = False


@dataclass(frozen=True)
class Checked:
    """A snippet, in the formatting of its mutants, and what its check says about them.

    `reason` says why there is no check, and is empty otherwise. `source` is the snippet in its own formatting. Inputs
    are chosen for it unless `inputs` has some. `results` are those of the snippet.
    """

    pair: Pair
    reason: str = ""
    source: str = ""
    uses_numpy: bool = False
    verdicts: Sequence[Verdict] = ()
    inputs: Sequence[str] | None = None
    results: Sequence[CallResult] = ()


@dataclass
class MutationSummary:
    """Counts of snippets and mutants. `kinds` counts killed mutants by the kind of change."""

    read: int = 0
    checked: int = 0
    with_killed: int = 0
    mutants: int = 0
    killed: int = 0
    crashes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, checked: Checked, check: Literal["program", "inputs"], writer: CorpusWriter) -> None:
        """Count a snippet, and write its mutants."""
        pair = checked.pair
        self.read += 1
        self.checked += not checked.reason
        self.mutants += len(checked.verdicts)
        killed = sum(not verdict.reason for verdict in checked.verdicts)
        self.with_killed += killed > 0
        if killed:
            writer.keep(_build_row(pair, 1))
        else:
            writer.remove(checked.reason or "no mutant killed", _build_row(pair, None))
        for number, verdict in enumerate(checked.verdicts, start=1):
            mutation = verdict.mutation
            record = MutantRecord(
                of=pair.id,
                kind=mutation.kind,
                change=mutation.change,
                check=check,
                evidence=verdict.evidence,
                crashes=verdict.crashes,
            )
            mutant = pair.model_copy(update={"id": f"{pair.id}/mutant-{number}", "code": mutation.snippet.code})
            row = _build_row(mutant, None if verdict.reason else 0) | {MUTANT: record.model_dump()}
            if verdict.reason:
                writer.remove(verdict.reason, row)
            else:
                writer.keep(row)
                self.killed += 1
                self.crashes += verdict.crashes
                self.kinds[mutation.kind] += 1


def _build_row(pair: Pair, label: int | None) -> dict[str, Any]:
    own = {**pair.model_dump(exclude={"meta"}, exclude_none=True), _LABEL: label}
    return own | {name: value for name, value in pair.meta.items() if name not in (*own, *_NOT_COPIED)}


def _list_mutants(language: Language, code: str, limit: int) -> list[Mutation]:
    """Return at most `limit` near misses, without the replacements of the whole body."""
    mutants = language.mutants(language.inspect(code), limit + len(MutantKind))
    return [mutant for mutant in mutants if mutant.kind not in set(MutantKind)][:limit]


def mutate_codes(
    items: Iterable[LabelledPair], backend: SandboxBackend, *, limit: int, concurrency: int
) -> AsyncGenerator[Checked, None]:
    """Check the mutants of Python functions with inputs. The order depends on the functions only.

    The query of a pair with label 1 is its own. Otherwise, it is the first sentence of the documentation.

    Raises:
        UsageError: the packages for all programs cannot be installed.
    """
    return check_items(_prepare(items), backend, limit=limit, concurrency=concurrency)


def check_items(
    items: Iterable[Checked], backend: SandboxBackend, *, limit: int, concurrency: int
) -> AsyncGenerator[Checked, None]:
    """Check the mutants of the items without a `reason`, as `mutate_codes` does."""

    def fail(item: Checked) -> Checked:
        return replace(item, reason=item.reason or NOT_RUN)

    check = partial(_check_batch, limit=limit)
    return run_in_sessions(_make_batches(items), check, fail, backend, concurrency)


def _prepare(items: Iterable[LabelledPair]) -> Iterator[Checked]:
    seen = set[tuple[str, str]]()
    for item in items:
        checked = prepare(item)
        key = checked.pair.query, checked.pair.code
        yield replace(checked, reason=checked.reason or "duplicate") if key in seen else checked
        seen.add(key)


def _make_batches(items: Iterable[Checked]) -> Iterator[list[Checked]]:
    """Iterate over lists with at most `_BATCH` items to check. Functions with numpy, a slow import, have own lists."""
    batches: dict[bool, list[Checked]] = {False: [], True: []}
    counts = Counter[bool]()
    for item in items:
        batches[item.uses_numpy].append(item)
        counts[item.uses_numpy] += not item.reason
        if counts[item.uses_numpy] == _BATCH:
            yield batches[item.uses_numpy]
            batches[item.uses_numpy], counts[item.uses_numpy] = [], 0
    yield from filter(None, batches.values())


def prepare(item: LabelledPair, inputs: Sequence[str] | None = None) -> Checked:
    """Prepare the check of a function. It needs a query, or known inputs."""
    pair = item.pair
    if pair.language != "python":
        return Checked(pair, "not Python")
    parts = split_docstring(pair.code, pair.language, pair.meta)
    if parts is None:
        return Checked(pair, "does not parse")
    query = pair.query if item.label == 1 else parts[0]
    try:
        pair = pair.model_copy(update={"query": query, "code": find_language(pair.language).reformat(parts[1])})
        uses_numpy = Signature(item.pair.code, strict=inputs is None).uses_numpy
    except Unfit as error:
        return Checked(pair, str(error) if query else "no query")
    except ValueError:
        return Checked(pair, "nothing but documentation")
    return Checked(pair, "" if query or inputs else "no query", item.pair.code, uses_numpy, inputs=inputs)


async def _check_batch(
    session: SandboxSession, batch: Sequence[Checked], environment: str | None, limit: int
) -> list[Checked]:
    """Choose inputs for the functions, and compare the results of their mutants."""
    checked = {item.pair.id: item for item in batch}
    items = [item for item in batch if not item.reason]
    tasks = [CallTask([item.pair.code], item.source, item.inputs) for item in items]
    chosen = await run_tasks(session, tasks, environment)
    mutated = list[tuple[Checked, Calls, list[Mutation]]]()
    for item, (right,) in zip(items, chosen, strict=True):
        reason, pair = right.status, item.pair
        if reason == RAN and (mutants := _list_mutants(find_language(pair.language), pair.code, limit)):
            mutated.append((item, right, mutants))
        else:
            checked[pair.id] = replace(item, reason="no mutants" if reason == RAN else reason)
    compared = await run_tasks(session, [_build_task(*parts) for parts in mutated], environment)
    for (item, right, mutants), (*others, again) in zip(mutated, compared, strict=True):
        if again.changed:
            checked[item.pair.id] = replace(item, reason="flaky")
        else:
            verdicts = [_judge_calls(mutant, calls, right) for mutant, calls in zip(mutants, others, strict=True)]
            checked[item.pair.id] = replace(item, verdicts=verdicts, results=right.results)
    return [*checked.values()]


def _build_task(item: Checked, right: Calls, mutants: Sequence[Mutation]) -> CallTask:
    """Compare mutants with the results of the right code, which runs again last. Its results may depend on the time."""
    return CallTask(
        functions=[*(mutant.snippet.code for mutant in mutants), item.pair.code],
        like=item.source,
        inputs=[result.input for result in right.results],
        expected=[(result.outcome, result.digest) for result in right.results],
    )


def _judge_calls(mutant: Mutation, calls: Calls, right: Calls) -> Verdict:
    if calls.status != RAN:
        return Verdict(mutant, calls.status)
    by_outcome = {result.outcome: result for result in calls.results}
    informative = sum(result.outcome == "value" for result in right.results)
    for outcome in ("value", "same", "raised"):
        if (result := by_outcome.get(outcome)) is not None:
            expected = right.results[int(result.input)]
            shown = expected.input.replace("\n", ", ")[:_MAX_EVIDENCE]
            evidence = {"input": shown, "right": expected.text, "mutant": result.text}
            reason = "" if calls.changed >= _MIN_CHANGED * informative else SELDOM
            return Verdict(mutant, reason, evidence, crashes=outcome == "raised")
    return Verdict(mutant, TIMED_OUT if "timeout" in by_outcome else OUT_OF_MEMORY if by_outcome else SURVIVED)


def find_passed(view: RunView) -> Iterator[tuple[Pair, int, str]]:
    """Iterate over the annotated pairs, each with the round of its label, and why its test cannot be used, if so."""
    for pair, rounds in iterate_annotated_pairs(view):
        annotation = merge_rounds(rounds).annotation
        has_passed = annotation.test is not None and annotation.test.says == 1
        reason = "not a match" if annotation.label != 1 else "" if has_passed else "no passed test"
        yield pair, annotation.round, reason


async def mutate_recorded(view: RunView, replayer: Replayer, pair: Pair, round: int, limit: int) -> Checked:
    """Check the mutants of a pair's code with the program that its code passed."""
    try:
        recorded = read_execution(view, pair.id, round)
        if recorded is None or recorded.program.options.get("module"):
            return Checked(pair, "no recorded program" if recorded is None else "tested in its module")
        return await _check_recorded(replayer, recorded, limit)
    except (PairError, NotReplayable, UnsupportedLanguage):
        return Checked(pair, NOT_RUN)


async def _check_recorded(replayer: Replayer, recorded: RecordedExecution, limit: int) -> Checked:
    language, template = Languages().require(recorded.pair.language), recorded.program.template
    try:
        pair = recorded.pair.model_copy(update={"code": language.reformat(recorded.pair.code)})
        right = language.insert(template, language.inspect(pair.code))
    except ValueError:
        return Checked(recorded.pair, "does not parse")
    mutants = _list_mutants(language, pair.code, limit)
    if not mutants:
        return Checked(pair, "no mutants")
    if [report.status for report in await replayer.run_variants(recorded, [right])] != [Status.PASSED]:
        return Checked(pair, "does not pass again")
    programs = {}
    for number, mutant in enumerate(mutants):
        try:
            programs[number] = language.insert(template, mutant.snippet)
        except MalformedProgram:
            continue
    reports = dict(zip(programs, await replayer.run_variants(recorded, [*programs.values()]), strict=True))
    verdicts = [
        _judge_report(mutant, reports[number]) if number in reports else Verdict(mutant, "does not fit the program")
        for number, mutant in enumerate(mutants)
    ]
    return Checked(pair, verdicts=verdicts)


def _judge_report(mutant: Mutation, report: TestReport) -> Verdict:
    if report.status is Status.PASSED:
        return Verdict(mutant, SURVIVED)
    if report.status is Status.TIMEOUT:
        return Verdict(mutant, TIMED_OUT)
    failed = [case for case in report.cases if case.cause is Cause.SNIPPET]
    sound = [case for case in failed if not case.message.startswith("MemoryError")]
    if report.cause is not Cause.SNIPPET or report.message or not failed:
        return Verdict(mutant, "broken program")
    if not sound:
        return Verdict(mutant, OUT_OF_MEMORY)
    case = min(sound, key=lambda case: case.outcome is not CaseOutcome.FAILED)
    evidence = {"case": case.name[:_MAX_EVIDENCE], "message": case.message[:_MAX_EVIDENCE]}
    return Verdict(mutant, "", evidence, crashes=case.outcome is not CaseOutcome.FAILED)
