"""Functions are extracted at column 0, and their syntax trees stay the same."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram
from agent.languages.python.functions import describe_function, find_functions
from agent.languages.python.insertion import place_snippet
from tests.languages.python.snippets import snippets


class Outermost(ast.NodeVisitor):
    """Collects the dumped trees of functions that are in no other function."""

    def __init__(self, source: str) -> None:
        self.dumps: list[str] = []
        self.visit(ast.parse(source))

    def visit_FunctionDef(self, node: ast.AST) -> None:
        self.dumps.append(ast.dump(node))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.AST) -> None:
        pass


def dump_codes(source: str) -> list[str]:
    trees = [ast.parse(function.code or "").body for function in find_functions(source)]
    assert all(len(tree) == 1 for tree in trees)
    return [ast.dump(tree[0]) for tree in trees]


def extract(source: str) -> str | None:
    (function,) = find_functions(source)
    return function.code


@given(
    code=snippets(),
    header=st.sampled_from(["class A:", "if a:", "while a:", "try:\n    pass\nexcept E:"]),
    indentation=st.sampled_from(["    ", " ", "\t", "\t\t", "         "]),
)
def test_functions_in_any_block_have_the_trees_of_the_same_functions_at_column_0(
    code: str, header: str, indentation: str
) -> None:
    try:
        source = place_snippet(f"{header}\n{indentation}# <candidate>\n", code).source
    except MalformedProgram:
        assume(False)
    assert dump_codes(source) == Outermost(code).dumps


LIBRARY = Path(asyncio.__file__).parent.parent
FILES = [*LIBRARY.glob("asyncio/*.py"), *LIBRARY.glob("email/*.py"), LIBRARY / "typing.py", LIBRARY / "turtle.py"]


def test_every_function_of_real_modules_keeps_its_tree() -> None:
    sources = [path.read_text("utf-8") for path in FILES]
    found = [dump_codes(source) for source in sources]
    assert found == [Outermost(source).dumps for source in sources]
    assert sum(map(len, found)) > 1500


def test_functions_of_modules_classes_and_blocks_are_found_in_order_but_no_functions_in_functions() -> None:
    source = dedent('''\
        def first():
            """
            Say it.

              Twice.
            """
            def inner(): pass
            class Local:
                def method(self): pass
        try:
            with a:
                async def second(): pass
        except E:
            for x in y:
                def third(): pass
            else:
                def fourth(): pass
        else:
            class A:
                f = lambda: 0
                class B:
                    if x: pass
                    elif y:
                        @decorate
                        # a comment

                        @also(
                            1)
                        def fifth(self):
                            return 1  # the last line
                def sixth(self): pass; self.x = 1
        finally:
            match x:
                case 1:
                    def seventh(): pass
        ''')
    found = find_functions(source)
    assert [(f.name, f.class_name, f.docstring, f.start_line, f.end_line) for f in found] == [
        ("first", None, "Say it.\n\n  Twice.", 1, 9),
        ("second", None, None, 12, 12),
        ("third", None, None, 15, 15),
        ("fourth", None, None, 17, 17),
        ("fifth", "A.B", None, 24, 30),
        ("sixth", "A", None, 31, 31),
        ("seventh", None, None, 35, 35),
    ]
    assert found[4].code == (
        "@decorate\n# a comment\n\n@also(\n    1)\ndef fifth(self):\n    return 1  # the last line"
    )
    assert found[5].code == "def sixth(self): pass; self.x = 1"


IN_CLASS = "class A:\n    "
CASES = {
    "docstring": (
        IN_CLASS + 'def f():\n        """A\n        b\n    c\n"""',
        'def f():\n    """A\n        b\n    c\n"""',
    ),
    "continued string": (IN_CLASS + "def f(): return '\\\n    a'", "def f(): return '\\\n    a'"),
    "adjacent strings": (
        IN_CLASS + "def f(): return ('a'\n      '''\n    b'''\n      'c')",
        "def f(): return ('a'\n  '''\n    b'''\n  'c')",
    ),
    "quotes in comments": (
        IN_CLASS + "def f(): # it's '''\n        x = '#'\n        y",
        "def f(): # it's '''\n    x = '#'\n    y",
    ),
    "raw string": (IN_CLASS + "def f(): return r'\\'', [\n        1]", "def f(): return r'\\'', [\n    1]"),
    "little indentation": (
        IN_CLASS + "def f():\n# a\n  # b\n        return [\n 1,\n\n      2]",
        "def f():\n# a\n# b\n    return [\n1,\n\n  2]",
    ),
    "tab and spaces": ("class A:\n        def f():\n        \treturn 1", "def f():\n\treturn 1"),
    "form feed": ("class A:\n\f    def f():\n\f        x\n        y", "def f():\n\f    x\n    y"),
    "continued lines": (IN_CLASS + "def f(): return 1 + \\\n    2 \\\n\n", "def f(): return 1 + \\\n2"),
    "non-ASCII text": (IN_CLASS + "def f(): return 'üü'; # ü\n    x = 1", "def f(): return 'üü'; # ü"),
    "byte order mark and CRLF": (
        "\ufeffclass A:\r\n    def f():\r\n        '''a\r\n    b'''",
        "def f():\n    '''a\n    b'''",
    ),
}


@pytest.mark.parametrize(("source", "code"), CASES.values(), ids=CASES)
def test_indentation_is_removed_outside_strings(source: str, code: str) -> None:
    assert extract(source) == code


def test_a_function_whose_tree_would_change_has_no_code() -> None:
    # Both lines of the body are in columns 16 (tabs are 8 wide) and 3 (tabs are 1 wide), as Python requires.
    source = "class A:\n\tdef f():\n \t\tx\n\t \ty\n"
    assert len(Outermost(source).dumps) == 1
    assert extract(source) is None


@pytest.mark.parametrize("code", ["def f():\n    '''Do.'''\n    return 1  # last\n", "\n@a\nasync def f(): 'Do.'\n\n"])
def test_one_function_is_described(code: str) -> None:
    function = describe_function(code)
    assert (function.name, function.class_name, function.docstring) == ("f", None, "Do.")


@pytest.mark.parametrize(
    "code",
    ["", "x", "import a\ndef f(): x", "def f(): x\ndef g(): x", "class A:\n    def f(): x", "# a\ndef f(): x",
     "def f(): x\n# a", "def f(", "    def f(): x\nx"],
)  # fmt: skip
def test_other_code_is_not_one_function(code: str) -> None:
    assert describe_function(code) is None
