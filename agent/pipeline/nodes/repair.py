"""Bug Fixer (CoSQA+ paper, section IV-C c): makes a program runnable in two stages.

Stage 1 installs missing modules, and stage 2 asks the model for commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from agent.languages.base import Language
from agent.llm import parsing
from agent.pipeline.history import Command
from agent.pipeline.nodes.asking import EXECUTION, PAIR, collect_execution_variables, collect_pair_variables
from agent.pipeline.nodes.execute import explain_dependency
from agent.pipeline.state import Node, Role, State, Step, Tools
from agent.sandbox.commands import Install, Refuse, RunCommand, read_commands
from agent.sandbox.installer import Installer
from agent.types import Cause

DIRECT_INSTALLS = 3
"""How often the packages of missing modules are installed before the model is asked."""

REPAIR = Role(
    "repair",
    {
        **PAIR,
        **EXECUTION,
        "program": "import numpy",
        "round": 1,
        "history": ({"command": "pip install numpy", "outcome": "installed", "output": "numpy==2.3.5"},),
    },
)
REPAIR_IN_MODULE = REPAIR.with_version("in_module", outline="from lists import reverse")
REPAIR_BY_RULES = REPAIR.with_version("by_rules", packages="npm")


def choose_repair_role(language: Language) -> Role:
    """Return the role that repairs programs in a language."""
    return REPAIR if language.packages == "pypi" else REPAIR_BY_RULES


class Repair(Node):
    """Make a program runnable without changing it.

    Stage 1 installs missing modules and does not count as a round. It runs at most three times, because each execution
    may reveal further missing modules.

    In stage 2, the model proposes commands. A round consists of the commands in one reply and the execution that
    follows. There are at most `max_repairs` rounds, one fewer than in Algorithm 1 of the paper. The count starts again
    for a rewritten program. Repair stops early if no command changed anything. If the language has no packages, a
    missing dependency skips stage 2.
    """

    name = "repair"
    requires = frozenset({"program", "report", "result"})
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"repaired": frozenset(), "given_up": frozenset()}
    bypass = "given_up"
    uses_sandbox = True
    settings = frozenset({"max_repairs", "command_timeout"})
    roles = (REPAIR, REPAIR_IN_MODULE, REPAIR_BY_RULES)

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return `repaired` if another execution may have a different outcome."""
        update: State = {}
        repairs, installs = state.get("repairs", 0), state.get("installs", 0)
        if state["report"].cause is Cause.DEPENDENCY and installs < DIRECT_INSTALLS:
            update = await self._install_missing(state, tools)
            if "environment" in update:
                return Step("repaired", {**update, "installs": installs + 1, "repairs": repairs + 1})
        changed = False
        can_help = tools.language.packages is not None or state["report"].cause is not Cause.DEPENDENCY
        if can_help and state.get("rounds", 0) < tools.config.max_repairs:
            changed, stage_two = await self._run_commands({**state, **update}, tools)
            update = {**update, **stage_two}
        if not changed:
            await tools.sandbox.renew()
            report = explain_dependency(state["report"], tools.history.history.commands)
            return Step("given_up", {**update, "report": report})
        return Step("repaired", {**update, "rounds": state.get("rounds", 0) + 1, "repairs": repairs + 1})

    async def _install_missing(self, state: State, tools: Tools) -> State:
        sought = state.get("sought", frozenset())
        names = [n for n in tools.language.missing(state["program"], state["result"]) if n not in sought]
        update: State = {"sought": sought | set(names)}
        environment = await make_installer(tools, tools.history.add).install_modules(names, state.get("environment"))
        if environment is not None:
            update["environment"] = environment
        return update

    async def _run_commands(self, state: State, tools: Tools) -> tuple[bool, State]:
        role, variables = choose_repair_role(tools.language), _collect_variables(state, tools)
        if "module" in state:
            role, variables["outline"] = REPAIR_IN_MODULE, state["module"].outline
        elif role is REPAIR_BY_RULES:
            variables["packages"] = tools.language.packages
        commands = await tools.asker.ask(role, variables, parsing.parse_commands)
        update: State = {}
        changed, current = False, state.get("environment")
        installer = make_installer(tools, tools.history.add)
        for command, step in read_commands(commands, tools.language.packages):
            if isinstance(step, Install):
                environment = await installer.install(step.requirements, current, command=command)
                if environment is not None:
                    changed |= current is None or environment.key != current.key
                    current = update["environment"] = environment
            else:
                changed |= await self._run_command(command, step, tools)
        return changed, update

    async def _run_command(self, command: str, step: RunCommand | Refuse, tools: Tools) -> bool:
        """Run a command that installs nothing. Return whether it succeeded."""
        if isinstance(step, Refuse):
            tools.history.add(Command(command=command, outcome="refused", output=step.reason))
            return False
        result = await tools.sandbox.run_command(step.argv, tools.config.command_timeout)
        succeeded = result.exit_code == 0
        tools.history.add(Command(command=command, outcome="ran" if succeeded else "failed", output=result.output))
        return succeeded


def make_installer(tools: Tools, record: Callable[[Command], None]) -> Installer:
    """Return an installer for the pair's environment. `record` receives every installation."""
    return Installer(tools.sandbox, tools.language.requirement, record, tools.language.packages)


def _collect_variables(state: State, tools: Tools) -> dict[str, Any]:
    return {
        **collect_pair_variables(state, tools),
        **collect_execution_variables(state),
        "program": state["program"].source,
        "round": state.get("rounds", 0) + 1,
        "history": tuple(command.model_dump(exclude={"kind"}) for command in tools.history.history.commands),
    }
