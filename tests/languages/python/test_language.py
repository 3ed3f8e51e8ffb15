"""Programs from templates: cases and imports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import UnsupportedLanguage
from agent.languages.base import Language, MalformedProgram, Program, Snippet
from agent.languages.python.language import PythonLanguage

python = PythonLanguage()
CODE = "def add(a, b):\n    return a + b"


def insert(template: str, code: str = CODE) -> Program:
    return python.insert(template, python.inspect(code))


class TestCases:
    def test_functions_and_test_case_methods_are_found_in_order(self) -> None:
        program = insert(
            "import unittest\n# <candidate>\n"
            "def test_one():\n    assert add(1, 2) == 3\n"
            "async def test_two():\n    pass\n"
            "if True:\n    def test_three():\n        pass\n"
            "try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    def test_four():\n        pass\n"
            "class Sums(unittest.TestCase):\n    def test_five(self):\n        pass\n"
            "    def helper(self):\n        pass\n"
            "class Async(unittest.IsolatedAsyncioTestCase):\n    async def test_six(self):\n        pass\n"
        )
        names = ("test_one", "test_two", "test_three", "test_four", "Sums.test_five", "Async.test_six")
        assert program.cases == names
        assert program.options == {"first_line": "2", "last_line": "3"}

    def test_methods_of_bases_in_the_program_count(self) -> None:
        program = insert(
            "from unittest import TestCase\n# <candidate>\nclass Shared:\n    def test_a(self):\n        pass\n"
            "class Base(TestCase):\n    pass\nclass Real(Shared, Base):\n    def test_b(self):\n        pass\n"
        )
        assert program.cases == ("Real.test_a", "Real.test_b")

    @pytest.mark.parametrize(
        "template",
        [
            "# <candidate>\nassert add(1, 2) == 3\n",
            "# <candidate>\nclass TestAdd:\n    def test_a(self):\n        pass\n",
            "# <candidate>\nif __name__ == '__main__':\n    def test_a():\n        pass\n",
        ],
    )
    def test_a_program_without_cases_is_rejected(self, template: str) -> None:
        with pytest.raises(MalformedProgram, match="no test case"):
            insert(template)

    def test_the_snippets_own_tests_are_not_cases(self) -> None:
        code = "def test_add():\n    return 1"
        with pytest.raises(MalformedProgram, match="no test case"):
            insert("# <candidate>\n", code)
        template = "import unittest\nclass A(unittest.TestCase):\n    # <candidate>\n"
        with pytest.raises(MalformedProgram, match="no test case"):
            insert(template, "def test_add(self):\n    return 1")

    def test_duplicate_cases_and_cases_that_never_run_are_rejected(self) -> None:
        twice = "def test_a():\n    pass\n"
        with pytest.raises(MalformedProgram, match="`test_a`"):
            insert(f"# <candidate>\n{twice}{twice}")
        with pytest.raises(MalformedProgram, match="`yield`"):
            insert("# <candidate>\ndef test_a():\n    yield add(1, 2)\n")

    @pytest.mark.parametrize(
        "case",
        [
            "def test_a():\n    return add(1, 2) == 4",
            "def test_a():\n    add(1, 2) == 4",
            "def test_a():\n    for n in (1, 2):\n        not add(n, 2) > 4",
            "def test_a():\n    with open('f') as f:\n        add(1, 2) == 4 and f",
            "def test_a():\n    assert (add(1, 2) == 4, 'message')",
            "def test_a():\n    check(add(1, 2))\ndef check(x):\n    assert (x == 4, 'message')",
        ],
    )
    @pytest.mark.parametrize("in_class", [False, True])
    def test_a_check_that_cannot_fail_is_rejected(self, case: str, in_class: bool) -> None:
        if in_class:
            case = "import unittest\nclass A(unittest.TestCase):\n    " + case.replace("\n", "\n    ")
        with pytest.raises(MalformedProgram, match=r"return|comparison|parentheses"):
            insert("# <candidate>\n" + case)

    @pytest.mark.parametrize(
        "case",
        [
            "def test_a():\n    def given():\n        return 2\n    assert add(1, given()) == 3\n    return",
            "def test_a():\n    assert add(1, 2) == 3, ('message', 1)\n    return None",
            "def test_a():\n    with pytest.raises(TypeError):\n        add(1, 2) < 'x'",
            "def test_a():\n    try:\n        add(1, 2) < 'x'\n    except TypeError:\n        return\n    assert False",
            "def test_a():\n    assert sorted([2, 1], key=lambda x: add(x, 0) > 1)",
        ],
    )
    def test_a_check_that_can_fail_is_accepted(self, case: str) -> None:
        snippet = "def add(a, b):\n    a == b\n    assert (a, b)\n    return a + b"
        assert insert("# <candidate>\n" + case, snippet).cases == ("test_a",)

    def test_the_number_of_cases_is_limited(self) -> None:
        cases = "".join(f"def test_{number}():\n    pass\n" for number in range(51))
        with pytest.raises(MalformedProgram, match=r"\b51\b.*\b50\b"):
            insert("# <candidate>\n" + cases)


class TestPytest:
    def test_importing_pytest_requires_it(self) -> None:
        program = insert(
            "import pytest\n# <candidate>\n@pytest.fixture\ndef test_data():\n    return 1\n"
            "class TestAdd:\n    def test_a(self):\n        pass\n"
        )
        assert program.options["pytest"] == "1"
        assert program.cases == ("TestAdd.test_a",)
        assert program.imports == ("pytest",)

    def test_cases_with_fixtures_require_pytest(self) -> None:
        program = insert("# <candidate>\ndef test_a(tmp_path):\n    pass\n")
        assert (program.options["pytest"], program.imports) == ("1", ("pytest",))

    def test_arguments_of_mock_patch_are_no_fixtures(self) -> None:
        template = "from unittest import mock\n# <candidate>\n@mock.patch.object(dict, 'x')\ndef test_a(x):\n    pass\n"
        assert "pytest" not in insert(template).options


class TestImports:
    def test_third_party_modules_of_program_and_snippet_are_listed_once(self) -> None:
        program = insert(
            "import numpy as np, os.path\n# <candidate>\ndef test_a():\n    from yaml.nodes import Node\n",
            "import requests.adapters\nimport urllib2, numpy\nfrom . import mine\ndef f():\n    pass",
        )
        assert program.imports == ("numpy", "requests", "yaml")

    def test_modules_of_shared_namespaces_are_listed_by_the_names_in_the_import_map(self) -> None:
        code = """
