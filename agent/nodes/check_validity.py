"""Validity: a program that also passes on wrong code proves nothing about the snippet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from agent.history import Mutant, Purpose
from agent.languages.base import MalformedProgram, MutantKind, Mutation
from agent.nodes.execute import build_job, run_program
from agent.state import Node, State, Step, Tools
from agent.types import Status

_RETURN_CHANGES: Mapping[str, str] = {
    MutantKind.RETURNS_NOTHING: "does nothing and returns nothing",
    MutantKind.RETURNS_FIRST_ARGUMENT: "returns its first argument unchanged",
}
_MOCKS: Mapping[str, str] = {
    MutantKind.SAYS_NO: "returns what goes along with everything and says no to whatever it is asked",
    MutantKind.SAYS_YES: "returns what goes along with everything and says yes to whatever it is asked",
}
_REPLACEMENTS: Mapping[str, str] = {**_RETURN_CHANGES, **_MOCKS, MutantKind.RAISES: "always raises an error"}
_PATIENCE = 3
"""Timeout of a mutant, as a multiple of the snippet's run time."""


@dataclass(frozen=True)
class MutantResult:
    """The status of a program's run on a mutant of one kind."""

    kind: str
    status: Status

    @property
    def killed(self) -> bool:
        """Whether the program did not pass."""
        return self.status is not Status.PASSED


class CheckValidity(Node):
    """Run a passed program on mutants of the snippet and on replacements that cannot be right.

    A mutant is *killed* if the program does not pass: a failed case, an error anywhere, a timeout. The share of killed
    mutants is the program's `strength`. Mutants that happen to be right survive sound programs, too, so a strength
    below 1 does not discredit a program.

    A program is *vacuous* if it notices nothing but crashes. A failed assertion is more than a crash unless the code
    raised. Without a failed assertion, an error may be a check (`if f(x) != y: raise`) or the use of a missing result
    (`len(f(x))`). A universal mock distinguishes them, because no operation on it fails. It does not count towards the
    strength.

    Code that only has side effects needs no special case, because a replacement that does nothing has none. Inspecting
    a result's type, or whether there is a result, counts as a check. So does passing the result to a function that
    accepts only one type (`json.loads(f(x))`). Such checks have a low strength.

    A vacuous program is rewritten once; `weakness` says what it passed. Its report stays marked as vacuous until
    another program's report replaces it.
    """

    name = "check_validity"
    requires = frozenset({"pair", "program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"checked": frozenset(), "vacuous": frozenset({"weakness"})}
    bypass = "checked"
    uses_sandbox = True
    settings = frozenset({"mutants", "mutant_timeout", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `vacuous` if the program should be rewritten, else `checked` with its strength."""
        unknown: State = {"strength": None}
        if state["report"].status is not Status.PASSED:
            return Step("checked", unknown)
        snippet = tools.language.inspect(state["pair"].code)
        mutant_results = await self._run_mutants(tools.language.mutants(snippet, tools.config.mutants), state, tools)
        if not mutant_results:
            return Step("checked", unknown)
        results, vacuous = mutant_results, is_vacuous(mutant_results)
        if vacuous is None:
            results = (*results, *await self._run_mutants(tools.language.universal_mocks(snippet), state, tools))
            vacuous = is_vacuous(results)
        # files from the last mutant must not be attributed to another program's snippet
        await tools.sandbox.renew()
        checked: State = {"strength": sum(result.killed for result in mutant_results) / len(mutant_results)}
        if not vacuous:
            return Step("checked", checked)
        weakness = describe_weakness(results)
        # the arbiter's prompt contains the report's message
        message = f"the program proves nothing. {weakness}"
        report = state["report"].model_copy(update={"vacuous": True, "message": message})
        if "weakness" in state:
            return Step("checked", {**checked, "report": report})
        return Step("vacuous", {**unknown, "weakness": weakness, "report": report})

    async def _run_mutants(self, mutants: Sequence[Mutation], state: State, tools: Tools) -> tuple[MutantResult, ...]:
        results = [await self._run_mutant(mutant, state, tools) for mutant in mutants]
        return tuple(result for result in results if result is not None)

    async def _run_mutant(self, mutant: Mutation, state: State, tools: Tools) -> MutantResult | None:
        """Run the program on a mutant. Return None if the mutant cannot replace the snippet."""
        try:
            program = tools.language.insert(state["program"].template, mutant.snippet)
        except MalformedProgram:
            return None
        environment = state.get("environment")
        job = replace(build_job(program, environment, tools), timeout=_choose_timeout(state, tools))
        # files from the snippet or another mutant must not be attributed to this mutant
        await tools.sandbox.renew()
        purpose: Purpose = "mock" if mutant.kind in _MOCKS else "mutant"
        _result, report = await run_program(
            state["program"],
            job,
            environment,
            tools,
            purpose=purpose,
            mutant=(Mutant(kind=mutant.kind, change=mutant.change), program),
        )
        return MutantResult(mutant.kind, report.status)


def _choose_timeout(state: State, tools: Tools) -> float:
    """Return a timeout in seconds: short, because mutants may never end, but enough for what the snippet needed."""
    seconds = state["result"].seconds if "result" in state else 0.0
    return min(tools.config.test_timeout, max(tools.config.mutant_timeout, _PATIENCE * seconds))


def is_vacuous(results: Sequence[MutantResult]) -> bool | None:
    """Return whether a program noticed nothing but crashes, or None if only a universal mock can decide."""
    relevant = [result for result in results if result.kind != MutantKind.RAISES]
    if any(result.status is Status.FAILED for result in relevant):
        return False
    mocks = [result for result in relevant if result.kind in _MOCKS]
    if mocks:
        # an error on a mock is a check of the program; a timeout is a loop that waits for another result
        return not any(result.status is Status.ERROR for result in mocks)
    crashed = any(result.killed for result in relevant if result.kind in _RETURN_CHANGES)
    return None if crashed or not relevant else True


def describe_weakness(results: Sequence[MutantResult]) -> str:
    """Describe the wrong code that a program passed on, by kinds: the reader must not learn the snippet's body."""
    passed = [result for result in results if not result.killed]
    passing = [f"code that {_REPLACEMENTS[result.kind]}" for result in passed if result.kind in _REPLACEMENTS]
    kinds = Counter(result.kind for result in passed if result.kind not in _REPLACEMENTS)
    passing += [f"code with a {kind.replace('_', ' ')} ({count} tried)" for kind, count in kinds.items()]
    also = f" All its cases pass for {', '.join(passing)}." if passing else ""
    return f"No case of the program fails an assertion when the tested code does something else.{also}"
