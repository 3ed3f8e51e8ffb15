"""Run folders for reports, with pairs of every kind."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.pipeline.history import Command, Execution, History, HistoryItem, ModelCall, NodeRun, Program
from agent.runs.store.run_folder import RunFolder
from agent.types import (
    Annotation,
    CaseOutcome,
    CaseResult,
    Cause,
    ErrorInfo,
    Pair,
    Status,
    TestReport,
    Usage,
    Verdict,
)

IDENTITY = {
    "variant": {"name": "full", "start": "screen"},
    "model": {"default": {"kind": "openai", "model": "a-model"}},
    "pipeline": {"seed": 0},
}
# Text that would run code, load resources or navigate if a page treated it as markup.
HOSTILE = (
    '</script><script>window.hit = 1; alert(1)</script><img src=https://evil.example/a onerror="window.hit = 2">'
    "<a href='javascript:window.hit = 3'>x</a> ]]> <!-- -- \u2028\u2029 ${7*7} {{7*7}} &lt;b&gt; "
    "\x1b[31mred\x1b[0m \u202eesrever\u2066 \x00 \u200b \ud800 \U000e0041 end"
)
WORDS = ("list", "dict", "value", "parse", "file", "name", "path", "index", "count", "total", "result", "stream", "key")


def _make_words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choice(WORDS) + str(chance.randrange(100)) for _ in range(count))


def _make_code(chance: random.Random) -> str:
    lines = [f"    {chance.choice(WORDS)}_{chance.randrange(1000)} = {_make_words(chance, 3)!r}" for _ in range(10)]
    return "\n".join(("def f(x):", *lines, "    return x\n"))


def _make_exchange(role: str, text: str, reply: str, **fields: Any) -> ModelCall:
    messages = ({"role": "system", "content": f"You are {role}. " * 120}, {"role": "user", "content": text})
    usage = Usage(calls=1, input_tokens=900, output_tokens=120, cost_usd=0.0004)
    return ModelCall(role=role, key="k" * 64, messages=messages, reply=reply, model="a-model", usage=usage, seconds=1.5,
                    **fields)  # fmt: skip


def make_program(source: str, **fields: Any) -> Program:
    return Program(template="# <candidate>\n", source=source, first_line=1, last_line=1, cases=("test_0",), **fields)


def _make_tested(number: int, pair: Pair, chance: random.Random) -> tuple[dict[str, Any], list[HistoryItem]]:
    """Return the annotation fields and the events of a tested pair."""
    source = pair.code + "\n\n" + "\n".join(f"def test_{n}():\n    assert f({n}) == {n}" for n in range(4))
    passes = number % 4 != 0
    outcome = CaseOutcome.PASSED if passes else CaseOutcome.FAILED
    cause = None if passes else Cause.SNIPPET
    cases = tuple(
        CaseResult(name=f"test_{n}", outcome=outcome, message="" if passes else _make_words(chance, 12), cause=cause)
        for n in range(4)
    )
    status = Status.PASSED if passes else Status.FAILED
    report = TestReport(status=status, cause=cause, cases=cases)
    broken = TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY, message="No module named 'numpy'")
    answer, reason = _make_words(chance, 60), _make_words(chance, 25)
    repair: list[HistoryItem] = [
        Execution(program=0, report=broken, seconds=0.1),
        Command(command="pip install numpy", outcome="installed", output="numpy==2.0"),
    ]
    is_repaired = number % 5 == 0
    annotation = {
        "label": 1 if passes else 0,
        "decided_by": "arbitrate",
        "reason": reason,
        "test": report,
        "stand_ins": ("FakeClient: a client",) if number % 3 == 0 else (),
        "repairs": int(is_repaired),
    }
    task = f"{pair.query}\n{pair.code}\n"
    events: list[HistoryItem] = [
        _make_exchange("generate_test", f"{task}{'Write a program. ' * 20}", f"{answer}\n{source}"),
        NodeRun(node="generate_test", outcome="generated", seconds=1.6),
        make_program(source),
        *(repair if is_repaired else ()),
        Execution(program=0, report=report, stdout=_make_words(chance, 20), exit_code=0, seconds=0.1),
        Execution(program=0, report=TestReport(status=Status.FAILED), purpose="sentinel", seconds=0.05),
        NodeRun(node="execute", outcome="evidence", seconds=0.3),
        _make_exchange("arbitrate", f"{task}{source}\n{'Decide. ' * 20}", reason),
        NodeRun(node="arbitrate", outcome="decided", seconds=1.5),
    ]  # fmt: skip
    return annotation, events


def commit(
    folder: RunFolder, number: int, pair: Pair, events: tuple[HistoryItem, ...] | None = None, **changes: Any
) -> None:
    """Annotate a pair. One in three is tested, one in fifty undecided, one in fifty an error.

    `events` replaces the default events.
    """
    chance = random.Random(number)
    is_tested = number % 3 == 0
    verdict = Verdict.UNCLEAR if is_tested else Verdict.MATCH if number % 3 == 1 else Verdict.NON_MATCH
    annotation, test_events = _make_tested(number, pair, chance) if is_tested else ({}, [])
    if not is_tested:
        reason = _make_words(chance, 20)
        annotation = {"label": int(verdict is Verdict.MATCH), "decided_by": "screen", "reason": reason}
    if number % 50 == 7:
        annotation |= {"label": None, "decided_by": "arbitrate"}
    if number % 50 == 8:
        error = ErrorInfo(type="ReplyError", message="no usable reply")
        annotation |= {"label": None, "decided_by": None, "reason": "", "error": error}
    screening = _make_exchange("screen", f"{pair.query}\n{pair.code}", str(annotation["reason"]))
    node_run = NodeRun(node="screen", outcome=verdict.value, seconds=1.6)
    history = History(pair=pair, events=(screening, node_run, *test_events) if events is None else events)
    usage = sum((model_call.usage for model_call in history.model_calls), Usage())
    fields = {"screen_verdict": verdict, "seconds": 2.5, "usage": usage, "meta": pair.meta, **annotation, **changes}
    folder.commit(Annotation(id=pair.id, input_sha256=pair.input_sha256(), **fields), history)


def make_pairs(count: int) -> list[Pair]:
    """Return pairs p0, p1, …, with four snippets per query."""
    queries = [_make_words(random.Random(-1 - number), 8) for number in range(count // 4 + 1)]
    return [
        Pair(id=f"p{number}", query=f"{queries[number // 4]} number {number}", code=_make_code(random.Random(number)),
             meta={"source": "made"})
        for number in range(count)
    ]  # fmt: skip


def make_run(path: Path, pairs: Iterable[Pair], **changes: Any) -> Path:
    """Make a finished run. `changes` are fields of every annotation."""
    pairs = list(pairs)
    with RunFolder(path, identity=IDENTITY, pairs=pairs, environment={"host": "secret-host"}) as folder:
        for number, pair in enumerate(pairs):
            commit(folder, number, pair, **changes)
    return path
