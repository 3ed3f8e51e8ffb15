"""Finds out whether a snippet can be tested in its own module of the installed release that it comes from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from agent.errors import DependencyUnavailable
from agent.languages.base import Module, ModuleUnusable
from agent.languages.canonical import canonicalise
from agent.pipeline.history import Command
from agent.pipeline.nodes.execute import build_job, run_program
from agent.pipeline.nodes.repair import DIRECT_INSTALLS, make_installer
from agent.pipeline.state import Node, State, Step, Tools
from agent.sandbox.base import Environment
from agent.text import make_printable, truncate
from agent.types import ModuleContext, Origin

_MAX_REASON = 300
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+_-]*")


class OpenContext(Node):
    """Install the release or the clone that the snippet comes from, and import its module with the snippet in it.

    The outcome is `alone` if this fails. The pair is then tested as in a variant without this node, and
    `module_context` says why. Missing modules are installed as in stage 1 of the repair.
    """

    name = "open_context"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "in_module": frozenset({"module", "module_context", "environment"}),
        "alone": frozenset({"module_context"}),
    }
    bypass = "alone"
    uses_sandbox = True
    settings = frozenset({"context", "context_lines", "test_timeout"})

    async def __call__(self, state: State, tools: Tools) -> Step:
        """Return the module, or the reason why the snippet is tested alone.

        Raises:
            SnippetTooLarge: the snippet exceeds the size limit.
            RequirementsUnavailable: the pair has too many requirements.
            SandboxError: every sandbox attempt failed.
        """
        installs: list[Command] = []
        try:
            module, environment = await _open_module(state, tools, installs.append)
        except ModuleUnusable as error:
            reason = truncate(make_printable(canonicalise(str(error))), _MAX_REASON)
            return Step("alone", {"module_context": ModuleContext(reason=reason)})
        for command in installs:  # commands of a failed attempt would appear in the prompt of `repair`
            tools.history.add(command)
        digest = hashlib.sha256(module.outline.encode("utf-8", "surrogatepass")).hexdigest()
        context = ModuleContext(module=module.origin.module, outline_sha256=digest)
        return Step("in_module", {"module": module, "module_context": context, "environment": environment})


async def _open_module(state: State, tools: Tools, record: Callable[[Command], None]) -> tuple[Module, Environment]:
    """Return the module and its environment. Raise `ModuleUnusable` if the snippet cannot run in its module."""
    pair, language = state["pair"], tools.language
    if pair.origin is None:
        raise ModuleUnusable("no origin")
    snippet = language.inspect(pair.code)
    if snippet.problem is not None:
        raise ModuleUnusable(f"the snippet cannot be tested: {snippet.problem}")
    origin, requirement = await _find_source(pair.origin, tools)
    probe = language.build_probe(snippet, origin)
    try:
        environment = await tools.sandbox.build_environment([requirement])
    except DependencyUnavailable as error:
        raise ModuleUnusable(f"the release cannot be installed: {error}") from error
    sought, installer = set[str](), make_installer(tools, record)
    for attempt in range(DIRECT_INSTALLS + 1):
        job = build_job(probe, environment, tools)
        result, _report = await run_program(probe, job, environment, tools, purpose="probe")
        await tools.sandbox.renew()
        names = [name for name in language.missing(probe, result) if name not in sought]
        sought |= set(names)
        larger = await installer.install_modules(names, environment) if attempt < DIRECT_INSTALLS else None
        if larger is None:
            break
        environment = larger
    if result.timed_out or result.limit is not None:
        raise ModuleUnusable(f"the import of the module exceeds the limit: {result.limit or 'time'}")
    # not in a thread: Python 3.11 cannot parse in two threads at once (SystemError)
    return language.read_module(probe, result, origin, tools.config.context_lines), environment


async def _find_source(origin: Origin, tools: Tools) -> tuple[Origin, str]:
    """Return the origin with its module, and the requirement: a clone at a commit, or a release of a distribution."""
    try:
        checkout = await tools.sandbox.find_checkout(origin)
    except DependencyUnavailable as error:
        raise ModuleUnusable(f"no checkout: {error}") from error
    if checkout is not None:
        return origin.model_copy(update={"module": checkout.module}), checkout.requirement
    requirement = f"{origin.repository}=={origin.commit}"
    if not _RELEASE.fullmatch(requirement):
        raise ModuleUnusable("the origin names no release of a distribution")
    return origin, requirement
