"""Universal mocks accept any use, so that only a check detects them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.python.language import PythonLanguage


def load(mutant: Mutation) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(mutant.snippet.code, space)
    return space


@given(st.text(max_size=200))
def test_no_text_breaks_the_mock(text: str) -> None:
    PythonLanguage().universal_mocks(Snippet(text))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import json\n\n\ndef f(x):\n    y = x\n    return json.dumps(y)\n", "f"),
        ("class A:\n    def m():\n        return 1\n\n\nasync def g():\n    pass\n", "Ag"),
        ("f = lambda x: x\nx = y = 3\n", "fxy"),
        ("from __future__ import annotations\n\n\ndef f(x: y):\n    return x\n", "f"),
    ],
)
def test_the_mock_replaces_every_name_of_the_snippet(code: str, names: str) -> None:
    no, yes = PythonLanguage().universal_mocks(Snippet(code))
    assert (no.kind, yes.kind) == (MutantKind.SAYS_NO, MutantKind.SAYS_YES)
    for mutation in (no, yes):
        space = load(mutation)
        assert {type(space[name]).__name__ for name in names} == {"_UniversalMock"}
        assert "y" in names or "y" not in space


@pytest.mark.parametrize("code", ["print(1)\n", "import json\n", "def f(:\n", ""])
def test_a_snippet_without_names_has_no_mock(code: str) -> None:
    assert PythonLanguage().universal_mocks(Snippet(code)) == ()


@pytest.mark.parametrize(
    "use",
    [
        "f(1, a=2).b[3:4].c()",
        "a, (b, c), d = f",
        "for a, b in f.items(): a + b",
        "[*f], {**f}, dict(f), sum(f), max(f), sorted(f), ''.join(map(str, f)), list(reversed(f))",
        "f + 1, 1 + f, 2 ** f, f // 2, 7 % f, divmod(f, 2), f | {1}, f @ f, -f, ~f, abs(f), round(f, 2)",
        "len(f), int(f), float(f), complex(f), range(f), [0, 1][f], hash(f), bool(f), {f: 1}",
        "'%d %.2f %s' % (f, f, f), f'{f:>8} {f:.2f} {f!r}', '{:,}'.format(f)",
        "with f as a, a: pass",
        "f = f(len)",
        "import math, os, copy; math.sqrt(f), math.floor(f), os.path.join(f, 'a'), copy.deepcopy(f)",
        "class A(f.b, f):\n    def __init__(self, x):\n        super().__init__(x)\n        self.x = x\nA(1).x",
    ],
)
def test_the_mock_accepts_any_use(use: str) -> None:
    for mutation in PythonLanguage().universal_mocks(Snippet("def f():\n    return 1\n")):
        exec(use, load(mutation))


def test_the_mock_accepts_coroutine_operations() -> None:
    async def use(f: Any) -> None:
        async with f as a, f(1):
            async for b, c in a:
                assert (await b, c) == (f, f)
        assert await asyncio.gather(f, asyncio.create_task(f())) == [f, f]

    for mutation in PythonLanguage().universal_mocks(Snippet("f = 1\n")):
        asyncio.run(use(load(mutation)["f"]))


def test_the_mock_hides_no_error() -> None:
    async def use(f: Any) -> None:
        async with f:
            raise KeyError

    for mutation in PythonLanguage().universal_mocks(Snippet("f = 1\n")):
        f = load(mutation)["f"]
        with pytest.raises(KeyError):
            asyncio.run(use(f))
        with pytest.raises(KeyError), f:
            raise KeyError


@pytest.mark.parametrize(
    "check",
    [
        "f == 3", "f != 3", "f < 3", "f >= 3", "abs(f - 3) < 1e-9", "f[0] == 'a'", "'a' in f", "'a' not in f", "f",
        "not f", "len(f) == 0", "len(f) == 1", "len(f) > 0", "all(x > 0 for x in f)", "any(x < 0 for x in f)",
        "f.ready()", "not f.ready()", "f(2).total == 3", "isinstance(f, list)", "str(f) == 'a'", "int(f) == 0",
        "sum(f) == 6", "list(f) == [1]", "dict(f) == {}", "next(iter(f)) == 1", "next(f) == 1",
    ],
)  # fmt: skip
def test_any_check_of_a_result_detects_a_mock(check: str) -> None:
    outcomes = [
        bool(eval(check, load(mutation)))
        for mutation in PythonLanguage().universal_mocks(Snippet("def f():\n    pass\n"))
    ]
    assert False in outcomes
