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


KEEPS = "must keep `assert add"


def check(before: str, after: str) -> None:
    LANGUAGE.check_correction(program(before), program(after))


@pytest.mark.parametrize(
    "cases",
    [
        case("test_small", SMALL[0], "assert add(a=2, b=2) == 4") + case("test_text", TEXT),
        case("test_small", "one, two = 1, 2", "assert add(one, two) == 3", SMALL[1]) + case("test_text", TEXT),
        case("test_small", *SMALL, "assert add(0, 1) == 1") + case("test_text", "import re", TEXT),
        case("test_small", *SMALL) + case("test_text", TEXT) + case("test_more", "assert add(0, 0) == 0"),
        "def load():\n    return 1, 2\n\n"
        + case("test_small", "values = load()", "assert add(*values) == 3", SMALL[1])
        + "class Text:\n    pass\n\n"
        + case("test_text", TEXT),
        case("test_small", "with patch('time.time'):", "    " + SMALL[0], SMALL[1]) + case("test_text", TEXT),
        "from unittest import mock\n@mock.patch('time.time', print)\n"
        + case("test_small", *SMALL)
        + case("test_text", TEXT),
        "import asyncio\n"
        + case("test_small", "assert asyncio.run(add(1, 2)) == 3", "assert list(add(2, 2)) == 4")
        + "async "
        + case("test_text", "assert 'ab' in await add('a', 'b')"),
    ],
)
def test_how_the_code_is_called_may_change(cases: str) -> None:
    LANGUAGE.check_correction(BROKEN, program(cases))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("assert sum_up(1, 2) == 3", "assert add(1, 2) == 3"),
        ("total = sum_up(1, 2)\n    assert total == 3", "total = add(1, 2)\n    assert total == 3"),
        ("add(1, 2)\n    assert out() == '3'", "with redirect_stdout(x):\n        add(1, 2)\n    assert out() == '3'"),
        ("assert mine.add(1, 2) == 3", "assert add(1, 2) == 3"),
        ("assert add(1, 2) == 3, told(1)", "assert add(1, 2) == 3"),
    ],
)
def test_what_was_meant_to_call_the_code_may_call_it(before: str, after: str) -> None:
    check(f"def test_a():\n    {before}\n", f"def test_a():\n    {after}\n")


def test_a_method_may_be_called_on_an_object() -> None:
    snippet = LANGUAGE.inspect("def ranking(self):\n    return sorted(self.scores)\n")
    head = "class Board:\n    def __init__(self, scores):\n        self.scores = scores\n\n    # <candidate>\n\n\n"
    fake = "class Fake:\n    def ranking(self):\n        return [1, 2]\n\n"
    for before in ("ranking([2, 1])", "Board([2, 1]).rank()", "Board.ranking([2, 1])"):
        old = LANGUAGE.insert(f"{head}def test_a():\n    assert {before} == [1, 2]\n", snippet)
        right = f"{head}def test_a():\n    assert Board([2, 1]).ranking() == [1, 2]\n"
        LANGUAGE.check_correction(old, LANGUAGE.insert(right, snippet))
        wrong = f"{head}{fake}def test_a():\n    assert Fake().ranking() == [1, 2]\n"
        with pytest.raises(MalformedProgram, match="`test_a` must keep"):
            LANGUAGE.check_correction(old, LANGUAGE.insert(wrong, snippet))


@pytest.mark.parametrize(
    ("cases", "why"),
    [
        (case("test_small", *SMALL), "put these back: `test_text`"),
        (case("test_sum", *SMALL) + case("test_text", TEXT), "put these back: `test_small`"),
        (case("test_small", SMALL[0]) + case("test_text", TEXT, SMALL[1]), KEEPS),
        (case("test_small", SMALL[1], SMALL[0]) + case("test_text", TEXT), KEEPS),
        (case("test_small", "assert add(1, 2) == 5", SMALL[1]) + case("test_text", TEXT), KEEPS),
        (case("test_small", SMALL[0], "assert add(2, 2) != 4") + case("test_text", TEXT), KEEPS),
        (case("test_small", SMALL[0], "assert add(2, 2) == add(2, 2)") + case("test_text", TEXT), KEEPS),
        (case("test_small", "assert str(add(1, 2) == 3)", SMALL[1]) + case("test_text", TEXT), KEEPS),
    ],
)
def test_what_is_expected_may_not(cases: str, why: str) -> None:
    with pytest.raises(MalformedProgram, match=why):
        LANGUAGE.check_correction(BROKEN, program(cases))


ONE = case("test_a", SMALL[0])


