"""Asks a model for answers to the questions of a Stack Exchange dataset, as in section 3.7 of the ProCQA paper."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Any

from agent.datasets.benchmarks.building import read_rows
from agent.datasets.benchmarks.pairs import find_part_files
from agent.datasets.benchmarks.triples import is_triples
from agent.errors import ModelError, Outage, UsageError
from agent.llm.base import Call, Reply
from agent.llm.gateway import Gateway
from agent.llm.parsing import UnreadableReply, is_blank, strip_thinking
from agent.pipeline.asker import CUT_OFF, FILTERED
from agent.pipeline.prompts import Prompts, Role
from agent.streams import run_concurrently
from agent.text import replace_surrogates
from agent.types import normalise_language

ANSWER = Role("answer", {"question": "Reverse a list\nHow do I do that?", "language": "python"})
MAX_CONSECUTIVE_ERRORS = 20


def read_questions(folder: Path, split: str, language: str | None, limit: int | None) -> list[dict[str, str]]:
    """Return the first questions of a part, with ids and references.

    Raises:
        UsageError: the folder has no such part, or the part has no such question.
    """
    paths = find_part_files(folder) if is_triples(folder) else {}
    if split not in paths:
        remedy = f"Choose from {', '.join(paths)}" if paths else "Pass a folder of `agent corpus stackexchange`"
        raise UsageError(f"{folder}: has no split {split!r}. {remedy}.")
    wanted = None if language is None else normalise_language(language)
    rows = (row for row in read_rows(paths[split]) if wanted in (None, normalise_language(row.get_text("language"))))
    names = {"language": "language", "question": "query", "reference": "code"}
    questions = [
        {"id": row.get_id("id"), **{name: row.get_text(field) for name, field in names.items()}}
        for row in islice(rows, limit)
    ]
    if not questions:
        languages = ", ".join(sorted({row.get_text("language") for row in read_rows(paths[split])})) or "none"
        raise UsageError(f"{paths[split]}: has no such questions (--language). Its languages: {languages}.")
    return questions


async def answer_questions(
    questions: Iterable[Mapping[str, str]], gateway: Gateway, prompts: Prompts, concurrency: Callable[[], int]
) -> AsyncGenerator[dict[str, Any], None]:
    """Ask one question per call, and iterate over the answers in the order of the questions.

    If there is no usable answer, `answer` is null, `status` says why, and `error` contains the message of an error.

    Raises:
        RunStopped: no call can succeed, many consecutive calls failed, the budget is used up, or the disk is full.
    """
    model = str(gateway.models.for_role(ANSWER.name).identity().get("model"))

    async def ask(row: Mapping[str, str]) -> dict[str, Any]:
        messages = prompts.render(ANSWER, {name: row[name] for name in ("question", "language")})
        answer = cause = None
        try:
            status, answer = read_answer(await gateway.ask(Call(ANSWER.name, messages, pair_id=row["id"])))
        except (ModelError, UnreadableReply) as error:
            status = "error"
            cause = f"{type(error).__name__}: {error}"
        return {**row, "answer": answer, "status": status, "error": cause, "model": model}

    errors = 0
    async with aclosing(run_concurrently(questions, ask, concurrency=concurrency, ordered=True)) as answers:
        async for answer in answers:
            errors = errors + 1 if answer["error"] else 0
            if errors == MAX_CONSECUTIVE_ERRORS:
                raise Outage(f"{errors} consecutive questions ended in an error. The last one: {answer['error']}")
            yield answer


def read_answer(reply: Reply) -> tuple[str, str | None]:
    """Return the status of a reply and its answer.

    Raises:
        UnreadableReply: the reply ends before the answer.
    """
    if reply.finish_reason in FILTERED | {"refusal"}:
        return "refused", None
    text = None if is_blank(reply.text) else replace_surrogates(strip_thinking(reply.text)).strip()
    return "cut off" if reply.finish_reason in CUT_OFF else "answered" if text else "empty", text
