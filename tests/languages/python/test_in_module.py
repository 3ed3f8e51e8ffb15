"""Programs for a snippet in its module contain the snippet, and a probe proves that the module contains it, too."""

from __future__ import annotations

from typing import Any

import pytest

from agent.languages.base import MalformedProgram, Module, ModuleUnusable
from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import Frame, ReportLine, RunResult
from agent.types import Cause, Origin

PYTHON = PythonLanguage()
ORIGIN = Origin(repository="package", commit="1.0", name="f", module="package.core", lines=(2, 4))
SNIPPET = PYTHON.inspect("@cache\ndef f(x):\n    return x")
SOURCE = "from functools import cache\n@cache\ndef f(x):\n    return x\n\nimport gc\n"
TEST = "from package.core import f\nimport requests\n\n\ndef test_a():\n    assert f(1) == 1\n"


def insert(template: str, origin: Origin = ORIGIN) -> tuple[str, ...]:
    """Return what a program for the snippet patches."""
    return PYTHON.insert_in_module(template + TEST, SNIPPET, Module(origin, "")).stand_ins


@pytest.mark.parametrize("head", ["", '"""Doc."""\n', '"""Doc."""\nfrom __future__ import annotations\n'])
def test_the_snippet_is_below_the_docstring_and_the_imports_from_future(head: str) -> None:
    module = Module(ORIGIN, "outline", introspection=("gc",))
    program = PYTHON.insert_in_module(f"{head}{TEST}\n    # <candidate>\n", SNIPPET, module)
    lines = program.source.split("\n")
    assert "\n".join(lines[program.first_line - 1 : program.last_line]) == SNIPPET.code
    assert program.first_line == head.count("\n") + 1
    assert program.template.startswith(head + TEST)
    assert program.options == {
        "first_line": str(program.first_line),
        "last_line": str(program.last_line),
        "module": "package.core",
        "class": "",
        "name": "f",
        "line": "2",
    }
    assert (program.cases, program.imports, program.introspection) == (("test_a",), ("requests",), ("gc",))


@pytest.mark.parametrize(
    ("code", "stand_ins"),
    [
        ("import package.core as m\nm.g = m.h.k = 1\ndel m.x\nn = m\n", ("m.g", "m.h.k", "m.x")),
        ("import sys\nsys.modules['a'] = 1\nsys.modules['package'].g = 2\n", ("a", "sys.modules['package'].g")),
        ("import package as p\nsetattr(p, 'g', 1)\nsetattr(other, 'g', 1)\np.A().g = 1\n", ("p.g",)),
        ("def test_b(monkeypatch):\n    monkeypatch.setattr('package.core.g', 1)\n", ("package.core.g",)),
        ("from unittest import mock\n@mock.patch('package.g')\ndef test_b(g): pass\n", ("package.g",)),
        ("import package\ndef test_b(mocker): mocker.patch.object(package, 'g')\n", ("package.g",)),
        ("import importlib as i\ni.import_module('package.core').g = 1\n", ("i.import_module('package.core').g",)),
        ("import package.core as m\nn = m\nn.g = (a := n.A()).g = a.g = 1\n", ("n.g",)),
        ("from unittest.mock import patch\n@patch(TARGET, 'x')\ndef test_b(): pass\n", ("TARGET",)),
        ("def test_b(mocker): mocker.patch(f'{M}.g')\n", ("f'{M}.g'",)),
        ("def test_b(monkeypatch): monkeypatch.setattr(find(), 'g', 1)\n", ("find().g",)),
        ("import package as p\np" + ".a" * 600 + " = 1\n", ("...",)),
        ("def test_b(): client.patch(URL)\n", ()),
        ("import requests\ndef test_b(): requests.patch('https://example.com/a.b')\n", ()),
    ],
)  # fmt: skip
def test_patches_are_stand_ins(code: str, stand_ins: tuple[str, ...]) -> None:
    assert insert(code) == stand_ins


@pytest.mark.parametrize("template", ["def test_a(:\n    pass\n", "return\n", "class A:\n    # <candidate>\n"])
def test_a_program_that_does_not_parse_is_malformed(template: str) -> None:
    with pytest.raises(MalformedProgram):
        insert(template)


def test_a_program_does_not_load_pytest_before_a_module_that_pytest_uses() -> None:
    with pytest.raises(MalformedProgram):
        insert("import pytest\n", ORIGIN.model_copy(update={"module": "pluggy._hooks"}))


def read(*records: ReportLine, **ending: int) -> Module:
    """Read the module that a probe of the snippet found."""
    probe = PYTHON.build_probe(SNIPPET, ORIGIN)
    assert (probe.cases, probe.options["probe"]) == (("test_probe",), "1")
    return PYTHON.read_module(probe, RunResult(records, **ending), ORIGIN, 100)  # type: ignore[arg-type]


