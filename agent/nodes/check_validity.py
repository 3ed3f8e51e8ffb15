"""Validity: a program that wrong code passes as well proves nothing of the snippet."""

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

_RETURNING: Mapping[str, str] = {
    MutantKind.RETURNS_NOTHING: "does nothing and returns nothing",
    MutantKind.RETURNS_FIRST_ARGUMENT: "returns its first argument unchanged",
}
_MOCKS: Mapping[str, str] = {
    MutantKind.SAYS_NO: "returns what goes along with everything and says no to whatever it is asked",
    MutantKind.SAYS_YES: "returns what goes along with everything and says yes to whatever it is asked",
}
_STAND_INS: Mapping[str, str] = {**_RETURNING, **_MOCKS, MutantKind.RAISES: "always raises an error"}
_PATIENCE = 3
"""How many times as long as the snippet a mutant may take."""


@dataclass(frozen=True)
class MutantResult:
    """A kind of mutant, and how the program ended on one."""

    kind: str
    status: Status

    @property
    def killed(self) -> bool:
        """Whether the program noticed."""
        return self.status is not Status.PASSED


class CheckValidity(Node):
    """Run a program that passed on stand-ins of the snippet that cannot be right, and on mutants of it.

    A mutant is *killed* when the program does not pass: a failed case, an error at any place, a time-out. The share
    of the killed is the program's `strength`. Mutants that happen to be right survive sound programs too: a strength
    below 1 says nothing against a program.

    A program is *vacuous* when nothing but crashes was noticed. An assertion that failed is more than that, unless the
    code had raised. Where none did, an error may come of a check (`if f(x) != y: raise`), or of using a result that is
    not there (`len(f(x))`). A universal mock shows which: whatever is done with it, it does not break. It is no measure
    of strength. Code that works by its effects alone is no exception, as a stand-in that does nothing has none. To look
    at a result's type, or whether there is one, is a check, and so is to hand it to what takes one type only
    (`json.loads(f(x))`): that they are worth little is what the strength says.

    A vacuous program is written again, once; `weakness` says what it passed. The report keeps that it is vacuous,
    until another program's takes its place.
    """

    name = "check_validity"
    requires = frozenset({"pair", "program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"checked": frozenset(), "vacuous": frozenset({"weakness"})}
    bypass = "checked"
    uses_sandbox = True
    settings = frozenset({"mutants", "mutant_timeout", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `vacuous` when another program should be written, else `checked` with the program's strength."""
        unknown: State = {"strength": None}
        if state["report"].status is not Status.PASSED:
            return Step("checked", unknown)
        snippet = tools.language.inspect(state["pair"].code)
        on_mutants = await self._run_mutants(tools.language.mutants(snippet, tools.config.mutants), state, tools)
        if not on_mutants:
            return Step("checked", unknown)
        tried, vacuous = on_mutants, is_vacuous(on_mutants)
        if vacuous is None:
            tried = (*tried, *await self._run_mutants(tools.language.universal_mocks(snippet), state, tools))
            vacuous = is_vacuous(tried)
        # what the last one left would pass for the work of another program's snippet
        await tools.sandbox.renew()
        checked: State = {"strength": sum(one.killed for one in on_mutants) / len(on_mutants)}
        if not vacuous:
            return Step("checked", checked)
        weakness = describe_weakness(tried)
        # the arbiter reads the message with the report
        message = f"the program proves nothing. {weakness}"
        report = state["report"].model_copy(update={"vacuous": True, "message": message})
        if "weakness" in state:
            return Step("checked", {**checked, "report": report})
        return Step("vacuous", {**unknown, "weakness": weakness, "report": report})

    async def _run_mutants(self, mutants: Sequence[Mutation], state: State, tools: Tools) -> tuple[MutantResult, ...]:
        tried = [await self._run_mutant(mutant, state, tools) for mutant in mutants]
        return tuple(one for one in tried if one is not None)

    async def _run_mutant(self, mutant: Mutation, state: State, tools: Tools) -> MutantResult | None:
        """Run the program on a mutant. Return None if the mutant cannot take the snippet's place."""
        try:
            program = tools.language.insert(state["program"].template, mutant.snippet)
        except MalformedProgram:
            return None
        environment = state.get("environment")
        job = replace(build_job(program, environment, tools), timeout=_choose_timeout(state, tools))
        # what the snippet left behind, or another mutant, would pass for the work of this one
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
    """Return seconds: short, as mutants may never end, but not too short for what the snippet itself needed."""
    taken = state["result"].seconds if "result" in state else 0.0
    return min(tools.config.test_timeout, max(tools.config.mutant_timeout, _PATIENCE * taken))


def is_vacuous(tried: Sequence[MutantResult]) -> bool | None:
    """Say whether a program noticed nothing but crashes; None where that takes a universal mock."""
    relevant = [one for one in tried if one.kind != MutantKind.RAISES]
    if any(one.status is Status.FAILED for one in relevant):
        return False
    mocks = [one for one in relevant if one.kind in _MOCKS]
    if mocks:
        # an error there is the program's own; a time-out is a loop that waits for another answer
        return not any(one.status is Status.ERROR for one in mocks)
    crashed = any(one.killed for one in relevant if one.kind in _RETURNING)
    return None if crashed or not relevant else True


def describe_weakness(tried: Sequence[MutantResult]) -> str:
    """Say what a program passed, by kinds alone: the model that reads it may not know the snippet's body."""
    passed = [one for one in tried if not one.killed]
    passing = [f"code that {_STAND_INS[one.kind]}" for one in passed if one.kind in _STAND_INS]
    kinds = Counter(one.kind for one in passed if one.kind not in _STAND_INS)
    passing += [f"code with a {kind.replace('_', ' ')} ({count} tried)" for kind, count in kinds.items()]
    also = f" All its cases pass for {', '.join(passing)}." if passing else ""
    return f"No case of the program fails an assertion when the tested code does something else.{also}"