import google.protobuf.message, zope.interface as z
from azure import core
def f():
    from google.cloud.storage import Client
    from ruamel.yaml import YAML
    import importlib
    importlib.import_module('google.auth.transport')
"""
        names = ("google.protobuf", "zope.interface", "azure.core", "google.cloud.storage", "ruamel", "google.auth")
        assert insert("# <candidate>\ndef test_a():\n    pass\n", code).imports == names

    def test_optional_and_provided_modules_are_excluded(self) -> None:
        program = insert(
            "import sys, types\nsys.modules['redis'] = types.ModuleType('redis')\n"
            "sys.modules.update({'boto3.session': types.ModuleType('x')})\n# <candidate>\ndef test_a():\n    pass\n",
            "import redis, boto3\ntry:\n    import simplejson\nexcept ImportError:\n    import ujson\n"
            "else:\n    import attr\ndef f():\n    pass",
        )
        assert program.imports == ("attr",)


def test_an_unparsable_snippet_is_not_inserted() -> None:
    with pytest.raises(MalformedProgram, match="Python 2 syntax: print statement"):
        insert("# <candidate>\ndef test_a():\n    pass\n", "print 'x'")


def test_a_job_contains_program_cases_options_and_harness() -> None:
    program = insert("# <candidate>\ndef test_a():\n    pass\n")
    job = python.job(program, environment="key", timeout=3)
    assert (job.program, job.cases, job.environment, job.timeout) == (program.source, ("test_a",), "key", 3)
    assert job.options == {"first_line": "1", "last_line": "2"}
    assert "def main(" in job.harness
    sentinel = python.sentinel_job(program, environment="key", timeout=3)
    assert sentinel == replace(job, options={**job.options, "sentinel": "1"})


@pytest.mark.parametrize("code", ["total = 1 + 2\n", "import os\nclass A:\n    x = 1\n"])
def test_a_snippet_without_functions_has_no_sentinel_run(code: str) -> None:
    program = insert("# <candidate>\ndef test_a():\n    pass\n", code)
    assert python.sentinel_job(program, environment=None, timeout=3) is None


def test_the_base_language_cannot_run_programs() -> None:
    cobol = Language("cobol")
    assert (cobol.name, cobol.fence, cobol.inspect("X").problem) == ("cobol", "cobol", None)
    with pytest.raises(UnsupportedLanguage, match="'cobol'"):
        cobol.insert("", Snippet("X"))
