"""Installs the packages of missing modules. The repair step and `agent exec` use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from agent.errors import DependencyUnavailable
from agent.sandbox.base import Command, Environment, Packages
from agent.sandbox.dependencies.npm import is_npm
from agent.sandbox.session import SandboxSession


@dataclass(frozen=True)
class Installer:
    """Adds packages to a pair's environment.

    `find_requirement` returns the requirement that provides an import name, or None if only the index may know.
    `record` receives every installation and its outcome. `packages` is the ecosystem; without one, modules are not
    installed. A failed sandbox raises `SandboxError`.
    """

    session: SandboxSession
    find_requirement: Callable[[str], str | None]
    record: Callable[[Command], None]
    packages: Packages | None

    async def install_modules(self, names: Iterable[str], current: Environment | None) -> Environment | None:
        """Install the packages of modules, as far as possible. Return None if nothing was installed."""
        requirements: dict[str, None] = {}
        for name in names if self.packages is not None else ():
            try:
                requirement = self.find_requirement(name)
                if requirement is None and self.packages == "pypi":
                    requirement = await self.session.find_requirement(name)
                if requirement is None:
                    raise DependencyUnavailable("no known package provides this module")
                requirements[requirement] = None
            except DependencyUnavailable as error:
                tool = "npm" if self.packages == "npm" else "pip"
                self.record(Command(command=f"{tool} install {name}", outcome="failed", output=str(error)))
        return await self.install(requirements, current, separately=True) if requirements else None

    async def install(
        self,
        requirements: Collection[str],
        current: Environment | None,
        *,
        command: str | None = None,
        separately: bool = False,
    ) -> Environment | None:
        """Build an environment with the current and the new requirements. Return None if this fails.

        If `separately` is true, requirements that cannot be installed together are installed one by one.
        """
        combined = dict.fromkeys((*(() if current is None else current.requirements), *requirements))
        tool = "npm" if all(map(is_npm, requirements)) else "pip"
        command = command or f"{tool} install {' '.join(requirements)}"
        try:
            environment = await self.session.build_environment(tuple(combined))
        except DependencyUnavailable as error:
            if not separately or len(requirements) == 1:
                self.record(Command(command=command, outcome="failed", output=str(error)))
                return None
            built = None
            for requirement in requirements:
                built = await self.install([requirement], built or current) or built
            return built
        self.record(Command(command=command, outcome="installed", output=" ".join(environment.installed)))
        return environment
