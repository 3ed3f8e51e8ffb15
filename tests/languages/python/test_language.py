"""A template becomes a program: its cases are found, and it leaves the candidate to the candidate."""

from __future__ import annotations

import pytest

from agent.errors import UnsupportedLanguage
from agent.languages import Language, MalformedProgram, Program, PythonLanguage, built_in_languages, get

python = PythonLanguage()
CODE = "def add(a, b):\n    return a + b"
SHADOWS = (
    "add = lambda a, b: 3",
    "add: object = max",
    "add, other = max, 1",
    "for add in [max]: pass",
    "with open('x') as add: pass",
    "import operator as add",
    "from operator import add",
    "print(add := max)",
    "try: pass\n    except Exception as add: pass",
    "assert [add(1, 2) for add in [max]] == [3]",
    "match max:\n        case add: pass",
    "match [max]:\n        case [*add]: pass",
    "assert (lambda add: add(1, 2))(max) == 3",
    "def given(add=max): return add(1, 2)",
    "def given():\n        add = max",
    "if True:\n        add = max",
    "add = 1 if True else add",
)
REPLACEMENTS = (
    "globals()['add'] = max",
    "globals().update(add=max)",
    "globals().update({{'add': max}})",
    "globals().__setitem__('add', max)",
    "del globals()['add']",
    "vars()['add'] = max",
    "vars(sys.modules[__name__])['add'] = max",
    "setattr(sys.modules[__name__], 'add', max)",
    "sys.modules[__name__].add = max",
    "sys.modules['test_program'].__dict__['add'] = max",
    "own.add = max",
    "here = sys.modules[__name__]; here.add = max",
    "mock.patch.object(own, 'add', max).start()",
    "mock.patch('__main__.add', max).start()",
    "with mock.patch(__name__ + '.add', return_value=3): add(1, 2)",
    "mock.patch(f'{{__name__}}.add', max).start()",
    "mock.patch.dict(globals(), add=max).start()",
    "monkeypatch.setattr(own, 'add', max)",
    "monkeypatch.setitem(globals(), 'add', max)",
)


def insert(template: str, code: str = CODE) -> Program:
    return python.insert(template, python.inspect(code))


class TestRegistry:
    def test_python_is_built_in_and_is_a_language(self) -> None:
        assert isinstance(get("python"), Language)
        assert list(built_in_languages()) == ["python"]

    def test_an_unknown_language_is_named_with_what_there_is(self) -> None:
        with pytest.raises(UnsupportedLanguage, match=r"'cobol' \(there is: python\)"):
            get("cobol")

    def test_the_registry_is_the_callers_own(self) -> None:
        built_in_languages().clear()
        assert get("python").name == "python"


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
            "# <candidate>\ndef check():\n    pass\n",
            "# <candidate>\nclass TestAdd:\n    def test_a(self):\n        pass\n",
            "# <candidate>\nif __name__ == '__main__':\n    def test_a():\n        pass\n",
            "# <candidate>\ndef outer():\n    def test_a():\n        pass\n",
        ],
    )
    def test_a_program_without_cases_is_refused(self, template: str) -> None:
        with pytest.raises(MalformedProgram, match="no test case"):
            insert(template)

    def test_the_snippets_own_tests_are_not_cases(self) -> None:
        code = "def test_add():\n    return 1"
        with pytest.raises(MalformedProgram, match="no test case"):
            insert("# <candidate>\n", code)
        template = "import unittest\nclass A(unittest.TestCase):\n    # <candidate>\n"
        with pytest.raises(MalformedProgram, match="no test case"):
            insert(template, "def test_add(self):\n    return 1")

    def test_two_cases_of_one_name_and_cases_that_never_run_are_refused(self) -> None:
        twice = "def test_a():\n    pass\n"
        with pytest.raises(MalformedProgram, match="two test cases are named `test_a`"):
            insert(f"# <candidate>\n{twice}{twice}")
        with pytest.raises(MalformedProgram, match="`yield`"):
            insert("# <candidate>\ndef test_a():\n    yield add(1, 2)\n")

    def test_there_is_a_limit(self) -> None:
        cases = "".join(f"def test_{number}():\n    pass\n" for number in range(51))
        with pytest.raises(MalformedProgram, match="51 test cases; keep the 50"):
            insert("# <candidate>\n" + cases)

    def test_a_long_chain_of_branches_is_followed(self) -> None:
        chain = "if a:\n    pass\n" + "elif a:\n    pass\n" * 200 + "else:\n    def test_deep():\n        pass\n"
        assert insert("a = 0\n# <candidate>\n" + chain).cases == ("test_deep",)


