"""Bash for test-driven-annotator. The snippet stays in a file of its own, which the program sources at the marker."""

import re

from agent import extend
from agent.extend import Cause, MalformedProgram, Program, SandboxJob

# Runs one case. Assertions write to a file, so that no subshell, `set +e` or `exit` hides their results.
RUNNER = r"""
_report() {
  builtin trap - DEBUG
  local i=0; while [[ ${BASH_SOURCE[i]-} == "$0" ]]; do i=$((i + 1)); done
  builtin printf '%s\0' "$1" "${BASH_SOURCE[i]-}" "${BASH_LINENO[i - 1]}" "${2-}" >>"$0.report"
  if [[ $1 == *Error ]]; then builtin kill -9 $$; fi
}
_compare() { if [[ $2 == "$1" ]]; then _report passed; else _report AssertionError "expected '$1', got '$2'"; fi; }
assert_equal() { _compare "$1" "${2-}"; }
assert_output() { local _output; _output=$("${@:2}") || :; _compare "$1" "$_output"; }
assert_status() { local _status=0; ("${@:2}") || _status=$?; _compare "$1" "$_status"; }
command_not_found_handle() { _report CommandNotFound "$1"; builtin echo "$1: command not found" >&2; return 127; }
_enter() { _report EntryError; }
readonly -f _report _compare assert_equal assert_output assert_status command_not_found_handle _enter
readonly _case=$1; shift; _running=; . "${0%/*}/program.sh"
_running=1; "$_case"; _report end
"""
# Runs in the sandbox's Python. The snippet's lines have the same numbers in their own file as in the program.
HARNESS = r"""
import ctypes, re, subprocess, tempfile

def main(job, emit):
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: Bash cannot read the memory of this process
    for name in job.cases:
        folder = tempfile.mkdtemp()
        for file, text in job.options.items():
            with open(folder + "/" + file, "w", encoding="utf-8", errors="surrogatepass") as stream:
                stream.write(text)
            check = ["bash", "-O", "extglob", "-n", stream.name]
            done = subprocess.run(check, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace")
            if done.returncode:
                return emit("load", "", "error", "SyntaxError", done.stderr)
        emit("start", name)
        with open(folder + "/errors", "w+", errors="replace") as errors:
            command, work = ["bash", folder + "/runner.sh", name], tempfile.mkdtemp(dir=job.work)
            status = subprocess.call(command, cwd=work, stdin=subprocess.DEVNULL, stderr=errors)
            errors.seek(0)
            text = errors.read()[-2000:]
        with open(folder + "/runner.sh.report", errors="replace") as report:
            records = {kind: fields for kind, *fields in zip(*[iter(report.read().split("\0"))] * 4)}
        kind = next((kind for kind in ("EntryError", "CommandNotFound", "AssertionError") if kind in records), "Exit")
        file, line, message = records.get(kind, ("", 0, "it ended early with status %d: %s" % (status, text)))
        places = [(file, line)] if file else re.findall(r"(\S+\.sh): line (\d+)", text)
        frames = [(file.split("/")[-1].replace("snippet", "program"), int(line), "") for file, line in places]
        if "end" in records and kind in ("Exit", "CommandNotFound"):
            emit("case", name, *(["passed"] if "passed" in records else ["error", "NoAssertion", "no assert ran"]))
        else:
            emit("case", name, "failed" if kind == "AssertionError" else "error", kind, message, frames)
"""
SOURCE = '. "${0%/*}/snippet.sh"'
FUNCTION = re.compile(r"(?:^|[;&|{(])[ \t]*(?:function\s+([^\s(){};]+)|([^\s(){}'\"$;&|<>=#]+)[ \t]*\([ \t]*\))", re.M)
REACH_RUNNER = re.compile(r"\b(?:BASH_ARGV0|alias|builtin|enable|extdebug|kill|_report)\b|/proc\b|\.report\b")


def find_functions(code: str) -> list[str]:
    return [match[1] or match[2] for match in FUNCTION.finditer(code)]


class BashLanguage(extend.Language):
    name = fence = "bash"
    marker = "# <candidate>"
    toolchain = extend.Toolchain("bash", "", (4, 4), "Choose an image with Bash 4.4 or later.")
    prompt_rules = """\
Test cases are functions named `test_...` without parameters. Each one runs in a Bash process and an empty folder of its
own, after the rest of the program. Only these functions check results, and each case calls at least one of them:
`assert_output EXPECTED COMMAND...` compares what a command prints, without newlines at its end.
`assert_status NUMBER COMMAND...` compares an exit status. `assert_equal EXPECTED ACTUAL` compares strings.
Never define these functions, and never use `set -e`. Functions of the code may fail or exit: call them only through
`assert_output`, `assert_status` or `$(...)`. The marker stands at the top level if the code defines functions. Put a
script without functions into a function: write `run() {`, the marker and `}` on lines of their own, and call `run`."""

    def insert(self, template: str, snippet: extend.Snippet) -> Program:
        code, template = (text.replace("\r\n", "\n") for text in (snippet.code, template))
        parts = re.split(f"^[ \t]*{self.marker}[ \t]*$", template, flags=re.MULTILINE)
        cases = tuple(name for name in find_functions(template) if name.startswith("test_"))
        if len(parts) != 2:
            raise MalformedProgram(f"the line `{self.marker}` must appear exactly once")
        if not cases or len({*cases}) < len(cases) or {*cases} & {*find_functions(code)}:
            raise MalformedProgram("write test cases as functions `test_...` with names that no other function has")
        text, row = code.join(parts), parts[0].count("\n") + 1
        end, reach = row + code.count("\n"), tuple(sorted({*REACH_RUNNER.findall(text)}))
        return Program(template=template, source=text, first_line=row, last_line=end, cases=cases, introspection=reach)

    def job(self, program: Program, *, environment: str | None, timeout: float, load: str = SOURCE) -> SandboxJob:
        lines = program.source.split("\n")
        snippet = lines[program.first_line - 1 : program.last_line]
        lines[program.first_line - 1 : program.last_line] = [load, *[""] * (len(snippet) - 1)]
        files = {"snippet.sh": "\n" * (program.first_line - 1) + "\n".join(snippet), "program.sh": "\n".join(lines)}
        files |= {"runner.sh": RUNNER, "runner.sh.report": ""}
        return SandboxJob(HARNESS, program.source, program.cases, files, environment, timeout)

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:
        names = find_functions(self.job(program, environment=environment, timeout=timeout).options["snippet.sh"])
        load = [SOURCE, *(f"{name}() {{ _enter; }}" for name in names)] if names else []  # without functions: nothing
        load = "; ".join(["${_running:+_enter}", *load])  # a case that runs the marker line enters the snippet as well
        return self.job(program, environment=environment, timeout=timeout, load=load)

    def report(self, program: Program, result: extend.RunResult) -> extend.TestReport:
        return extend.build_report(program, result, BashBlame(program))


class BashBlame(extend.Blame):
    file = "program.sh"

    def judge_record(self, record: extend.ReportLine) -> Cause:
        cause = self.judge_frames(record.frames)
        if record.error_type == "SyntaxError":
            return Cause.SNIPPET if "snippet.sh" in record.message else Cause.PROGRAM
        if record.error_type == "CommandNotFound" and cause is Cause.SNIPPET:
            return Cause.DEPENDENCY  # no package can provide the command, but a stand-in can
        is_exit = record.error_type == "Exit" and not re.search(r"\bexit\b", self._program.template)
        return cause or (Cause.SNIPPET if is_exit else Cause.PROGRAM)
