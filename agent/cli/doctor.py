"""`agent doctor`: checks sandboxes, the package index and models, and suggests remedies."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from agent import __version__
from agent.cli.interrupts import run_interruptible
from agent.cli.options import ServerOptions
from agent.cli.progress import Steps
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, print_json, print_text
from agent.config import SandboxConfig
from agent.errors import (
    AccountError,
    AgentError,
    ConfigError,
    DependencyUnavailable,
    SandboxError,
    SandboxUnavailable,
    UsageError,
)
from agent.languages.base import Language
from agent.languages.registry import Languages
from agent.languages.selfcheck import build_checks
from agent.llm.base import LLM, Call, Message, close
from agent.llm.parsing import ScreenReply, UnreadableReply, build_schema, parse_screen
from agent.pipeline.asker import read_reply
from agent.sandbox.base import SandboxBackend, SandboxLimits, Toolchain
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.interpreter import InterpreterTag
from agent.sandbox.registry import suggest_remedy
from agent.sandbox.select import BACKENDS, build_limits, find_missing_limits
from agent.sandbox.selfcheck.check import Check, CheckResult, CheckVerdict
from agent.sandbox.selfcheck.run import CHECKS, run_checks

_TEST_CALL = Call(
    "screen",
    (
        Message("system", 'Answer with a JSON object such as {"reason": "…", "verdict": "match"}.'),
        Message("user", 'Reply in json: {"reason": "a test of the connection", "verdict": "match"}'),
    ),
    reply="json",
    schema=build_schema(ScreenReply),
)
_REPORT_FINDING = "do not run untrusted programs in this sandbox; report the finding as described in SECURITY.md"
_SET_INDEX = "set pip's index (pip config set global.index-url URL) or HTTPS_PROXY; cached environments still work"
_CHECK_ACCOUNT = "check --model, --base-url and the API key"
_CHANGE_OPTIONS = "with -c, try other values of reply_format, thinking, max_tokens, extra_body or call_timeout"


@dataclass(frozen=True)
class Diagnosis:
    """The result of the check of one part, such as a sandbox or a model.

    If `needed` is true and the part does not work, `agent doctor` exits with code 1.
    """

    part: str
    name: str
    works: bool
    detail: str
    remedy: str = ""
    needed: bool = False


def run(options: ServerOptions, *, sandbox: str | None, as_json: bool, quick: bool) -> None:
    """Print the findings. Exit with code 1 if a required part does not work or an attack on a sandbox succeeds.

    `sandbox` is the name of the backend to check; `auto` checks the selected backend, and None checks all backends.
    """
    settings = ChosenSettings(Console(stderr=True), options)
    findings = run_interruptible(_diagnose(settings, sandbox, quick))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    raise typer.Exit(1 if any(finding.needed and not finding.works for finding in findings) else 0)


async def _diagnose(settings: ChosenSettings, sandbox: str | None, quick: bool) -> list[Diagnosis]:
    languages = Languages()
    listed = list(_check_languages(languages))
    usable = [languages[finding.name] for finding in listed if finding.works]
    return [
        Diagnosis(
            "python",
            platform.python_version(),
            True,
            f"test-driven-annotator {__version__} on {platform.system()} {platform.release()} {platform.machine()}",
        ),
        *listed,
        *await _check_sandboxes(sandbox, quick, usable),
        await _check_index(),
        *await _check_models(settings),
    ]


def _check_languages(languages: Languages) -> Iterator[Diagnosis]:
    """Check whether programs in each language can be built here. Sandboxes may still lack the language's toolchain."""
    for name in languages:
        try:
            if (reason := languages.explain_untestable(name)) is not None:
                yield Diagnosis("language", name, False, reason, "install what is missing, or pass --unsupported judge")
                continue
        except ConfigError as error:
            yield Diagnosis("language", name, False, str(error), "reinstall or uninstall the package", needed=True)
            continue
        toolchain = languages[name].toolchain
        needs = "" if toolchain is None else f", needs {toolchain.command} in the sandbox"
        yield Diagnosis("language", name, True, f"{languages.describe_package(name) or 'built in'}{needs}")