class TestPytest:
    def test_it_is_used_when_imported(self) -> None:
        program = insert(
            "import pytest\n# <candidate>\n@pytest.fixture\ndef test_data():\n    return 1\n"
            "class TestAdd:\n    def test_a(self):\n        pass\n"
        )
        assert program.options["pytest"] == "1"
        assert program.cases == ("TestAdd.test_a",)
        assert program.imports == ("pytest",)

    def test_it_is_used_for_cases_that_take_fixtures(self) -> None:
        program = insert("# <candidate>\ndef test_a(tmp_path):\n    pass\n")
        assert (program.options["pytest"], program.imports) == ("1", ("pytest",))

    @pytest.mark.parametrize("parameters", ["x=1", "*, x=1", "*args, **kwargs", ""])
    def test_defaults_need_no_fixtures(self, parameters: str) -> None:
        assert "pytest" not in insert(f"# <candidate>\ndef test_a({parameters}):\n    pass\n").options

    def test_what_mock_patches_in_needs_no_fixtures(self) -> None:
        template = "from unittest import mock\n# <candidate>\n@mock.patch.object(dict, 'x')\ndef test_a(x):\n    pass\n"
        assert "pytest" not in insert(template).options


class TestImports:
    def test_third_party_modules_of_program_and_snippet_are_listed_once(self) -> None:
        program = insert(
            "import numpy as np, os.path\n# <candidate>\ndef test_a():\n    from yaml.nodes import Node\n",
            "import requests.adapters\nimport urllib2, numpy\nfrom . import mine\ndef f():\n    pass",
        )
        assert program.imports == ("numpy", "requests", "yaml")

    def test_what_the_code_can_do_without_or_the_program_provides_is_left_out(self) -> None:
        program = insert(
            "import sys, types\nsys.modules['redis'] = types.ModuleType('redis')\n"
            "sys.modules.update({'boto3.session': types.ModuleType('x')})\n# <candidate>\ndef test_a():\n    pass\n",
            "import redis, boto3\ntry:\n    import simplejson\nexcept ImportError:\n    import ujson\n"
            "else:\n    import attr\ndef f():\n    pass",
        )
        assert program.imports == ("attr",)


