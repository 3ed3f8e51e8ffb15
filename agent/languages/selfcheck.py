"""Checks of a sandbox with the attacks of a language."""

from __future__ import annotations

from agent.languages.base import HONEST, Language, MalformedProgram
from agent.sandbox.base import Sandbox
from agent.sandbox.selfcheck.check import Check, CheckContext, CheckFailed
from agent.types import CaseOutcome, Status

_SECONDS = 5.0


def build_checks(language: Language) -> list[Check]:
    """Return one check for each of the language's attacks and for its honest program, which must pass."""

    def build_check(name: str, texts: tuple[str, str]) -> Check:
        async def procedure(context: CheckContext) -> None:
            template, snippet = texts
            for fact, value in context.canaries.public_facts.items():
                snippet = snippet.replace(f"HOST.{fact}", str(value))
            is_honest, needs_proof = name == HONEST, snippet == language.attacks[HONEST][1]
            async with context.open_sandbox() as sandbox:
                if await _passes(language, sandbox, template, snippet, needs_proof=needs_proof) != is_honest:
                    raise CheckFailed(f"expected the program {'' if is_honest else 'not '}to pass")
                await context.require_working(sandbox)

        return Check(name, language.name, procedure)

    return [build_check(*attack) for attack in language.attacks.items()]


async def _passes(language: Language, sandbox: Sandbox, template: str, snippet: str, *, needs_proof: bool) -> bool:
    """Return whether a program passes. With `needs_proof`, a sentinel run must show that it runs the snippet."""
    try:
        program = language.insert(template, language.inspect(snippet))
    except MalformedProgram as error:
        raise CheckFailed(f"the program cannot be built: {error}") from error
    report = language.report(program, await sandbox.run(language.job(program, environment=None, timeout=_SECONDS)))
    sentinel = language.sentinel_job(program, environment=None, timeout=_SECONDS) if needs_proof else None
    if sentinel is None or report.status is not Status.PASSED:
        return report.status is Status.PASSED
    proof = language.report(program, await sandbox.run(sentinel))
    return {CaseOutcome.PASSED, CaseOutcome.NOT_EXERCISED}.isdisjoint(case.outcome for case in proof.cases)
