"""Implements `agent corpus answer`, which asks a model for answers to the questions of a Stack Exchange dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from shlex import quote
from typing import IO

import typer

from agent.cli.corpus_options import AnswerOptions
from agent.cli.exit_codes import DONE, SOME_ERRORS
from agent.cli.interrupts import run_interruptible
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, check_writable, stoppable
from agent.cli.settings import ChosenSettings
from agent.cli.summary import format_cost
from agent.cli.text import Console, one_line, print_json, print_text
from agent.corpus.answers import ANSWER, answer_questions, read_questions
from agent.datasets.encoding import dumps
from agent.errors import UsageError
from agent.llm.base import Call, Reply, close
from agent.llm.budget import Budget
from agent.llm.gateway import Gateway
from agent.llm.heuristic import HeuristicModel
from agent.llm.limits import Limits
from agent.pipeline.prompts import Prompts
from agent.runs.store.cache import SqliteReplyCache
from agent.runs.store.files import replacing


def run(folder: Path, out: Path, options: AnswerOptions) -> None:
    """Write a row with an answer for each question, print a summary, and exit."""
    notes = Console(stderr=True)
    settings = ChosenSettings(notes, options)
    session = _Session(settings, read_questions(folder, options.split, options.language, options.limit))
    check_corpus_output(out, [folder], force=options.force)
    check_writable(out.parent, settings.cache)
    with (
        stoppable(notes, f"Replies are cached in {settings.cache}. {out} is written when all are complete."),
        Steps(notes) as session.steps,
        replacing(out) as draft,
        draft.open("wb") as file,
    ):
        run_interruptible(session.write_answers(file))
    if options.as_json:
        print_json({"out": str(out), "statuses": session.statuses, "usage": session.budget.spent.model_dump()})
    else:
        counts = [f"{count:,} {status}" for status, count in session.statuses.items()]
        print_text(Console(), f"{out}: {', '.join([*counts, format_cost(session.budget.spent.cost_usd)])}")
        if session.statuses["answered"]:
            print_text(Console(), f"Next: agent score {quote(str(out))}")
    if session.last_error:
        print_text(notes, f"The last error: {one_line(session.last_error, 300)}")
    raise typer.Exit(SOME_ERRORS if session.last_error else DONE)


class _Session:
    steps: Steps
    last_error = ""

    def __init__(self, settings: ChosenSettings, questions: Sequence[Mapping[str, str]]) -> None:
        self.settings, self.models, self.prompts = settings, settings.models(), Prompts(settings.prompts, [ANSWER])
        self.models.check([ANSWER.name])
        if isinstance(self.models.for_role(ANSWER.name), HeuristicModel):
            raise UsageError("--model heuristic: has no rules for answers. Pass the name of a model, or replay:FILE.")
        self.budget, self.statuses, self.questions = Budget.of(settings.config.runner), Counter[str](), questions

    async def write_answers(self, file: IO[bytes]) -> None:
        async with AsyncExitStack() as stack:
            cache = stack.enter_context(SqliteReplyCache(self.settings.cache))
            for model in self.models.list_models():
                stack.push_async_callback(close, model)
            limits = Limits(self.settings.config.runner, self.show)
            gateway = Gateway(
                self.models, cache=cache, limits=limits, budget=self.budget, on_reply=self.count, on_wait=self.show
            )
            await stack.enter_async_context(self.budget.enforce_deadline())
            answers = answer_questions(self.questions, gateway, self.prompts, limits.count_pairs)
            async for answer in await stack.enter_async_context(aclosing(answers)):
                file.write(dumps(answer) + b"\n")
                self.statuses[answer["status"]] += 1
                self.last_error = answer["error"] or self.last_error
                self.show(format_cost(self.budget.spent.cost_usd))

    def count(self, _: Call, reply: Reply) -> None:
        self.budget.add(reply.saved)  # earlier sessions paid for cached replies

    def show(self, detail: str, _seconds: float = 0) -> None:
        self.steps.detail = one_line(detail)
        self.steps("answering", self.statuses.total(), len(self.questions))
