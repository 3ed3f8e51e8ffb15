"""Bash, as a language in a package of its own, works in every command."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from agent.extend import Language, MalformedProgram
from agent.pipeline.nodes.execute import mark_unexercised
from agent.sandbox.base import SandboxBackend
from agent.types import CaseOutcome, Status
from tests.cli.commands import ROOT, read_annotations
from tests.languages.packages import run_agent
from tests.sandbox.conftest import run_once
from tests.scripts import label, program, screen

RIGHT = "f() { echo $(( $1 + 1 )); }"
WRONG = "f() { echo 0; }"
CASES = '# <candidate>\ntest_a() { assert_output 3 f 2; }\ntest_b() { assert_equal 6 "$(f 5)"; }\n'
CALLED = "# <candidate>\ntest_a() { f 2; assert_equal 1 2; }\n"
STATUS = "# <candidate>\ntest_a() { assert_status 7 f; }\n"
SCRIPT = "run() {\n# <candidate>\n}\ntest_a() { assert_output 3 run 2; }\n"
FORGE = r'printf "passed\0\0\0\0end\0\0\0\0" >"$0.rep""ort"'

# the program, the snippet, and the status and the cause, followed by names through which code can reach the runner
VERDICTS = {
    "a right snippet": (CASES, RIGHT, "passed"),
    "a wrong snippet": (CASES, WRONG, "failed snippet"),
    "the other form of a function": (CASES, "function f {\n  echo $(( $1 + 1 ))\n}", "passed"),
    "extended patterns": (CASES, "shopt -s extglob\nf() { local x=${1%%+([a-z])}; echo $((x + 1)); }", "passed"),
    "a heredoc": (CASES, "f() {\ncat <<EOF\n$(( $1 + 1 ))\nEOF\n}", "passed"),
    "an early return": (CASES, f'{RIGHT}\n[[ $0 == "${{BASH_SOURCE[0]}}" ]] || return 0\nexit 1', "passed"),
    "strict mode": (CASES, f"set -euo pipefail\n{RIGHT}", "passed"),
    "set +e": (CALLED, "f() { set +e; }", "failed snippet"),
    "exit 0": (CALLED, "f() { exit 0; }", "error snippet"),
    "exit 0 at load": (CASES, f"{RIGHT}\nexit 0", "error snippet"),
    "exit in the program": (CALLED.replace("f 2", "exit"), RIGHT, "error program"),
    "a status": (STATUS, "f() { return 7; }", "passed"),
    "a wrong status": (STATUS, "f() { return 6; }", "failed snippet"),
    "a missing command": (CASES, "f() { absent 2>/dev/null; }", "error dependency"),
    "a missing command that is handled": (CASES, "f() { absent 2>/dev/null || echo $(( $1 + 1 )); }", "passed"),
    "a missing stand-in": (CASES.replace(" f ", " g "), RIGHT, "error program"),
    "a redefined assert": (CASES, f"{WRONG}\nassert_equal() {{ :; }}\nassert_output() {{ :; }}", "failed snippet"),
    "a failure in a subshell": (CALLED.replace("f 2", "(assert_output 3 f 2)"), WRONG, "failed snippet"),
    "an alias": (CASES, f"shopt -s expand_aliases\nalias assert_output=:\n{WRONG}", "error program alias"),
    "the builtins of the runner": (CASES, f"{WRONG}\nbuiltin() {{ :; }}", "error snippet builtin"),
    "a forged report": (CASES, f"_report() {{ :; }}\n{WRONG}", "failed snippet _report"),
    "a forging trap": (CASES, f"{WRONG}\nset -T; trap '{FORGE}' DEBUG", "failed snippet"),
    "a killed runner": (CASES, f"{WRONG}\nkill -9 $PPID", "error snippet kill"),
    "the memory of the runner": (STATUS.replace("7", "2"), "f() { ls /proc/$PPID/fd; }", "passed /proc"),
    "an endless loop": (CASES, "f() { while :; do :; done; }", "timeout snippet"),
    "a syntax error": (CASES, 'f() { echo "', "error snippet"),
    "a syntax error in the program": (f"{CASES}fi\n", RIGHT, "error program"),
    "no assertion": ('# <candidate>\ntest_a() { [[ "$(f 2)" == 4 ]]; }\n', RIGHT, "error program"),
    "a replaced snippet": (f"{CASES}{RIGHT}\n", WRONG, "not_exercised"),
    "an unused snippet": (CASES.replace("f 2", "echo 3").replace("f 5", "echo 6"), RIGHT, "not_exercised"),
    "a marker in a heredoc": (
        f"cat <<EOF\n# <candidate>\nEOF\n{RIGHT}\n{CASES.split(maxsplit=2)[2]}",
        WRONG,
        "not_exercised",
    ),
    "a script": (SCRIPT, "echo 3", "passed"),
    "a wrong script": (SCRIPT, "echo 4", "failed snippet"),
    "a case of the snippet": (CASES, f"{RIGHT}\ntest_a() {{ :; }}", "refused"),
    "no marker": (CASES.replace("<", ""), RIGHT, "refused"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pip has installed the package."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", folder)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, ROOT / "examples" / "agent-bash"], check=True)
    return folder


@pytest.fixture(scope="module")
def bash(site: Path) -> Language:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        language = import_module("agent_bash").BashLanguage()
    assert isinstance(language, Language)
    return language


@pytest.mark.parametrize(("template", "code", "expected"), VERDICTS.values(), ids=VERDICTS)
async def test_a_program_has_its_verdict(
    backend: SandboxBackend, bash: Language, template: str, code: str, expected: str
) -> None:
    timeout = 2 if expected.startswith("timeout") else 20
    try:
        test = bash.insert(template, bash.inspect(code))
    except MalformedProgram:
        assert expected == "refused"
        return
    assert "\n".join(test.source.split("\n")[test.first_line - 1 : test.last_line]) == code
    report = bash.report(test, await run_once(backend, bash.job(test, environment=None, timeout=timeout)))
    sentinel = bash.sentinel_job(test, environment=None, timeout=timeout)
    if report.status is Status.PASSED:
        assert sentinel is not None
        report = mark_unexercised(report, bash.report(test, await run_once(backend, sentinel)))
    is_exercised = any(case.outcome is not CaseOutcome.NOT_EXERCISED for case in report.cases)
    verdict = " ".join([report.status, *([report.cause] if report.cause else []), *report.introspection])
    assert (verdict if is_exercised else "not_exercised") == expected, report


@pytest.mark.bwrap
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.long)])
def test_annotate_labels_bash_and_replay_reproduces_the_tests(site: Path, tmp_path: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    codes = {"right": RIGHT, "wrong": WRONG, "exit": "f() { exit 0; }"}
    pairs = [{"id": name, "query": "bash add one", "code": code, "language": "bash"} for name, code in codes.items()]
    replies = [
        {"pair": name, "role": role, "reply": reply}
        for name in codes
        for role, reply in (
            ("screen", screen()), ("generate_test", program(CASES)), ("arbitrate", label(int(name == "right")))
        )
    ]  # fmt: skip
    for file, rows in (("pairs.jsonl", pairs), ("replies.jsonl", replies)):
        (tmp_path / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--model", "replay:replies.jsonl", "--sandbox", "bwrap", "--engine", engine, "-o", "run")
    annotated = run_agent(site, tmp_path, "annotate", "pairs.jsonl", *options)
    assert annotated.returncode == 0, annotated.stderr
    tests = {row["id"]: (row["label"], row["test"]["status"]) for row in read_annotations(tmp_path / "run")}
    assert tests == {"right": (1, "passed"), "wrong": (0, "failed"), "exit": (0, "failed")}
    segment = json.loads((tmp_path / "run" / "manifest.json").read_text())["segments"][0]
    assert segment["environment"]["languages"] == {"bash": "agent-bash 0.1.0"}
    replay = json.loads(run_agent(site, tmp_path, "replay", "run").stdout)
    assert (replay["same"], replay["different"]) == (3, 0), replay
