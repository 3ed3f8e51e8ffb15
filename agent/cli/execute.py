"""`agent exec`: runs one test program in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agent.cli.interrupts import run_interruptible
from agent.cli.options import ExecOptions
from agent.cli.settings import ChosenSettings
from agent.cli.text import Console, escape_hidden, print_json, print_text
from agent.errors import InputError, SnippetTooLarge, UsageError
from agent.languages.base import Language, MalformedProgram, Program
from agent.languages.registry import Languages
from agent.pipeline.history import Command
from agent.pipeline.nodes.execute import explain_dependency, mark_unexercised
from agent.sandbox.base import Environment, RunResult
from agent.sandbox.dependencies.requirements import read_text
from agent.sandbox.installer import Installer
from agent.sandbox.select import choose
from agent.sandbox.session import SandboxSession
from agent.text import plural
from agent.types import Cause, Status, TestReport, normalise_language


@dataclass(frozen=True)
class _ProgramRun:
    result: RunResult
    report: TestReport
    environment: Environment | None


_EMPTY_SNIPPET = "pass\n"
_RESULT_FIELDS = (
    "exit_code", "signal", "timed_out", "limit", "records", "hang", "hang_beside", "stdout", "stderr", "truncated",
)  # fmt: skip
"""Fields of `RunResult` in the JSON output."""


def run(
    program: Path, code: Path | None, options: ExecOptions, *, language_name: str, install: bool, as_json: bool
) -> None:
    """Run the program and print the report. Exit with code 0 if every case passed, otherwise with code 1.

    Raises:
        ConfigError: the language is unknown or cannot be tested on this machine.
        InputError: a file cannot be read, or the program violates the rules for test programs.
        SandboxUnavailable: no sandbox works on this machine.
    """
    language = Languages().require(normalise_language(language_name))
    if code is None and language.name != "python":
        raise UsageError(f"--language {language_name}: the program needs a snippet (--code FILE)")
    test_program = _read_program(language, program, code)
    # only one program runs
    console = Console(stderr=True)
    config = ChosenSettings(console, options, overrides={"sandbox.pool": 1}).config

    async def open_and_run() -> tuple[_ProgramRun, Mapping[str, str]]:
        backend = await choose(config.sandbox, partial(print_text, console))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            if language.toolchain is not None:
                await backend.require_toolchain(language.toolchain)
            session = SandboxSession(backend)
            stack.push_async_callback(session.close)
            program_run = await _run_program(language, test_program, session, config.pipeline.test_timeout, install)
            return program_run, backend.describe()

    program_run, sandbox = run_interruptible(open_and_run())
    report = program_run.report if code is not None else _blame_program(program_run.report)
    if as_json:
        print_json(_as_json(report, program_run, sandbox))
    else:
        _print(report, program_run.result)
    raise typer.Exit(0 if report.status is Status.PASSED else 1)


async def _run_program(
    language: Language, program: Program, session: SandboxSession, timeout: float, install: bool
) -> _ProgramRun:
    async def run_in(environment: Environment | None) -> _ProgramRun:
        key = None if environment is None else environment.key
        result = await session.run(language.job(program, environment=key, timeout=timeout))
        report = language.report(program, result)
        sentinel = language.sentinel_job(program, environment=key, timeout=timeout)
        if report.status is Status.PASSED and sentinel is not None:
            await session.renew()
            report = mark_unexercised(report, language.report(program, await session.run(sentinel)))
        return _ProgramRun(result, report, environment)

    first = await run_in(await session.build_initial_environment())
    if not install or first.report.cause is not Cause.DEPENDENCY:
        return first
    commands: list[Command] = []
    installer = Installer(session, language.requirement, commands.append, language.packages)
    environment = await installer.install_modules(language.missing(program, first.result), first.environment)
    last = first if environment is None else await run_in(environment)
    return replace(last, report=explain_dependency(last.report, commands))


def _read_program(language: Language, program: Path, code: Path | None) -> Program:
    template = read_text(program)
    if code is None:
        if language.marker in (line.strip() for line in template.split("\n")):
            raise InputError(
                f"contains the line `{language.marker}`. Pass the snippet that replaces this line (--code FILE).",
                path=program,
            )
        template = f"{template}\n{language.marker}\n"
    try:
        snippet = language.inspect(_EMPTY_SNIPPET if code is None else read_text(code))
    except SnippetTooLarge as error:
        raise InputError(str(error), path=code) from error
    if snippet.problem is not None:
        raise InputError(f"the snippet does not parse: {snippet.problem}", path=code)
    try:
        return language.insert(template, snippet)
    except MalformedProgram as error:
        raise InputError(str(error), path=program) from error


def _blame_program(report: TestReport) -> TestReport:
    """Return the report with the cause `SNIPPET` replaced by `PROGRAM`, because no snippet was passed."""

    def replace_cause(cause: Cause | None) -> Cause | None:
        return Cause.PROGRAM if cause is Cause.SNIPPET else cause

    cases = tuple(case.model_copy(update={"cause": replace_cause(case.cause)}) for case in report.cases)
    return report.model_copy(update={"cause": replace_cause(report.cause), "cases": cases})


def _as_json(report: TestReport, program_run: _ProgramRun, sandbox: Mapping[str, str]) -> dict[str, Any]:
    observed = asdict(program_run.result)
    return {
        **report.model_dump(mode="json"),
        "executed": report.executed,
        **{name: observed[name] for name in _RESULT_FIELDS},
        "environment": None if program_run.environment is None else program_run.environment.key,
        "installed": [] if program_run.environment is None else list(program_run.environment.installed),
        "python": sandbox.get("python"),
        "sandbox": dict(sandbox),
        "seconds": round(program_run.result.seconds, 4),
    }


def _print(report: TestReport, result: RunResult) -> None:
    console = Console(soft_wrap=True)
    for case in report.cases:
        console.print(escape_hidden(f"{case.outcome.value:<8} {case.name}"))
        if case.message:
            console.print(escape_hidden("         " + case.message.replace("\n", "\n         ")))
    if report.message:
        console.print(escape_hidden(report.message))
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text.strip():
            console.print(f"--- {name}\n{escape_hidden(text.rstrip())}")
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    cases = plural(len(report.cases), "case")
    counts = f"{report.passed} passed, {report.failed} failed, {plural(report.errors, 'error')} of {cases}"
    console.print(f"{report.status.value}{cause}: {counts} in {result.seconds:.2f} s")
