"""Test Program Generator (CoSQA+ paper, section IV-C b): writes a program for one plausible reading of the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agent.languages.base import Language, MalformedProgram, Module, Snippet
from agent.llm import parsing
from agent.pipeline.history import Program
from agent.pipeline.nodes.asking import PAIR, collect_pair_variables
from agent.pipeline.state import Node, Role, State, Step, Tools
from agent.types import Status, TestReport

TEST = Role(
    "generate_test",
    {
        **PAIR,
        "marker": "# <candidate>",
        "advice": ("reverse(values)",),
        "weakness": "it passes whatever the code returns",
    },
)
TEST_IN_MODULE = TEST.with_version("in_module", outline="from lists import reverse")
TEST_BY_RULES = TEST.with_version("by_rules", rules="A case is a function named test_...")


def choose_test_role(language: Language) -> Role:
    """Return the role that writes programs in a language."""
    return TEST_BY_RULES if language.prompt_rules else TEST


class GenerateTest(Node):
    """Ask for a program with a marker, and insert the snippet verbatim at the marker.

    In its own module, the snippet has no marker but is imported. If an earlier program proved nothing, the prompt says
    why.
    """

    name = "generate_test"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "generated": frozenset({"program"}),
        "snippet_error": frozenset({"report"}),
    }
    roles = (TEST, TEST_IN_MODULE, TEST_BY_RULES)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the program, or an error report if the snippet cannot be parsed.

        Raises:
            SnippetTooLarge: the snippet exceeds the size limit; no call was made.
        """
        language, module = tools.language, state.get("module")
        snippet = language.inspect(state["pair"].code)
        if snippet.problem is not None:
            report = TestReport(status=Status.ERROR, cause=snippet.cause, message=snippet.problem)
            return Step("snippet_error", {"snippet": snippet, "report": report})
        fence = language.program_fence or language.fence
        variables = {
            **collect_pair_variables(state, tools),
            "fence": fence,
            "marker": language.marker,
            "advice": snippet.advice if module is None else (),  # advice tells what to stand in for
            "weakness": state.get("weakness"),
        }
        role = choose_test_role(language) if module is None else TEST_IN_MODULE
        if module is not None:
            variables["outline"] = module.outline
        elif role is TEST_BY_RULES:
            variables["rules"] = language.prompt_rules

        def parse(text: str) -> tuple[parsing.ProgramReply, Program]:
            reply = parsing.parse_program(text, fence)
            return reply, _insert(language, reply.template, snippet, module)

        reply, program = await tools.asker.ask(role, variables, parse)
        return Step(
            "generated",
            {
                "snippet": snippet,
                "program": program.with_stand_ins(reply.stand_ins),
                "reading": reply.reading,
                # a new program does not include the repairs of the earlier one, so it may need as many repairs
                "rounds": 0,
                "installs": 0,
            },
        )


def _insert(language: Language, template: str, snippet: Snippet, module: Module | None) -> Program:
    """Insert a snippet. The model is asked again only if it wrote a malformed program, not if the language fails."""
    try:
        if module is not None:
            return language.insert_in_module(template, snippet, module)
        return language.insert(template, snippet)
    except MalformedProgram:
        raise
    except ValueError as error:
        raise RuntimeError(f"{type(language).__name__}.insert raised {type(error).__name__}: {error}") from error