@pytest.mark.parametrize(
    "worse",
    [
        case("test_a", "try:", f"    {SMALL[0]}", "except AssertionError:", "    pass"),
        case("test_a", "return", SMALL[0]),
        case("test_a", "if not add:", "    return", SMALL[0]),
        case("test_a", "if False:", f"    {SMALL[0]}"),
        case("test_a", "while False:", f"    {SMALL[0]}"),
        case("test_a", "for _ in ():", f"    {SMALL[0]}"),
        case("test_a", "with contextlib.suppress(AssertionError):", f"    {SMALL[0]}"),
        case("test_a", "with pytest.raises(AssertionError):", f"    {SMALL[0]}"),
        case("test_a", "with given_calm():", f"    {SMALL[0]}"),
        case("test_a", "def given_inner():", f"    {SMALL[0]}"),
        case("test_a", "class Given:", f"    {SMALL[0]}"),
        case("test_a", "given = lambda: add(1, 2) == 3"),
        case("test_a", "assert 3 == 3"),
        case("test_a", f"{SMALL[0]} or True"),
        case("test_a", "assert True or add(1, 2) == 3"),
        case("test_a", "assert add(1, 2) == 3 if False else True"),
        case("test_a", "assert given.add(1, 2).value == 3"),
        case("test_a", "assert Given().add(1, 2) == 3"),
        "import pytest\n@pytest.mark.skip\n" + ONE,
        "import pytest\n@pytest.mark.xfail\n" + ONE,
        "import unittest\n@unittest.expectedFailure\n" + ONE,
        "@given_calm\n" + ONE,
        "if False:\n" + "".join(f"    {line}\n" for line in ONE.splitlines()),
        ONE + "test_a = print\n",
        ONE + "del test_a\n",
    ],
)
def test_no_assert_may_be_kept_from_failing(worse: str) -> None:
    check(ONE, ONE)
    with pytest.raises(MalformedProgram, match="`test_a`"):
        check(ONE, worse)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("total = add(1, 2)\n    assert total == 3", "add(1, 2)\n    total = 3\n    assert total == 3"),
        ("total = add(1, 2)\n    assert total == 3", "total = add(1, 2)\n    total = 3\n    assert total == 3"),
        ("total = sum_up(1, 2)\n    assert total == 3", "total = 3\n    assert total == 3"),
        ("wanted = 3\n    assert add(1, 2) == wanted", "wanted = 4\n    assert add(1, 2) == wanted"),
        ("for n in (1, 2):\n        assert add(n, n) == 2 * n", "for n in ():\n        assert add(n, n) == 2 * n"),
        ("with pytest.raises(TypeError):\n        add(1)", "with pytest.raises(TypeError):\n        int(add)"),
        (
            "with pytest.raises(TypeError):\n        add(1)",
            "with pytest.raises(TypeError):\n        int(())\n        add(1)",
        ),
        ("with pytest.raises(TypeError):\n        add(1)", "with pytest.raises(Exception):\n        add(1)"),
        ("assert sorted(add(1, 2)) == [3]", "sorted = list\n    assert sorted(add(1, 2)) == [3]"),
    ],
)
def test_what_an_assert_reads_may_not_change(before: str, after: str) -> None:
    head = "import pytest\n\ndef test_a():\n    "
    check(f"{head}{before}\n", f"{head}{before}\n")
    with pytest.raises(MalformedProgram):
        check(f"{head}{before}\n", f"{head}{after}\n")


def test_the_asserts_of_unittest_count() -> None:
    head = "import unittest\n\nclass TestAdd(unittest.TestCase):\n    def test_a(self):\n"
    before = program(head + "        self.assertEqual(add(*given), 3)\n")
    right = f"{head}        self.assertEqual(add(1, 2), 3)\n"
    LANGUAGE.check_correction(before, program(right))
    worse = [f"{head}        {line}\n" for line in ("self.assertEqual(add(1, 2), 4)", "add(1, 2)")]
    worse.append(f"{right}    def assertEqual(self, *_):\n        pass\n")
    worse.append(f"{right}    def test_a(self):\n        pass\n")
    worse.append(right.replace("class", "@given_calm\nclass"))
    for source in worse:
        with pytest.raises(MalformedProgram):
            LANGUAGE.check_correction(before, program(source))


def test_helpers_that_asserts_go_through_stay_and_those_of_the_snippet_do_not_count() -> None:
    case_of = "def test_a():\n    given_check(add(1, {}) == 3)\n"
    helper = "def given_check(x):\n    assert x\n\n"
    before = program(helper + case_of.format("y"))
    LANGUAGE.check_correction(before, program(helper + case_of.format(2)))
    with pytest.raises(MalformedProgram, match="`given_check` must keep `assert x`"):
        LANGUAGE.check_correction(before, program("def given_check(x):\n    x\n\n" + case_of.format(2)))
    with pytest.raises(MalformedProgram, match=r"`test_a` must keep `given_check\("):
        LANGUAGE.check_correction(before, program(helper + "def test_a():\n    given_check(1)\n"))


def test_helpers_that_say_what_is_the_same_stay() -> None:
    used = "def test_a():\n    assert given_same(add(1, {}), 3)\n"
    before = program("def given_same(a, b):\n    return a == b\n\n" + used.format("y"))
    with pytest.raises(MalformedProgram, match="`given_same` must keep `return a == b`"):
        LANGUAGE.check_correction(before, program("def given_same(a, b):\n    return True\n\n" + used.format(2)))
