"""A corrected program checks at least what the broken one did."""

from __future__ import annotations

import pytest

from agent.languages.base import MalformedProgram, Program
from agent.languages.python import PythonLanguage

LANGUAGE = PythonLanguage()
SNIPPET = LANGUAGE.inspect("def add(a, b):\n    assert a is not None\n    return a + b\n")


def program(cases: str) -> Program:
    return LANGUAGE.insert("# <candidate>\n\n" + cases, SNIPPET)


def case(name: str, *lines: str) -> str:
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in lines) + "\n"


SMALL, TEXT = ("assert add(1, 2) == 3", "assert add(2, 2) == 4"), "assert 'ab' in add('a', 'b')"
BROKEN = program(case("test_small", "values = load()", "assert add(*values) == 3", SMALL[1]) + case("test_text", TEXT))


@pytest.mark.parametrize(
    "cases",
    [
        case("test_small", SMALL[0], "assert add(a=2, b=2) == 4") + case("test_text", TEXT),
        case("test_sum", SMALL[0], "assert 4 == add(2, 2)") + case("test_text", "assert 'ab' in str(add('a', 'b'))"),
        case("test_small", *SMALL) + case("test_text", TEXT) + case("test_more", "assert add(0, 0) == 0"),
    ],
)
def test_how_the_code_is_called_may_change(cases: str) -> None:
    LANGUAGE.check_correction(BROKEN, program(cases))


@pytest.mark.parametrize(
    ("cases", "why"),
    [
        (case("test_small", *SMALL), "put these back: `test_text`"),
        (case("test_small", SMALL[0]) + case("test_text", TEXT, SMALL[1]), "`test_small` has fewer asserts"),
        (case("test_a", SMALL[0]) + case("test_b", SMALL[1]), "fewer asserts than before"),
        (case("test_small", "assert add(1, 2) == 5", SMALL[1]) + case("test_text", TEXT), "compared with `3`"),
        (case("test_small", SMALL[0], "assert add(2, 2) != 4") + case("test_text", TEXT), "compared with `==`"),
        (case("test_small", "assert str(add(1, 2) == 3)", SMALL[1]) + case("test_text", TEXT), "compared with"),
    ],
)
def test_what_is_expected_may_not(cases: str, why: str) -> None:
    with pytest.raises(MalformedProgram, match=why):
        LANGUAGE.check_correction(BROKEN, program(cases))


def test_the_asserts_of_unittest_count() -> None:
    head = "import unittest\n\nclass TestAdd(unittest.TestCase):\n    def test_a(self):\n"
    before = program(head + "        self.assertEqual(add(*given), 3)\n")
    LANGUAGE.check_correction(before, program(head + "        self.assertEqual(add(1, 2), 3)\n"))
    for worse in ("self.assertEqual(add(1, 2), 4)", "add(1, 2)"):
        with pytest.raises(MalformedProgram):
            LANGUAGE.check_correction(before, program(f"{head}        {worse}\n"))


def test_asserts_in_helpers_count_and_those_of_the_snippet_do_not() -> None:
    before = program("def given_check(x):\n    assert x\n\ndef test_a():\n    given_check(add(1, y) == 3)\n")
    LANGUAGE.check_correction(
        before, program("def given_check(x):\n    assert x\n\ndef test_a():\n    given_check(1)\n")
    )
    with pytest.raises(MalformedProgram, match="fewer asserts"):
        LANGUAGE.check_correction(before, program("def given_check(x):\n    x\n\ndef test_a():\n    given_check(1)\n"))
