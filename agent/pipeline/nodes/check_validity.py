"""Validity: a program that also passes on wrong code proves nothing about the snippet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from agent.languages.base import MalformedProgram, MutantKind, Mutation
from agent.pipeline.history import Mutant, Purpose
from agent.pipeline.nodes.execute import build_job, run_program
from agent.pipeline.state import Node, State, Step, Tools
from agent.types import Status

_RETURN_CHANGES: Mapping[str, str] = {
    MutantKind.RETURNS_NOTHING: "does nothing and returns nothing",
    MutantKind.RETURNS_FIRST_ARGUMENT: "returns its first argument unchanged",
}
_MOCKS: Mapping[str, str] = {
    MutantKind.SAYS_NO: "returns an object that accepts any use and is always false",
    MutantKind.SAYS_YES: "returns an object that accepts any use and is always true",
}
_REPLACEMENTS: Mapping[str, str] = {**_RETURN_CHANGES, **_MOCKS, MutantKind.RAISES: "always raises an error"}
_PATIENCE = 3
"""Timeout of a mutant, as a multiple of the snippet's run time."""


@dataclass(frozen=True)
class MutantResult:
    """The kind of a mutant, and the status of the program's run on it."""

    kind: str
    status: Status

    @property
    def killed(self) -> bool:
        """Whether the program did not pass."""
        return self.status is not Status.PASSED


class CheckValidity(Node):
    """After a program has passed, run it on mutants of the snippet and on replacements that cannot be correct.

    A mutant is *killed* if the program does not pass on it: a case fails, an error occurs anywhere, or the program
    times out. The share of killed mutants is the program's `strength`. Mutants that happen to be correct survive even
    sound programs, so a strength below 1 does not discredit a program.

    A program is *vacuous* if it detects only crashes. A failed assertion shows that it detects more, unless the code
    raised an error. Without a failed assertion, an error may come from a check (`if f(x) != y: raise`) or from the use
    of a missing result (`len(f(x))`). A universal mock distinguishes these cases, because no operation on it fails.
    Universal mocks do not count towards the strength.

    Code that only has side effects needs no special case, because a replacement that does nothing has no side effects.
    Inspecting a result's type, or whether there is a result, counts as a check. So does passing the result to a
    function that accepts only one type (`json.loads(f(x))`). Programs with only such checks have a low strength.

    A vacuous program is rewritten once; `weakness` describes the wrong code that it passed on. Its report stays marked
    as vacuous until another program's report replaces it.
    """

    name = "check_validity"
    requires = frozenset({"pair", "program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"checked": frozenset(), "vacuous": frozenset({"weakness"})}
    bypass = "checked"
    uses_sandbox = True
    settings = frozenset({"mutants", "mutant_timeout", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `vacuous` if the program should be rewritten, or `checked` with the program's strength."""
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
        # files from the last mutant must not affect the next program
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
        # short, because mutants may never finish, but long enough for the snippet
        seconds = state["result"].seconds if "result" in state else 0.0
        timeout = min(tools.config.test_timeout, max(tools.config.mutant_timeout, _PATIENCE * seconds))
        job = replace(build_job(program, environment, tools), timeout=timeout)
        # files from the snippet or another mutant must not affect this mutant
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


def is_vacuous(results: Sequence[MutantResult]) -> bool | None:
    """Return whether a program detected only crashes, or None if a run on universal mocks is needed to decide."""
    relevant = [result for result in results if result.kind != MutantKind.RAISES]
    if any(result.status is Status.FAILED for result in relevant):
        return False
    mocks = [result for result in relevant if result.kind in _MOCKS]
    if mocks:
        # an error on a mock comes from a check in the program; a timeout comes from a loop that waits for a
        # different result
        return not any(result.status is Status.ERROR for result in mocks)
    crashed = any(result.killed for result in relevant if result.kind in _RETURN_CHANGES)
    return None if crashed or not relevant else True


def describe_weakness(results: Sequence[MutantResult]) -> str:
    """Describe the kinds of wrong code that a program passed on, without revealing the snippet's body."""
    passed = [result for result in results if not result.killed]
    passing = [f"code that {_REPLACEMENTS[result.kind]}" for result in passed if result.kind in _REPLACEMENTS]
    kinds = Counter(result.kind for result in passed if result.kind not in _REPLACEMENTS)
    passing += [f"code with the change '{kind.replace('_', ' ')}' ({count} tried)" for kind, count in kinds.items()]
    also = f" All test cases also pass for {', '.join(passing)}." if passing else ""
    return f"No test case fails an assertion when the code under test does something else.{also}"
