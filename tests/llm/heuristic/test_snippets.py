from __future__ import annotations

import pytest

from agent.llm.heuristic.snippets import MAX_CODE, outline


def test_parameters_keep_their_kinds_defaults_and_annotations() -> None:
    (function,) = outline("def f(a, /, b: int, *args, c, d=4): pass").functions
    assert [(p.name, p.annotation, p.required, p.keyword_only) for p in function.parameters] == [
        ("a", None, True, False),
        ("b", "int", True, False),
        ("c", None, True, True),
        ("d", None, False, True),
    ]
    assert function.starred


@pytest.mark.parametrize(
    ("code", "receiver"),
    [
        ("def f(self, x): pass", "self"),
        ("def f(cls, x): pass", "cls"),
        ("@classmethod\ndef f(klass, x): pass", "cls"),
        ("@staticmethod\ndef f(x): pass", None),
        ("class A:\n    def f(this): pass", "self"),
        ("def f(x): pass", None),
    ],
)
def test_the_receiver_is_no_parameter(code: str, receiver: str | None) -> None:
    (function,) = outline(code).functions
    assert function.receiver == receiver
    assert "self" not in [p.name for p in function.parameters]


def test_free_names_are_those_that_nothing_binds() -> None:
    code = "import re\ndef f(x):\n    global seen\n    y = np.array(x)\n    seen = len(y)\n    return helper(re, y)"
    assert list(outline(code).free) == ["helper", "np"]
    assert outline(code).free["np"].attributes == {"array"}
    assert outline(code).free["helper"].called


def test_a_global_that_only_a_function_sets_may_be_read_before() -> None:
    assert list(outline("def f():\n    global cache\n    cache = cache or 1").free) == ["cache"]


def test_an_error_class_and_a_decorator_are_told_from_other_names() -> None:
    free = outline("@route('/')\ndef f():\n    try: pass\n    except (Oops, ValueError): raise").free
    assert free["Oops"].raised
    assert free["route"].decorates


@pytest.mark.parametrize(
    "code", ["print 'old'", "def f(", "\ud800", "x = '\0'", "(" * 5000, "-" * 40_000 + "1", "x" * (MAX_CODE + 1)]
)
def test_code_that_cannot_be_read_is_a_problem_not_an_exception(code: str) -> None:
    read = outline(code)
    assert read.tree is None
    assert read.problem


@pytest.mark.parametrize("code", ["return 1", "yield 1", "break", "continue", "await x"])
def test_code_that_lives_inside_a_function_is_a_fragment(code: str) -> None:
    read = outline(code)
    assert read.tree is not None
    assert read.fragment