async def _check_sandboxes(only: str | None, quick: bool, languages: Sequence[Language]) -> list[Diagnosis]:
    findings: list[Diagnosis] = []
    unenforced_by_backend: dict[str, list[str] | None] = {}
    for name in BACKENDS:
        if only in (None, "auto", name) and not (only == "auto" and [] in unenforced_by_backend.values()):
            first, *others = await _check_sandbox(name, languages, needed=only == name, quick=quick)
            missing_limits = [finding.detail.partition(":")[0] for finding in others if finding.part == "limit"]
            unenforced_by_backend[name] = find_missing_limits(missing_limits) if first.works else None
            findings += [first, *others]
    return [*findings, _explain_auto(unenforced_by_backend)]


async def _check_sandbox(name: str, languages: Sequence[Language], *, needed: bool, quick: bool) -> list[Diagnosis]:
    """Start a backend, attack it unless `quick` is true, and close it. The first start builds the backend's image."""
    config = SandboxConfig(pool=0 if quick else 2)
    backend = BACKENDS[name](config)
    try:
        await backend.start(lambda _line: None)
    except SandboxUnavailable as error:
        return [Diagnosis("sandbox", name, False, str(error), suggest_remedy(name), needed=needed)]
    try:
        detail = ", ".join(f"{key} {value}" for key, value in backend.describe().items() if key != "backend")
        unenforced = backend.unenforced()
        needs = [(language.name, language.toolchain) for language in languages if language.toolchain]
        toolchains = [await _check_toolchain(backend, *need) for need in needs]
        lacking = [finding.name for finding in toolchains if not finding.works]
        extra = [check for language in languages if language.name not in lacking for check in build_checks(language)]
        checks = () if quick else (*CHECKS, *extra)
        results = [finding async for finding in _run_selfcheck(backend, build_limits(config), checks)]
    finally:
        await backend.close()
    missing = [Diagnosis("limit", name, False, f"{limit}: {reason}") for limit, reason in unenforced.items()]
    summary = _summarise_checks(name, results, [language.name for language in languages])
    return [Diagnosis("sandbox", name, True, detail, needed=needed), *toolchains, *summary, *missing]


async def _check_toolchain(backend: SandboxBackend, language: str, toolchain: Toolchain) -> Diagnosis:
    try:
        version = await backend.require_toolchain(toolchain)
    except (SandboxError, SandboxUnavailable) as error:
        return Diagnosis("language", language, False, f"{backend.name}: {error}")
    return Diagnosis("language", language, True, f"{backend.name} has {toolchain.command} {version}")


async def _run_selfcheck(
    backend: SandboxBackend, sandbox_limits: SandboxLimits, checks: Sequence[Check]
) -> AsyncGenerator[CheckResult, None]:
    done = 0
    with Steps(Console(stderr=True)) as steps:
        async with aclosing(run_checks(backend, sandbox_limits, checks=checks)) as findings:
            async for finding in findings:
                yield finding
                done += 1
                steps(f"self-check of {backend.name}", done, len(checks))


def _explain_auto(unenforced_by_backend: Mapping[str, list[str] | None]) -> Diagnosis:
    """Report which backend `--sandbox auto` selects.

    `unenforced_by_backend` maps each checked backend to the limits that it cannot enforce, or to None if it does not
    work.
    """
    unchecked, choice = [], ""
    for name in BACKENDS:
        if name not in unenforced_by_backend:
            unchecked.append(name)
        elif unenforced_by_backend[name] is not None:
            choice = name
            if not unenforced_by_backend[name]:
                break
    if choice:
        first = f"{' or '.join(unchecked)} if it works (not checked), otherwise " if unchecked else ""
        return Diagnosis("sandbox", "auto", True, f"--sandbox auto selects {first}{choice}", needed=True)
    if unchecked:
        return Diagnosis(
            "sandbox", "auto", False, f"--sandbox auto would select {' or '.join(unchecked)}, which was not checked"
        )
    advice = (
        "follow one of the remedies above; variants that run no programs (single_llm, ps_fa) work without a sandbox"
    )
    return Diagnosis("sandbox", "auto", False, "no backend works on this machine", advice, needed=True)


