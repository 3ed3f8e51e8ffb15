"""Mutants of a snippet compile, differ from it and from each other, and match their descriptions."""

from __future__ import annotations

import ast
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram, MutantKind, Mutation, Snippet
from agent.languages.python.language import PythonLanguage
from agent.languages.python.mutations import find_edits
from agent.languages.python.source import Unparsable, find_fragment_reason
from tests.languages.python.snippets import snippets

RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES = MutantKind
STAND_INS = {RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES}

VARIOUS = """def pick(xs, low, high=10, strict=False):
    kept = []
    for i in range(len(xs)):
        if xs[i] > low and not strict:
            kept.append(xs[i] * 2)
        elif xs[i] in (1, 2):
            continue
    return sorted(kept, reverse=True)
"""


def mutants_by_kind(code: str, limit: int = 50) -> dict[str, list[Mutation]]:
    mutants: dict[str, list[Mutation]] = {}
    for mutant in PythonLanguage().mutants(Snippet(code), limit):
        mutants.setdefault(mutant.kind, []).append(mutant)
    return mutants


def load(mutant: Mutation) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(mutant.snippet.code, space)
    return space


@given(snippets(), st.integers(0, 20))
def test_mutants_of_any_code_compile_and_differ(code: str, limit: int) -> None:
    language = PythonLanguage()
    snippet = language.inspect(code)
    mutants = language.mutants(snippet, limit)
    assert mutants == language.mutants(snippet, limit)
    assert len(mutants) <= limit
    if snippet.problem is not None:
        return
    trees = [ast.dump(ast.parse(text)) for text in (snippet.code, *(mutant.snippet.code for mutant in mutants))]
    assert len(set(trees)) == len(trees)
    for mutant in mutants:
        find_fragment_reason(mutant.snippet.code)
    assert mutants or limit == 0
    if mutants:
        codes = [language.reformat(code), *(mutant.snippet.code for mutant in mutants)]
        assert [ast.unparse(ast.parse(text)) for text in codes] == codes


def test_code_that_does_not_parse_has_no_formatting() -> None:
    with pytest.raises(ValueError, match="never closed"):
        PythonLanguage().reformat("print(")


@pytest.mark.parametrize("code", ["x = " + "1 + " * 20_000 + "1", "def f(:\n", "", "x = " + "(" * 90 + "1" + ")" * 90])
def test_code_that_cannot_be_unparsed_has_few_mutants_or_none(code: str) -> None:
    assert len(PythonLanguage().mutants(Snippet(code), 12)) <= 12


def test_many_statements_cost_little_memory() -> None:
    tree = ast.parse("def f():\n" + " g()\n" * 3_500)
    tracemalloc.start()
    assert len(find_edits(tree)) == 3_500
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10 << 20


def test_very_long_code_is_only_replaced() -> None:
    assert mutants_by_kind(VARIOUS + "# long\n" * 5_000).keys() == STAND_INS


def test_certainly_wrong_mutants_come_first_and_the_others_alternate_by_kind() -> None:
    mutants = PythonLanguage().mutants(Snippet(VARIOUS), 9)
    assert [mutant.kind for mutant in mutants] == [
        *(RETURNS_NOTHING, RETURNS_FIRST_ARGUMENT, RAISES),
        *("swapped_comparison", "off_by_one", "dropped_branch"),
        *("swapped_arithmetic", "dropped_statement", "empty_result"),
    ]
    counts = Counter(mutant.kind for mutant in PythonLanguage().mutants(Snippet(VARIOUS), 14))
    assert len(counts) == 12
    assert max(counts.values()) == 2


@pytest.mark.parametrize(
    ("kind", "was", "becomes"),
    [
        ("off_by_one", "range(len(xs))", "range(len(xs) - 1)"),
        ("off_by_one", "2", "3"),
        ("off_by_one", "xs[i] > low", "xs[i] >= low"),
        ("dropped_branch", "xs[i] > low and (not strict)", "False"),
        ("negated_condition", "xs[i] > low and (not strict)", "not (xs[i] > low and (not strict))"),
        ("swapped_and_or", "xs[i] > low and (not strict)", "xs[i] > low or not strict"),
        ("swapped_truth", "True", "False"),
        ("dropped_statement", "kept.append(xs[i] * 2)", None),
        ("empty_result", "sorted(kept, reverse=True)", "[]"),
    ],
)
def test_a_mutant_describes_its_change(kind: str, was: str, becomes: str | None) -> None:
    after = "nothing" if becomes is None else f"`{becomes}`"
    changes = [mutant.change.partition(": ")[2] for mutant in mutants_by_kind(VARIOUS)[kind]]
    assert f"`{was}` became {after}" in changes


@pytest.mark.parametrize(
    ("operator", "opposite"),
    [("<", ">="), ("<=", ">"), ("==", "!="), ("in", "not in"), ("is", "is not")],
)
def test_a_comparison_becomes_its_opposite(operator: str, opposite: str) -> None:
    for was, becomes in ((operator, opposite), (opposite, operator)):
        (mutants,) = mutants_by_kind(f"def f(x, y):\n    return x {was} y\n")["swapped_comparison"]
        assert mutants.change == f"line 2: `x {was} y` became `x {becomes} y`"


