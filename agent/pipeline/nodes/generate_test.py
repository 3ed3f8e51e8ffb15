"""Test Program Generator (CoSQA+ paper, section IV-C b): writes a program for one plausible reading of the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agent.languages.base import Language, MalformedProgram, Snippet
from agent.llm import parsing
from agent.pipeline.history import Program
from agent.pipeline.nodes.asking import (
    PAIR,
    QUERY,
    choose_reading,
    collect_pair_variables,
    collect_query_variables,
    count_readings,
)
from agent.pipeline.state import Node, Role, Scaffold, State, Step, Tools
from agent.types import Status, TestReport

_CLASH = (
    "the cases cannot be combined with the code in one file: use names that start with given_ for your helpers, "
    "constants and classes"
)

_WEAKNESS = "it passes whatever the code returns"
_ABOUT_SNIPPET = {**PAIR, "marker": "# <candidate>", "advice": ("reverse(values)",)}
TEST = Role("generate_test", {**_ABOUT_SNIPPET, "weakness": _WEAKNESS})
SCAFFOLD = Role("scaffold", _ABOUT_SNIPPET)
BLIND = Role(
    "generate_blind",
    {
        **QUERY,
        **{name: PAIR[name] for name in ("spec", "fence")},
        "marker": "# <candidate>",
        "signature": "def reverse(values):\n    ...\n",
        "surroundings": "import json",
        "weakness": _WEAKNESS,
    },
)


class GenerateTest(Node):
    """Ask for a program with a marker, and insert the snippet verbatim at the marker.

    If an earlier program proved nothing, the prompt says why.
    """

    name = "generate_test"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "generated": frozenset({"program"}),
        "snippet_error": frozenset({"report"}),
    }
    roles: tuple[Role, ...] = (TEST,)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the program, or an error report if the snippet cannot be parsed.

        Raises:
            SnippetTooLarge: the snippet exceeds the size limit; no call was made.
        """
        snippet = tools.language.inspect(state["pair"].code)
        if snippet.problem is not None:
            report = TestReport(status=Status.ERROR, cause=snippet.cause, message=snippet.problem)
            return Step("snippet_error", {"snippet": snippet, "report": report})
        # a new program does not include the repairs of the earlier one, so it may need as many repairs
        update = await self._write(snippet, state, tools)
        return Step("generated", {"snippet": snippet, "rounds": 0, "installs": 0, **update})

    async def _write(self, snippet: Snippet, state: State, tools: Tools) -> State:
        language = tools.language

        def parse(text: str) -> tuple[parsing.ProgramReply, Program]:
            reply = parsing.parse_program(text, language.fence, count_readings(state))
            return reply, _insert(language, reply.template, snippet)

        variables = {**_collect_snippet_variables(snippet, state, tools), "weakness": state.get("weakness")}
        reply, program = await tools.asker.ask(TEST, variables, parse)
        return {
            "program": program.with_stand_ins(reply.stand_ins),
            "reading": reply.reading,
            **choose_reading(state, reply.number),
        }


def _insert(language: Language, template: str, snippet: Snippet) -> Program:
    """Insert a snippet. The model is asked again only if it wrote a malformed program, not if the language fails."""
    try:
        return language.insert(template, snippet)
    except MalformedProgram:
        raise
    except ValueError as error:
        raise RuntimeError(f"{type(language).__name__}.insert raised {type(error).__name__}: {error}") from error


class GenerateBlind(GenerateTest):
    """Ask for test cases with a prompt that does not show the code's body.

    A model that sees the code tends to assert whatever the code does. The first call therefore shows the code, but asks
    only for scaffolding without test cases. The second call asks for the cases. Its prompt shows the query, the
    readings, and the signatures of the code and the scaffolding. Neither this prompt nor an error message about the
    reply contains bodies, docstrings, comments or the pair's context. Both may contain names, parameters, annotations,
    decorators and the snippet's own defaults.

    Fragments, and snippets without a function or class, have no signature. For these, the program is written
    in the same way as in `GenerateTest`. The roles of the recorded model calls show which way was used.
    """

    name = "generate_blind"
    plain = "generate_test"
    roles = (SCAFFOLD, BLIND, TEST)

    async def _write(self, snippet: Snippet, state: State, tools: Tools) -> State:
        language = tools.language
        signature = language.signature(snippet)
        if signature is None:
            return await super()._write(snippet, state, tools)
        scaffold = state.get("scaffold") or await self._request_scaffold(snippet, state, tools)

        def parse(text: str) -> tuple[parsing.ProgramReply, Program]:
            reply = parsing.parse_program(text, language.fence, count_readings(state))
            template = f"{scaffold.template.rstrip()}\n\n\n{reply.template.strip()}\n"
            language.insert(template, Snippet(signature))  # error messages then quote only the signature
            try:
                return reply, language.insert(template, snippet)
            except MalformedProgram as error:
                raise MalformedProgram(_CLASH) from error

        variables = {
            **collect_query_variables(state, tools),
            "spec": state.get("spec"),
            "fence": language.fence,
            "marker": language.marker,
            "signature": signature,
            "surroundings": scaffold.surroundings,
            "weakness": state.get("weakness"),
        }
        reply, program = await tools.asker.ask(BLIND, variables, parse)
        return {
            "scaffold": scaffold,
            "program": program.with_stand_ins((*scaffold.stand_ins, *reply.stand_ins)),
            "reading": reply.reading,
            **choose_reading(state, reply.number),
        }

    async def _request_scaffold(self, snippet: Snippet, state: State, tools: Tools) -> Scaffold:
        language = tools.language

        def parse(text: str) -> Scaffold:
            reply = parsing.parse_program(text, language.fence)
            return Scaffold(reply.template, reply.stand_ins, language.surroundings(reply.template, snippet))

        return await tools.asker.ask(SCAFFOLD, _collect_snippet_variables(snippet, state, tools), parse)


def _collect_snippet_variables(snippet: Snippet, state: State, tools: Tools) -> dict[str, Any]:
    return {**collect_pair_variables(state, tools), "marker": tools.language.marker, "advice": snippet.advice}
