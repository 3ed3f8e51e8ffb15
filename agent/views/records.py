"""What the page knows of each pair: a row to list and filter, a story to search and read, the evidence to open."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from agent.datasets.encoding import dumps
from agent.evaluation.calibration import bin_of
from agent.history import Exchange, Execution, History
from agent.prompt_text import cut
from agent.types import Pair, TestReport
from agent.views.figures.base import Seen

COLUMNS = (
    "id", "round", "query", "label", "majority", "decided_by", "screened", "status", "cause", "error", "stand_ins",
    "repairs", "confidence", "confidence_bin", "strength", "strength_bin", "seconds", "cost", "against", "gold",
    "evidence",
)  # fmt: skip
_QUERY_LIMIT = 300
TEXT_LIMIT = 60_000


def row(seen: Seen, pair: Pair, place: tuple[str, int, int] | None, whole: Seen) -> bytes:
    """Return an annotation's row in JSON, in the order of `COLUMNS`.

    `place` says where its evidence is, `whole` is the pair over all rounds.
    """
    found, test = seen.annotation, seen.annotation.test
    values: dict[str, Any] = {
        "id": found.id,
        "round": found.round,
        "query": cut(pair.query, _QUERY_LIMIT),
        "label": seen.label,
        "majority": whole.label,
        "decided_by": found.decided_by,
        "screened": None if found.screen_verdict is None else found.screen_verdict.value,
        "status": None if test is None else test.outcome,
        "cause": None if test is None or test.cause is None else test.cause.value,
        "error": None if found.error is None else found.error.type,
        "stand_ins": len(found.stand_ins),
        "repairs": found.repairs,
        "confidence": found.confidence,
        "confidence_bin": None if found.confidence is None else bin_of(found.confidence),
        "strength": found.strength,
        "strength_bin": None if found.strength is None else bin_of(found.strength),
        "seconds": found.seconds,
        "cost": found.usage.cost_usd,
        "against": int(found.against_test),
        "gold": seen.gold,
        "evidence": place,
    }
    return dumps([values[name] for name in COLUMNS])


def story(seen: Seen, pair: Pair) -> bytes:
    """Return what is known of a pair without its evidence, in JSON."""
    found = seen.annotation
    told: dict[str, Any] = {
        "query": cut(pair.query, TEXT_LIMIT),
        "code": cut(pair.code, TEXT_LIMIT),
        "language": pair.language,
        "context": None if pair.context is None else cut(pair.context, TEXT_LIMIT),
        "reason": cut(found.reason, TEXT_LIMIT),
        "error": None if found.error is None else found.error.model_dump(),
        "test": None if found.test is None else _report(found.test),
        "simulated": None if found.simulated is None else found.simulated.model_dump(),
        "reading": found.reading,
        "stand_ins": found.stand_ins,
        "installed": found.installed,
        "votes": found.votes,
        "abstained": found.abstained,
        "usage": found.usage.model_dump(),
        "meta": cut(dumps(found.meta, indent=True).decode("utf-8"), TEXT_LIMIT) if found.meta else None,
    }
    return dumps({name: value for name, value in told.items() if value not in (None, (), "", False)})


def evidence(found: History, shared: Callable[[str], int | None]) -> bytes:
    """Return what led to a label, in JSON; `shared` gives the number of a text that many pairs have."""
    told: dict[str, Any] = {
        "spec": None if found.spec is None else found.spec.model_dump(),
        "mutants": [
            {"kind": one.kind, "change": cut(one.change, TEXT_LIMIT), "status": status.value}
            for one, status in ((each.mutant, each.report.status) for each in found.mutants)
            if one is not None
        ],
        "exchanges": [_exchange(each, shared) for each in found.exchanges],
        "executions": [_execution(each, found.programs[each.program].source) for each in found.tests],
        "commands": [
            {"command": each.command, "outcome": each.outcome, "output": cut(each.output, TEXT_LIMIT)}
            for each in found.commands
        ],
        "visits": [[each.node, each.outcome, each.seconds] for each in found.visits],
    }
    return dumps({name: value for name, value in told.items() if value})


class SharedTexts:
    """Numbers the system messages, which are the same for all pairs, so that each is in the page once."""

    def __init__(self, most: int = 200) -> None:
        self.texts: list[str] = []
        self._most = most
        self._numbers: dict[bytes, int] = {}

    def __call__(self, text: str) -> int | None:
        """Return a text's number, None when there are too many texts to share another."""
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._numbers:
            if len(self.texts) >= self._most:
                return None
            self._numbers[key] = len(self.texts)
            self.texts.append(cut(text, TEXT_LIMIT))
        return self._numbers[key]


def _exchange(found: Exchange, shared: Callable[[str], int | None]) -> dict[str, Any]:
    return {
        "role": found.role,
        "model": found.model,
        "cached": found.cached,
        "problem": found.problem,
        "reply": cut(found.reply, TEXT_LIMIT),
        "seconds": found.seconds,
        "usage": found.usage.model_dump(exclude_defaults=True),
        "saved": found.saved.cost_usd,
        "messages": [_message(message, shared) for message in found.messages],
    }


def _message(message: dict[str, str], shared: Callable[[str], int | None]) -> tuple[str, str | int]:
    role, text = message.get("role", ""), message.get("content", "")
    number = shared(text) if role == "system" else None
    return role, cut(text, TEXT_LIMIT) if number is None else number


def _execution(found: Execution, source: str) -> dict[str, Any]:
    told = {
        "source": cut(source, TEXT_LIMIT),
        "report": _report(found.report),
        "installed": found.installed,
        "environment": found.environment,
        "exit_code": found.exit_code,
        "signal": found.signal,
        "timed_out": found.timed_out,
        "shared": found.shared,
        "stdout": cut(found.stdout, TEXT_LIMIT),
        "stderr": cut(found.stderr, TEXT_LIMIT),
        "seconds": found.seconds,
    }
    return {name: value for name, value in told.items() if value not in (None, (), "", False)}


def _report(report: TestReport) -> dict[str, Any]:
    return {
        "status": report.outcome,
        "cause": None if report.cause is None else report.cause.value,
        "message": cut(report.message, TEXT_LIMIT),
        "cases": [
            [case.name, case.outcome.value, cut(case.message, TEXT_LIMIT), case.cause and case.cause.value]
            for case in report.cases
        ],
    }
