"""Installs the packages of missing modules. The repair step and `agent exec` use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from agent.errors import DependencyUnavailable
from agent.history import Command
from agent.sandbox.base import Environment
from agent.sandbox.session import SandboxSession

_UNKNOWN = "no known package provides it"


@dataclass(frozen=True)
class Installer:
    """Installs packages into environments for one pair.

    `find_requirement` returns the requirement that provides an import name, or None if only the index may know.
    `record` receives every installation with its outcome.
    """

    session: SandboxSession
    find_requirement: Callable[[str], str | None]
    record: Callable[[Command], None]

    async def install_modules(
        self, names: Iterable[str], current: Environment | None
    ) -> tuple[Environment | None, dict[str, str]]:
        """Install the packages of modules in addition to those of the current environment.

        All packages are installed at once. If this fails, they are installed one by one, and those that cannot be
        installed are skipped. Returns the new environment, or None if nothing was installed, and the reason for each
        module whose package was not installed.

        Raises:
            SandboxError: the builder failed.
        """
        reasons: dict[str, str] = {}
        modules: dict[str, list[str]] = {}
        for name in names:
            try:
                requirement = self.find_requirement(name) or await self.session.find_requirement(name)
            except DependencyUnavailable as error:
                reasons[name] = str(error)
                self.record(Command(command=f"pip install {name}", outcome="failed", output=str(error)))
            else:
                if requirement is None:
                    reasons[name] = _UNKNOWN
                else:
                    modules.setdefault(requirement, []).append(name)
        environment = None
        batches = [tuple(modules)] if modules else []
        while batches:
            batch = batches.pop(0)
            built, reason = await self.install(batch, environment or current)
            if built is not None:
                environment = built
            elif len(batch) > 1:
                batches = [(requirement,) for requirement in batch]
            else:
                reasons |= dict.fromkeys(modules[batch[0]], reason)
        return environment, reasons

    async def install(
        self, requirements: Collection[str], current: Environment | None, *, command: str | None = None
    ) -> tuple[Environment | None, str]:
        """Build an environment with the current and the new requirements.

        Returns the environment, or None and the reason. `command` is the recorded command.

        Raises:
            SandboxError: the builder failed.
        """
        wanted = tuple(dict.fromkeys((*(() if current is None else current.requirements), *requirements)))
        command = command or "pip install " + " ".join(requirements)
        try:
            environment = await self.session.build_environment(wanted)
        except DependencyUnavailable as error:
            self.record(Command(command=command, outcome="failed", output=str(error)))
            return None, str(error)
        self.record(Command(command=command, outcome="installed", output=" ".join(environment.installed)))
        return environment, ""
