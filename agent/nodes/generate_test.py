"""Test Program Generator (paper, section IV-C b): writes a program for one plausible reading of the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.languages.base import Program
from agent.llm import parsing
from agent.nodes.asking import about_pair, chosen, readings
from agent.state import State, Step, Tools
from agent.types import Cause, Status, TestReport


class GenerateTest:
    """Ask for a program with a marker, and put the snippet verbatim in its place."""

    name = "generate_test"
    requires = frozenset({"pair"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "generated": frozenset({"program", "stand_ins"}),
        "snippet_error": frozenset({"report"}),
    }
    bypass = None
    uses_sandbox = False
    role = "generate_test"

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the program, or the finding that the snippet does not parse."""
        language = tools.language
        snippet = language.inspect(state["pair"].code)
        if snippet.problem is not None:
            report = TestReport(status=Status.ERROR, cause=Cause.SNIPPET, message=snippet.problem)
            return Step("snippet_error", {"snippet": snippet, "report": report})

        def parse(text: str) -> tuple[parsing.ProgramReply, Program]:
            reply = parsing.parse_program(text, language.fence, readings(state))
            return reply, language.insert(reply.template, snippet)

        variables = {**about_pair(state, tools), "marker": language.marker, "advice": snippet.advice}
        reply, program = await tools.asker.ask("generate_test", variables, parse, reply="text")
        return Step(
            "generated",
            {
                "snippet": snippet,
                "program": program,
                "stand_ins": tuple(reply.stand_ins),
                "reading": reply.reading,
                **chosen(state, reply.number),
            },
        )