class TestTheCandidateIsKept:
    TEST = "def test_a():\n    assert add(1, 2) == 3\n"

    @pytest.mark.parametrize(
        "template",
        [
            "def add(a, b):\n    return 3\n# <candidate>\n{test}",
            "# <candidate>\ndef add(a, b):\n    return 3\n{test}",
            "# <candidate>\nadd = lambda a, b: 3\n{test}",
            "# <candidate>\nfrom operator import add\n{test}",
            "# <candidate>\nif True:\n    class add: pass\n{test}",
            "# <candidate>\ndel add\n{test}",
            "# <candidate>\nfor add in []: pass\n{test}",
            "# <candidate>\ndef test_b():\n    def add(a, b):\n        return 3\n{test}",
            "# <candidate>\ndef test_b():\n    global add\n    add = max\n{test}",
            *(f"# <candidate>\ndef test_b():\n    {line}\n{{test}}" for line in SHADOWS),
            *(f"import sys, __main__ as own\n# <candidate>\n{line}\n{{test}}" for line in REPLACEMENTS),
            *(
                f"import sys, __main__ as own\n# <candidate>\ndef test_b():\n    {line}\n{{test}}"
                for line in REPLACEMENTS
            ),
            "# <candidate>\ndef test_b(add=max):\n    pass\n{test}",
            "# <candidate>\ndef test_b(*, add=None):\n    pass\n{test}",
            "# <candidate>\ndef given(*add):\n    return add(1)\n{test}",
            "# <candidate>\n@mock.patch('test_program.add')\ndef test_b(x):\n    pass\n{test}",
            "# <candidate>\nclass TestB(TestCase):\n    def test_b(self):\n        add = max\n{test}",
        ],
    )
    def test_a_program_that_defines_the_candidate_itself_is_refused(self, template: str) -> None:
        with pytest.raises(MalformedProgram, match="`add`, which the candidate defines"):
            insert(template.format(test=self.TEST))

    def test_the_line_is_the_templates(self) -> None:
        with pytest.raises(MalformedProgram, match="line 3 of the program"):
            insert(f"# <candidate>\n\nadd = 1\n{self.TEST}", f"from __future__ import division\n{CODE}")

    @pytest.mark.parametrize(
        "template",
        [
            "class Fake:\n    def add(self, x):\n        pass\n# <candidate>\n{test}",
            "# <candidate>\nobject_with = type('x', (), {{}})\nobject_with.add = 1\n{test}",
            "def given_get(url, add=None):\n    return url, add\n# <candidate>\n{test}",
            "# <candidate>\ndef test_b():\n    own = type('x', (), {{}})()\n    setattr(own, 'add', 1)\n{test}",
            "# <candidate>\n@mock.patch('requests.add')\ndef test_b(x):\n    mock.patch.object(x, 'add')\n{test}",
            "# <candidate>\ndef test_b():\n    assert globals()['add'](1, 2) == 3\n{test}",
            "# <candidate>\ndef test_b():\n    assert getattr(sys.modules[__name__], 'add')(1, 2) == 3\n{test}",
            "# <candidate>\ndef test_b():\n    globals()['requests'] = given = 1\n{test}",
        ],
    )
    def test_the_same_name_elsewhere_is_let_through(self, template: str) -> None:
        assert "test_a" in insert(template.format(test=self.TEST)).cases

    METHOD = "def push(self, x):\n        self.items.append(x)"
    CLASS = "class Stack:\n    def __init__(self):\n        self.items = []\n    # <candidate>\n"

    @pytest.mark.parametrize(
        "after",
        [
            "    def push(self, x):\n        pass\n",
            "    push = None\n",
            "Stack.push = lambda self, x: None\n",
            "setattr(Stack, 'push', None)\n",
            "class Stack:\n    pass\n",
            "class Better(Stack):\n    def push(self, x):\n        pass\n",
            "def test_b():\n    with mock.patch.object(Stack, 'push'):\n        pass\n",
            "def test_b():\n    Stack = print\n",
            "globals()['Stack'] = print\n",
        ],
    )
    def test_a_method_may_not_be_replaced_either(self, after: str) -> None:
        with pytest.raises(MalformedProgram, match="which the candidate defines"):
            insert(f"{self.CLASS}{after}def test_a():\n    pass\n", self.METHOD)

    def test_another_class_may_have_a_method_of_that_name(self) -> None:
        after = "class Other:\n    def push(self, x):\n        pass\ndef test_a():\n    push = Stack().push\n"
        assert insert(self.CLASS + after, self.METHOD).cases == ("test_a",)

    def test_a_setter_finds_its_property_in_the_class(self) -> None:
        template = (
            "class A:\n    @property\n    def size(self):\n        return self.n\n    # <candidate>\n"
            "def test_a():\n    pass\n"
        )
        assert insert(template, "@size.setter\ndef size(self, n):\n    self.n = n").cases == ("test_a",)

    def test_what_a_script_computes_may_be_prepared_but_not_overwritten(self) -> None:
        script = "total = sum(values)"
        assert insert("values, total = [1], None\n# <candidate>\ndef test_a():\n    pass\n", script)
        with pytest.raises(MalformedProgram, match="`total`"):
            insert("values = [1]\n# <candidate>\ntotal = 1\ndef test_a():\n    pass\n", script)


def test_a_snippet_that_does_not_parse_is_not_inserted() -> None:
    with pytest.raises(MalformedProgram, match="Python 2 syntax: print statement"):
        insert("# <candidate>\ndef test_a():\n    pass\n", "print 'x'")


def test_a_job_carries_program_cases_options_and_the_harness() -> None:
    program = insert("# <candidate>\ndef test_a():\n    pass\n")
    job = python.job(program, environment="key", timeout=3)
    assert (job.program, job.cases, job.environment, job.timeout) == (program.source, ("test_a",), "key", 3)
    assert job.options == {"first_line": "1", "last_line": "2"}
    assert "def main(" in job.harness


def test_requirements_come_from_the_map_or_from_whoever_is_asked() -> None:
    assert python.requirement("cv2") == "opencv-python-headless"
    assert python.requirement("no_such_module_at_all") is None
    assert PythonLanguage(resolve={"mine": "my-dist"}.get).requirement("mine") == "my-dist"