def _summarise_checks(backend: str, results: list[CheckResult], languages: Sequence[str]) -> Iterator[Diagnosis]:
    broken = [result for result in results if result.verdict is CheckVerdict.FAILED]
    for result in broken:
        yield Diagnosis(
            "check", backend, False, f"{result.group}: {result.check}: {result.detail}", _REPORT_FINDING, needed=True
        )
    resisted = [result.group for result in results if result.verdict is CheckVerdict.PASSED]
    counts = Counter(group if group in languages else "python" for group in resisted if not broken)
    for language in filter(counts.get, dict.fromkeys(("python", *languages))):
        yield Diagnosis("check", backend, True, f"the sandbox passed {counts[language]} self-checks in {language}")


async def _check_index() -> Diagnosis:
    with tempfile.TemporaryDirectory(prefix="agent-uv-") as folder:
        try:
            # use a new folder, because a cached download would not test the index
            target = Target(InterpreterTag("{}.{}".format(*sys.version_info)))
            await Uv(Path(folder)).install(["six"], target, Path(folder) / "six")
        except (DependencyUnavailable, SandboxError) as error:
            return Diagnosis("index", "uv", False, f"cannot install packages for missing imports: {error}", _SET_INDEX)
    return Diagnosis("index", "uv", True, "the package index responds; packages for missing imports can be installed")


async def _check_models(settings: ChosenSettings) -> list[Diagnosis]:
    names = settings.names
    if not names:
        key = "set" if os.environ.get("OPENAI_API_KEY") else "not set"
        advice = (
            "to send a test request, run agent doctor --model NAME [--base-url URL]; "
            "without a key, use --model heuristic or --model replay:FILE"
        )
        return [Diagnosis("model", "-", key == "set", f"no model selected; OPENAI_API_KEY is {key}", advice)]
    try:
        models = settings.models(attempts=1)
    except UsageError as error:
        listed_names = names if isinstance(names, str) else ", ".join(names.values())
        return [Diagnosis("model", listed_names, False, str(error), needed=True)]
    return [await _check_model(model) for model in models.list_models()]


async def _check_model(model: LLM) -> Diagnosis:
    name = str(model.identity().get("model", type(model).__name__))
    if name in ("heuristic", "replay"):
        return Diagnosis("model", name, True, "built in; works without a network connection", needed=True)
    started_at, detail = time.monotonic(), ""
    try:
        reply = await model.reply(_TEST_CALL)
        detail = f"{reply.model or name} replied in {time.monotonic() - started_at:.1f} s: {reply.text.strip()[:80]!r}"
        read_reply(reply, parse_screen)
    except UnreadableReply as error:
        detail = f"{detail}. This reply cannot be used: {error}"
        return Diagnosis("model", name, False, detail, _CHANGE_OPTIONS, needed=True)
    except AgentError as error:
        advice = _CHECK_ACCOUNT if isinstance(error, AccountError) else _CHANGE_OPTIONS
        return Diagnosis("model", name, False, str(error), advice, needed=True)
    finally:
        await close(model)
    return Diagnosis("model", name, True, detail, needed=True)


def _print(findings: list[Diagnosis]) -> None:
    console = Console()
    for finding in findings:
        is_optional = finding.part in ("language", "limit") and not finding.needed
        mark = "ok  " if finding.works else "--  " if is_optional else "no  "
        print_text(console, f"{mark}{finding.part:<8} {finding.name:<12} {finding.detail}")
        if finding.remedy and not finding.works:
            print_text(console, f"             → {finding.remedy}")
