"""Bug Fixer (paper, section IV-C c): stage 1 installs missing imports, stage 2 asks the model for commands.

Ours: the model may also correct the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from agent.errors import DependencyUnavailable
from agent.evidence import CommandRun
from agent.languages.base import MalformedProgram, Program
from agent.llm import parsing
from agent.nodes.asking import about_execution, about_pair
from agent.sandbox.base import Environment
from agent.sandbox.commands import Install, Plan, Refuse, read_commands
from agent.state import State, Step, Tools
from agent.types import Cause

_DIRECT_INSTALLS = 3


class Repair:
    """Make a program that could not run runnable, without touching it.

    Stage 1 does not count as a round; it is tried at most three times, as a program may name ever new modules. A round
    of stage 2 is one reply's commands and the execution that follows; at most `max_try_time` of them (Algorithm 1
    allows one more than the name says). A program that is written anew has all of them again. It ends early when the
    model gives no command or no command changed anything.
    """

    name = "repair"
    requires = frozenset({"program", "report", "result"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"repaired": frozenset(), "given_up": frozenset()}
    bypass = "given_up"
    uses_sandbox = True
    settings = frozenset({"max_try_time", "command_timeout"})
    role = "repair"

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `repaired` when another execution may end otherwise."""
        update: State = {}
        repairs, installs = state.get("repairs", 0), state.get("installs", 0)
        if state["report"].cause is Cause.DEPENDENCY and installs < _DIRECT_INSTALLS:
            update = await self._install_missing(state, tools)
            if "environment" in update:
                return Step("repaired", {**update, "installs": installs + 1, "repairs": repairs + 1})
        if state.get("rounds", 0) >= tools.config.max_try_time:
            return Step("given_up", update)
        merged: State = {**state, **update}
        changed, stage_two = await self._run_commands(merged, tools)
        update = {**update, **stage_two}
        if not changed:
            await tools.sandbox.renew()
            return Step("given_up", update)
        return Step("repaired", {**update, "rounds": state.get("rounds", 0) + 1, "repairs": repairs + 1})

    async def _install_missing(self, state: State, tools: Tools) -> State:
        sought = state.get("sought", frozenset())
        names = [n for n in tools.language.missing(state["program"], state["result"]) if n not in sought]
        known: list[str] = []
        update: State = {"sought": sought | set(names)}
        for name in names:
            try:
                found = tools.language.requirement(name) or await tools.sandbox.requirement(name)
            except DependencyUnavailable as error:
                run = CommandRun(command=f"pip install {name}", outcome="failed", output=str(error))
                update["commands"] = (*update.get("commands", state.get("commands", ())), run)
            else:
                known += [] if found is None else [found]
        return {**update, **await self._install(known, {**state, **update}, tools)} if known else update

    async def _install(self, requirements: list[str], state: State, tools: Tools) -> State:
        """Install all together, else each that can be had: one without a wheel does not stand in the others' way."""
        run, environment = await self._build(requirements, state, tools)
        update: State = {"commands": (*state.get("commands", ()), run)}
        if environment is not None:
            update["environment"] = environment
        elif len(requirements) > 1:
            for requirement in requirements:
                update = {**update, **await self._install([requirement], {**state, **update}, tools)}
        return update

    async def _run_commands(self, state: State, tools: Tools) -> tuple[bool, State]:
        commands, update = await self._ask(state, tools)
        changed, runs = bool(update), list(state.get("commands", ()))
        for command, step in read_commands(commands):
            run, environment = await self._run_one(command, step, {**state, **update}, tools)
            runs.append(run)
            if environment is not None:
                changed |= environment.key != _key({**state, **update})
                update["environment"] = environment
            changed |= run.outcome == "ran"
        update["commands"] = tuple(runs)
        return changed, update

    async def _ask(self, state: State, tools: Tools) -> tuple[tuple[str, ...], State]:
        """Return the commands to run, and what else of the state the reply changes."""
        question = _question(state, tools)
        return await tools.asker.ask("repair", question, parsing.parse_commands, reply="text"), {}

    async def _run_one(
        self, command: str, step: Plan, state: State, tools: Tools
    ) -> tuple[CommandRun, Environment | None]:
        if isinstance(step, Install):
            return await self._build(step.requirements, state, tools, command=command)
        if isinstance(step, Refuse):
            return CommandRun(command=command, outcome="refused", output=step.reason), None
        result = await tools.sandbox.command(step.argv, tools.config.command_timeout)
        ran = result.exit_code == 0
        return CommandRun(command=command, outcome="ran" if ran else "failed", output=result.output), None

    async def _build(
        self, requirements: Iterable[str], state: State, tools: Tools, *, command: str | None = None
    ) -> tuple[CommandRun, Environment | None]:
        present = state.get("environment")
        together = dict.fromkeys((*(() if present is None else present.requirements), *requirements))
        command = command or "pip install " + " ".join(requirements)
        try:
            environment = await tools.sandbox.environment(tuple(together))
        except DependencyUnavailable as error:
            return CommandRun(command=command, outcome="failed", output=str(error)), None
        return CommandRun(command=command, outcome="installed", output=" ".join(environment.installed)), environment


class RepairProgram(Repair):
    """Take a corrected program as well as commands.

    The snippet stays verbatim, as in any program. A correction that proves less is refused by the language
    (`check_correction`), one that was run before is, too: the model is asked again with the reason. Whoever corrects
    sees the code, so that the expectations may not be theirs. Each source that was run is kept in the evidence.
    """

    name = "repair_program"
    plain = "repair"

    async def _ask(self, state: State, tools: Tools) -> tuple[tuple[str, ...], State]:
        language, program = tools.language, state["program"]
        if language.fence in parsing.SHELLS:  # a block of commands could not be told from a program
            return await super()._ask(state, tools)
        snippet = state["snippet"] if "snippet" in state else language.inspect(state["pair"].code)
        run_before = {program.source, *(execution.source for execution in state.get("executions", ()))}

        def parse(text: str) -> tuple[parsing.RepairReply, Program | None]:
            reply = parsing.parse_repair(text, language.fence)
            if reply.program is None:
                return reply, None
            corrected = language.insert(reply.program.template, snippet)
            if corrected.source in run_before:
                raise MalformedProgram("this program was run before, word for word: change what broke it")
            language.check_correction(program, corrected)
            return reply, corrected

        question = {
            **_question(state, tools),
            "may_correct": True,
            "marker": language.marker,
            "first_line": program.first_line,
            "last_line": program.last_line,
        }
        reply, corrected = await tools.asker.ask("repair", question, parse, reply="text")
        if corrected is None or reply.program is None:
            return reply.commands, {}
        declared = dict.fromkeys((*state.get("stand_ins", ()), *reply.program.stand_ins))
        return reply.commands, {"program": corrected, "stand_ins": tuple(declared)}


def _question(state: State, tools: Tools) -> dict[str, Any]:
    return {
        **about_pair(state, tools),
        **about_execution(state),
        "program": state["program"].source,
        "round": state.get("rounds", 0) + 1,
        "history": tuple(run.model_dump() for run in state.get("commands", ())),
    }


def _key(state: State) -> str | None:
    environment = state.get("environment")
    return None if environment is None else environment.key