@pytest.mark.parametrize(
    ("operator", "other"), [("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("//", "*"), ("%", "//"), ("**", "*")]
)
def test_an_arithmetic_operator_becomes_another(operator: str, other: str) -> None:
    (mutants,) = mutants_by_kind(f"def f(x, y):\n    return x {operator} y\n")["swapped_arithmetic"]
    assert mutants.change == f"line 2: `x {operator} y` became `x {other} y`"


def test_signatures_decorators_and_annotations_are_not_mutated() -> None:
    code = "@cached(size=5)\ndef f(a: Literal[3] = 7) -> Literal[9]:\n    return a\n"
    assert mutants_by_kind(code).keys() == STAND_INS - {RETURNS_FIRST_ARGUMENT}


@pytest.mark.parametrize(
    "expression", ["'a' + x", "x + 'b' + y", "str(x) + y", "[0] * x", "f'{x}' + y", "x.strip() + y", "'%s' % x"]
)
def test_operators_of_strings_and_lists_are_not_mutated(expression: str) -> None:
    assert "swapped_arithmetic" not in mutants_by_kind(f"def f(x, y):\n    return g({expression})\n")


def test_statements_that_end_a_loop_are_not_mutated() -> None:
    code = "def f(n, k):\n    while n > k:\n        n -= 5\n        k += 7\n    return g(n)\n"
    changes = [mutant.change for mutants in mutants_by_kind(code).values() for mutant in mutants]
    assert not [change for change in changes if "5" in change or "7" in change]


def test_code_under_a_main_guard_is_not_mutated() -> None:
    code = "def f(x):\n    return x.y\n\n\nif __name__ == '__main__':\n    print(f(3) + 1)\n"
    assert mutants_by_kind(code).keys() == STAND_INS


class TestReplacements:
    def test_replacements_of_a_function(self) -> None:
        mutants = mutants_by_kind('def f(a, b):\n    """Say."""\n    return a + b\n')
        assert load(mutants[RETURNS_NOTHING][0])["f"](1, 2) is None
        assert load(mutants[RETURNS_FIRST_ARGUMENT][0])["f"](1, 2) == 1
        with pytest.raises(RuntimeError):
            load(mutants[RAISES][0])["f"](1, 2)
        assert {load(mutant[0])["f"].__doc__ for mutant in mutants.values()} == {"Say."}

    def test_a_method_returns_the_first_argument_after_self(self) -> None:
        mutants = mutants_by_kind("def f(self, a):\n    return self.x + a\n")
        assert load(mutants[RETURNS_FIRST_ARGUMENT][0])["f"](object(), 5) == 5

    @pytest.mark.parametrize("code", ["def f():\n    return now()\n", "def f(self):\n    return self.x\n"])
    def test_a_function_without_arguments_has_no_argument_to_return(self, code: str) -> None:
        assert mutants_by_kind(code).keys() >= {RETURNS_NOTHING, RAISES}
        assert RETURNS_FIRST_ARGUMENT not in mutants_by_kind(code)

    @pytest.mark.parametrize("signature", ["*values", "*, value"])
    def test_any_signature_returns_its_first_value(self, signature: str) -> None:
        function = load(mutants_by_kind(f"def f({signature}):\n    return g()\n")[RETURNS_FIRST_ARGUMENT][0])["f"]
        assert (function(4, 5) if "values" in signature else function(value=4)) == 4

    def test_replacements_of_a_generator_are_generators(self) -> None:
        mutants = mutants_by_kind("def f(xs):\n    for x in xs:\n        yield x * x\n")
        assert list(load(mutants[RETURNS_NOTHING][0])["f"]("ab")) == []
        assert list(load(mutants[RETURNS_FIRST_ARGUMENT][0])["f"]("ab")) == ["ab"]
        generator = load(mutants[RAISES][0])["f"]("ab")
        with pytest.raises(RuntimeError):
            next(generator)

    def test_replacements_of_a_class_keep_its_constructor(self) -> None:
        mutants = mutants_by_kind(
            "class A:\n    def __init__(self, x):\n        self.x = x\n\n    def y(self, z):\n        return z + z\n"
        )
        instance = load(mutants[RETURNS_NOTHING][0])["A"](3)
        assert (instance.x, instance.y(4)) == (3, None)

    def test_the_constructor_is_replaced_if_a_class_has_nothing_else(self) -> None:
        mutants = mutants_by_kind("class A:\n    def __init__(self, x):\n        self.x = x\n")
        assert not hasattr(load(mutants[RETURNS_NOTHING][0])["A"](3), "x")

    def test_replacements_of_statements_keep_imports_and_set_names_to_none(self) -> None:
        mutants = mutants_by_kind(
            "import json\n\nx, y = json.dumps([1]), 2\nfor z in []:\n    pass\n\n\nclass A:\n    b = 3\n"
        )
        space = load(mutants[RETURNS_NOTHING][0])
        assert callable(space["json"].dumps)
        assert [space[name] for name in "xyzA"] == [None] * 4
        assert "b" not in space
        with pytest.raises(RuntimeError):
            load(mutants[RAISES][0])

    def test_code_that_does_nothing_is_not_replaced_by_nothing(self) -> None:
        assert RETURNS_NOTHING not in mutants_by_kind("def f():\n    return\n")


@pytest.mark.slow
@given(snippets())
def test_mutants_can_replace_the_snippet(code: str) -> None:
    language = PythonLanguage()
    snippet = language.inspect(code)
    template = "class Holder:\n    # <candidate>\n\n\ndef test_a():\n    pass\n"
    try:
        language.insert(template, snippet)
        ast.parse(ast.unparse(ast.parse(snippet.code)))
    except (MalformedProgram, Unparsable):
        return
    for mutant in language.mutants(snippet, 12):
        assert language.insert(template, mutant.snippet).cases == ("test_a",)
