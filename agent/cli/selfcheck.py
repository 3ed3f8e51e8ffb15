"""Runs the self-check of `agent doctor`, with a bar that shows how far it is."""

from __future__ import annotations

from contextlib import aclosing

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent.cli.console import Console
from agent.config import SandboxConfig
from agent.sandbox.base import SandboxBackend
from agent.sandbox.select import limits
from agent.sandbox.selfcheck import CHECKS, Finding, inspect


class SelfCheck:
    """Examines the backends it is given; `findings` has what was found of each, by its name."""

    def __init__(self, config: SandboxConfig, console: Console) -> None:
        self._limits = limits(config)
        self._console = console
        self.findings: dict[str, list[Finding]] = {}

    async def __call__(self, backend: SandboxBackend) -> None:
        """Run every check on a started backend."""
        found = self.findings[backend.name] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=hidden) as bar:
            task = bar.add_task(f"self-check of {backend.name}", total=len(CHECKS))
            async with aclosing(inspect(backend, self._limits)) as findings:
                async for finding in findings:
                    found.append(finding)
                    bar.advance(task)