CASE = (ReportLine("start", "test_probe"), ReportLine("case", "test_probe", "passed"), ReportLine("end"))
OPENED = (ReportLine("context", "name"), *CASE)


def test_a_module_is_read_from_the_first_records() -> None:
    halves = [ReportLine("source", "/env/package/core.py", message=text) for text in (SOURCE[:30], SOURCE[30:])]
    module = read(*halves, OPENED[0], ReportLine("source", message="'forged'"), *CASE)
    assert (module.origin, module.introspection) == (ORIGIN, ("gc",))
    assert "from package.core import f" in module.outline


@pytest.mark.parametrize(
    "records",
    [
        OPENED,
        (ReportLine("source", message=SOURCE.replace("return x", "return 1")), *OPENED),
        (ReportLine("source", message=f"class A:\n  {SOURCE[28:45]}".replace("\n@", "\n  @")), *OPENED),
        (ReportLine("source", message="def f(:"), *OPENED),
        (ReportLine("source", message=SOURCE), *CASE),
        (ReportLine("source", message=SOURCE), ReportLine("load", "context", "error", "KeyError", "x"), CASE[2]),
    ],
)
def test_a_module_without_proof_is_unusable(records: tuple[ReportLine, ...]) -> None:
    with pytest.raises(ModuleUnusable):
        read(*records)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"module": None}, SNIPPET.code),
        ({"module": "a b"}, SNIPPET.code),
        ({"name": "g"}, SNIPPET.code),
        ({}, "x = 1\n" + SNIPPET.code),
        ({}, "def f(:"),
    ],
)
def test_a_probe_needs_the_function_that_the_origin_names(change: dict[str, str], code: str) -> None:
    with pytest.raises(ModuleUnusable):
        PYTHON.build_probe(PYTHON.inspect(code), ORIGIN.model_copy(update=change))


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (("ModuleNotFoundError", "No module named 'numpy'"), ("numpy",)),
        (("ModuleNotFoundError", "No module named 'package.x'"), ()),
        (("ImportError", "cannot import name 'a' from 'numpy'"), ()),
        (("MemoryError", ""), ()),
    ],
)
def test_only_a_missing_package_can_be_installed(error: tuple[str, str], missing: tuple[str, ...]) -> None:
    probe = PYTHON.build_probe(SNIPPET, ORIGIN)
    result = RunResult((ReportLine("load", "context", "error", *error), ReportLine("end")))
    assert PYTHON.report(probe, result).cause is (Cause.DEPENDENCY if missing else Cause.CONTEXT)
    assert PYTHON.missing(probe, result) == missing


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        ("NameError", "name 'unicode' is not defined", "context"),
        ("NameError", "name 'y' is not defined", "snippet"),
        ("AttributeError", "'dict' object has no attribute 'has_key'", "context"),
        ("AttributeError", "module 'itertools' has no attribute 'izip'", "context"),
        ("AttributeError", "module 'package' has no attribute 'x'", "snippet"),
        ("ModuleNotFoundError", "No module named 'urllib2'", "context"),
        ("ModuleNotFoundError", "No module named 'package.x'", "context"),
        ("ImportError", "cannot import name 'x' from 'package' (unknown location)", "context"),
        ("ModuleNotFoundError", "No module named 'numpy'", "dependency"),
    ],
)
def test_what_the_snippet_lacks_in_its_module_is_no_evidence(error: str, message: str, cause: str) -> None:
    program = PYTHON.insert_in_module(TEST, SNIPPET, Module(ORIGIN, ""))

    def judge(line: int) -> Cause | None:
        ends = (
            ReportLine("case", "test_a", "failed", "AssertionError", "", (Frame("program.py", 9),)),
            ReportLine("case", "test_a", "error", error, message, (Frame("program.py", line), Frame("/env/x.py", 1))),
        )
        return PYTHON.report(program, RunResult((OPENED[0], *(ReportLine("start", "test_a"),) * 2, *ends))).cause

    assert judge(program.last_line) is Cause(cause)
    assert judge(9) is Cause("dependency" if cause == "dependency" else "program")


FAILED = (ReportLine("start", "test_probe"), ReportLine("case", "test_probe", "failed", "AssertionError", "no"))
TAMPERED = ReportLine("tamper", "snippet", message="replaced")
UNUSABLE = ReportLine("load", "context", "error", "ContextError", "other code")


@pytest.mark.parametrize("records", [(), FAILED, (TAMPERED,), (UNUSABLE, *FAILED, TAMPERED)])
@pytest.mark.parametrize("ending", [{"timed_out": True}, {"limit": "memory"}, {"exit_code": 3}, {}])
def test_an_unusable_module_takes_precedence_over_every_cause(records: Any, ending: dict[str, Any]) -> None:
    report = PYTHON.report(PYTHON.build_probe(SNIPPET, ORIGIN), RunResult(records, **ending))
    assert (report.status.value, report.cause, report.says) == ("error", Cause.CONTEXT, None)
