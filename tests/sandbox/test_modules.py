"""Snippets run in their own modules, unchanged, and what keeps them from it is never evidence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.languages.base import Module, ModuleUnusable, Snippet
from agent.languages.python.functions import find_functions
from agent.languages.python.language import PythonLanguage
from agent.pipeline.nodes.execute import mark_unexercised
from agent.sandbox.base import Environment, RunResult, Sandbox, SandboxBackend
from agent.types import Cause, Origin, Status
from tests.sandbox.traps import FILES, REPOSITORY, TRAPS, UNUSABLE, VERSION, Trap
from tests.sandbox.wheelhouse import make_wheel, use_folder

PYTHON = PythonLanguage()


@pytest.fixture(scope="module")
async def environment(backend: SandboxBackend) -> AsyncIterator[Environment]:
    """The environment with the package of the traps."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make_wheel(Path(folder), REPOSITORY, VERSION, files=FILES)
        use_folder(patch, Path(folder))
        built = await backend.environments.build([f"{REPOSITORY}=={VERSION}"])
    yield built
    backend.environments.release(built.key)


def find_origin(trap: Trap) -> tuple[Snippet, Origin]:
    """Return the snippet of a trap and where it comes from."""
    file, owner, name, number = trap.place
    known = "early" if name == "other" else name
    found = [item for item in find_functions(FILES[file]) if (item.class_name, item.name) == (owner, known)][number]
    code = (found.code or "").replace("early", known).replace("x - 1", "x - 2" if name == "other" else "x - 1")
    module = file.removesuffix(".py").replace("/", ".")
    lines = (found.start_line, found.end_line)
    origin = Origin(repository=REPOSITORY, commit=VERSION, name=known, module=module, lines=lines, class_name=owner)
    return PYTHON.inspect(code), origin


def get_timeout(origin: Origin) -> float:
    return 2.0 if origin.module == "trappkg.hangs" else 20.0


async def probe(sandbox: Sandbox, snippet: Snippet, origin: Origin, key: str) -> tuple[RunResult, Module | None]:
    """Run a probe, and return its result and the module, or None if the module is unusable."""
    program = PYTHON.build_probe(snippet, origin)
    result = await sandbox.run(PYTHON.job(program, environment=key, timeout=get_timeout(origin)))
    usable = PYTHON.report(program, result).status is Status.PASSED
    try:
        module = PYTHON.read_module(program, result, origin, 100)
    except ModuleUnusable:
        assert not usable
        return result, None
    assert usable
    return result, module


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
async def test_a_trap(shared_sandbox: Sandbox, environment: Environment, trap: Trap) -> None:
    snippet, origin = find_origin(trap)
    _, module = await probe(shared_sandbox, snippet, origin, environment.key)
    program = PYTHON.insert_in_module(trap.program, snippet, module or Module(origin, ""))
    assert program.source.split("\n")[program.first_line - 1 : program.last_line] == snippet.code.split("\n")
    key, timeout = environment.key, get_timeout(origin)
    job = PYTHON.job(program, environment=key, timeout=timeout)
    report = PYTHON.report(program, await shared_sandbox.run(job))
    if report.status in (Status.PASSED, Status.FAILED):
        sentinel = PYTHON.sentinel_job(program, environment=key, timeout=timeout)
        assert sentinel is not None
        report = mark_unexercised(report, PYTHON.report(program, await shared_sandbox.run(sentinel)))
    outcomes = " ".join(case.outcome for case in report.cases)
    assert f"{report.status}/{report.cause}: {outcomes}" == trap.report, report
    assert (program.stand_ins, report.introspection) == (trap.stand_ins, trap.introspection)
    assert (module is None) == (trap.report in (UNUSABLE, "error/dependency: not_run"))


async def test_the_source_is_reported_before_the_module_runs(shared_sandbox: Sandbox, environment: Environment) -> None:
    result, _ = await probe(shared_sandbox, *find_origin(TRAPS["end of the process"]), environment.key)
    assert {record.kind for record in result.records} == {"source"}
    assert "".join(record.message for record in result.records) == FILES["trappkg/dies.py"]


@pytest.mark.parametrize(("name", "line", "is_usable"), [("first of twins", 9, False), ("slow import", 9, True)])
async def test_a_function_may_be_on_other_lines_if_no_other_is_equal(
    shared_sandbox: Sandbox, environment: Environment, name: str, line: int, is_usable: bool
) -> None:
    snippet, origin = find_origin(TRAPS[name])
    moved = origin.model_copy(update={"lines": (line, line)})
    assert ((await probe(shared_sandbox, snippet, moved, environment.key))[1] is not None) == is_usable


async def test_child_processes_import_the_program_and_the_module(
    shared_sandbox: Sandbox, environment: Environment
) -> None:
    snippet, origin = find_origin(TRAPS["super"])
    program = PYTHON.insert_in_module(
        "import subprocess, sys\nfrom trappkg.core import Slotted\ndef test_a():\n    assert Slotted(1).greet('x')\n"
        "    subprocess.run([sys.executable, '-c', 'import test_program; test_program.Slotted(1)'], check=True)\n",
        snippet,
        Module(origin, ""),
    )
    result = await shared_sandbox.run(PYTHON.job(program, environment=environment.key, timeout=20))
    assert PYTHON.report(program, result).status is Status.PASSED


async def test_a_module_of_the_harness_is_not_replaced(shared_sandbox: Sandbox) -> None:
    origin = Origin(repository="python", commit="3", name="f", module="types")
    program = PYTHON.build_probe(PYTHON.inspect("def f():\n    pass\n"), origin)
    result = await shared_sandbox.run(PYTHON.job(program, environment=None, timeout=5))
    assert PYTHON.report(program, result).cause is Cause.CONTEXT
