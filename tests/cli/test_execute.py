"""`agent exec` runs one test program and reports its cases."""

from __future__ import annotations

import signal

import pytest

from agent.sandbox.owner import PREFIX
from tests.cli.commands import ADD, Commands
from tests.cli.processes import find_alive, find_descendants, wait_until
from tests.conftest import explain_missing
from tests.scripts import PROGRAM

BACKENDS = [pytest.param("bwrap", marks=pytest.mark.bwrap), pytest.param("docker", marks=pytest.mark.docker)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_passing_program_exits_with_0_and_reports_its_cases(agent: Commands, backend: str) -> None:
    files = (agent.write("t.py", PROGRAM), "--code", agent.write("add.py", ADD))
    result = agent("exec", *files, "--sandbox", backend, "--json")
    assert result.code == 0
    assert "Traceback" not in result.err
    report = result.json
    assert (report["status"], report["cause"], report["passed"]) == ("passed", None, 2)
    assert [case["name"] for case in report["cases"]] == ["test_small", "test_negative"]
    assert [(record["kind"], record["name"]) for record in report["records"]][:2] == [
        ("start", "test_small"),
        ("case", "test_small"),
    ]
    assert (report["environment"], report["installed"], report["limit"], report["truncated"]) == (None, [], None, False)
    assert (report["sandbox"]["backend"], report["sandbox"]["python"]) == (backend, report["python"])
    assert report["seconds"] > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_failed_case_exits_with_1_and_is_printed(agent: Commands, backend: str) -> None:
    wrong = agent.write("add.py", "def add(a, b):\n    print('\\x1b[31m' + 'seen')\n    return a - b\n")
    result = agent("exec", agent.write("t.py", PROGRAM), "--code", wrong, "--sandbox", backend)
    assert result.code == 1
    assert "failed   test_small" in result.out
    assert "--- stdout\n\\x1b[31mseen" in result.out
    assert result.out.splitlines()[-1].startswith("failed (cause: snippet): 0 passed, 2 failed, ")


@pytest.mark.bwrap
@pytest.mark.parametrize(("body", "status"), [
    ("import os\n    os._exit(0)", "error"),
    ("assert 1 + 1 == 3", "failed"),
    ("while True: pass", "timeout"),
])  # fmt: skip
def test_without_a_snippet_the_program_is_the_cause(agent: Commands, body: str, status: str) -> None:
    program = agent.write("t.py", f"def test_alone():\n    {body}\n")
    result = agent("exec", program, "--sandbox", "bwrap", "--timeout", "2", "--json")
    report = result.json
    assert (result.code, report["status"], report["cause"]) == (1, status, "program")
    assert report["timed_out"] == (report["hang"] != []) == (status == "timeout")
    assert {case["cause"] for case in report["cases"]} == {"program"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_no_process_or_container(agent: Commands, backend: str, stop_signal: signal.Signals) -> None:
    endless = agent.write("t.py", "def test_never_ends():\n    while True:\n        pass\n")
    process = agent.start("exec", endless, "--sandbox", backend, "--timeout", "60")
    wait_until(lambda: len(find_descendants(process.pid)) > 1 or bool(find_containers(process.pid)), "a sandbox")
    processes = find_descendants(process.pid)
    result = process.stop(stop_signal)
    assert result.code not in (0, 1)
    assert "Traceback" not in result.err
    assert "never retrieved" not in result.err
    wait_until(lambda: not find_alive(processes), "the end of its processes", 5)
    assert not find_containers(process.pid)


def find_containers(pid: int) -> list[str]:
    """Return the containers that a process started, if there is an engine."""
    if explain_missing("docker"):
        return []
    import docker

    client = docker.from_env()
    try:
        return [
            container["Id"] for container in client.api.containers(all=True, filters={"label": f"{PREFIX}.pid={pid}"})
        ]
    finally:
        client.close()


@pytest.mark.bwrap
def test_missing_module_is_reported_as_dependency(agent: Commands) -> None:
    importing = agent.write("t.py", "import no_such_module_at_all\n\n\ndef test_it():\n    assert True\n")
    result = agent("exec", importing, "--sandbox", "bwrap", "--no-install", "--json")
    assert (result.code, result.json["status"], result.json["cause"]) == (1, "error", "dependency")


def test_unusable_files_are_reported(agent: Commands) -> None:
    good, empty = agent.write("t.py", PROGRAM), agent.write("empty.py", "x = 1\n")
    latin, broken = agent.write("latin.py", b"# \xe9\n"), agent.write("broken.py", "def f(:\n")
    for arguments, message in (
        (("gone.py",), "gone.py: "),
        ((latin,), "latin.py: "),
        ((broken,), "broken.py: "),
        ((empty,), "empty.py: "),
        ((good, "--code", broken), "broken.py: "),
        ((good,), "--code"),
        ((good, "--code", agent.write("add.py", ADD), "-c", "sandbox.memory=1"), "'sandbox.memory'"),
    ):
        agent.check_refused(message, "exec", *arguments)


@pytest.mark.bwrap
def test_program_that_replaces_the_snippet_does_not_pass(agent: Commands) -> None:
    code = agent.write("same.py", "def f(x):\n    return x\n")
    case = "def test_a():\n    assert f(1) == 2\n"
    for line in ("f.__code__ = (lambda x: x + 1).__code__", "f = lambda x: x + 1"):
        replaced = agent(
            "exec", agent.write("t.py", f"# <candidate>\n{line}\n\n{case}"), "--code", code, "--sandbox", "bwrap"
        )
        assert replaced.code == 1
        assert "not_exercised test_a" in replaced.out
        assert "error (cause: program)" in replaced.out
    local = case.replace("    assert", "    f = lambda x: x + 1\n    assert")
    never = agent("exec", agent.write("t.py", f"# <candidate>\n{local}"), "--code", code, "--sandbox", "bwrap")
    assert never.code == 1
    assert "snippet" in never.out
    honest = agent("exec", agent.write("t.py", f"# <candidate>\n{case}"), "--code", code, "--sandbox", "bwrap")
    assert honest.code == 1
    assert "failed   test_a" in honest.out
