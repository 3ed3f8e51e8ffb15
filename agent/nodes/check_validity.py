"""Validity: a program that wrong code passes as well proves nothing of the snippet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from agent.languages.base import RAISES, RETURNS_FIRST_ARGUMENT, RETURNS_NOTHING, Impostor, MalformedProgram
from agent.nodes.execute import job_for
from agent.state import State, Step, Tools
from agent.types import Status, WrongOne

_STAND_INS: Mapping[str, str] = {
    RETURNS_NOTHING: "does nothing and returns nothing",
    RETURNS_FIRST_ARGUMENT: "returns its first argument unchanged",
    RAISES: "always raises an error",
}
_PATIENCE = 3
"""How many times as long as the snippet a wrong one may take."""


class CheckValidity:
    """Run a program that passed on stand-ins of the snippet that cannot be right, and on mutants of it.

    A wrong one is *killed* when the program does not pass: a failed case, an error at any place, a time-out. The share
    of the killed is the program's `strength`. Mutants that happen to be right survive sound programs too: a strength
    below 1 says nothing against a program.

    A program is *vacuous* when nothing but a crash was ever noticed: it passes on every stand-in that returns, and no
    mutant fails an assertion. Whether it notices the stand-in that raises makes no difference, nor do mutants that
    raise or hang: to notice those it is enough to call the snippet. Code that works by its effects alone is no
    exception, as a stand-in that does nothing has none. It is written again, once, told by `weakness` what it passed.
    The report keeps that it is vacuous, until another program's takes its place.
    """

    name = "check_validity"
    requires = frozenset({"pair", "program", "report"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"checked": frozenset(), "vacuous": frozenset({"weakness"})}
    bypass = "checked"
    uses_sandbox = True
    settings = frozenset({"wrong_ones", "wrong_one_timeout", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `vacuous` when another program should be written, else `checked` with the program's strength."""
        unknown: State = {"wrong_ones": (), "strength": None}
        if state["report"].status is not Status.PASSED:
            return Step("checked", unknown)
        found = await self._tried(state, tools)
        if not found:
            return Step("checked", unknown)
        strength = sum(one.killed for one in found) / len(found)
        checked: State = {"wrong_ones": found, "strength": strength}
        if not is_vacuous(found):
            return Step("checked", checked)
        weakness = describe(found)
        # the arbiter reads the message with the report
        found_out = {"vacuous": True, "message": f"the program proves nothing. {weakness}"}
        report = state["report"].model_copy(update=found_out)
        if "weakness" in state:
            return Step("checked", {**checked, "report": report})
        return Step("vacuous", {**unknown, "weakness": weakness, "report": report})

    async def _tried(self, state: State, tools: Tools) -> tuple[WrongOne, ...]:
        language = tools.language
        impostors = language.wrong_ones(language.inspect(state["pair"].code), tools.config.wrong_ones)
        if not impostors:
            return ()
        # what the snippet left behind would pass for the work of a stand-in, and what the mutants leave for a program's
        await tools.sandbox.renew()
        found = [await self._try(impostor, state, tools) for impostor in impostors]
        await tools.sandbox.renew()
        return tuple(one for one in found if one is not None)

    async def _try(self, impostor: Impostor, state: State, tools: Tools) -> WrongOne | None:
        """Run the program on an impostor; None where it cannot stand in the snippet's place."""
        try:
            program = tools.language.insert(state["program"].template, impostor.snippet)
        except MalformedProgram:
            return None
        job = job_for(program, state.get("environment"), tools)
        result = await tools.sandbox.run(replace(job, timeout=_timeout(state, tools)))
        status = tools.language.report(program, result).status
        return WrongOne(kind=impostor.kind, change=impostor.change, status=status)


def _timeout(state: State, tools: Tools) -> float:
    """Return seconds: short, as mutants may never end, but not too short for what the snippet itself needed."""
    taken = state["result"].seconds if "result" in state else 0.0
    return min(tools.config.test_timeout, max(tools.config.wrong_one_timeout, _PATIENCE * taken))


def is_vacuous(found: Sequence[WrongOne]) -> bool:
    """Say whether a program noticed nothing but that code raises or hangs; False where nothing else was tried."""
    telling = [one for one in found if one.kind != RAISES]
    return bool(telling) and not any(_proves(one) for one in telling)


def _proves(one: WrongOne) -> bool:
    return one.killed if one.kind in _STAND_INS else one.status is Status.FAILED


def describe(found: Sequence[WrongOne]) -> str:
    """Say what a program passed, by kinds alone: the model that is told may not know the snippet's body."""
    passed = [one for one in found if not one.killed]
    told = [f"code that {_STAND_INS[one.kind]}" for one in passed if one.kind in _STAND_INS]
    kinds = Counter(one.kind for one in passed if one.kind not in _STAND_INS)
    told += [f"code with a {kind.replace('_', ' ')} ({count} tried)" for kind, count in kinds.items()]
    also = f" All its cases pass for {', '.join(told)}." if told else ""
    return f"No case of the program fails when the tested code does something else.{also}"
