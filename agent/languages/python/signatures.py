"""Signatures of a snippet and of the scaffolding around it, without bodies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import MARKER, place_snippet
from agent.languages.python.source import (
    Definition,
    Function,
    Unparsable,
    find_fragment_reason,
    get_last_name,
    iterate_loaded,
    parse,
    walk,
)

_PLACEHOLDER = "_the_candidate_stands_here_"
_MAKES_FIELDS = frozenset({"dataclass", "NamedTuple", "TypedDict", "BaseModel", "define"})


def build_signature(code: str) -> str | None:
    """Return the functions and classes of normalised code without bodies, or None if nothing can be called.

    Includes names, parameters with annotations and defaults, decorators, bases, public methods, and fields that a
    constructor accepts. Excludes docstrings, comments, constants, imports, and the bodies of lambdas and comprehensions
    in defaults and decorators. Definitions inside `if` and `try` statements are included. The result is valid Python
    that can replace the code.
    """
    try:
        if find_fragment_reason(code) is not None:
            return None
        stubs = [_make_stub(node) for node in iterate_loaded(parse(code).body) if isinstance(node, Definition)]
        parts = [ast.unparse(_Hollow().visit(node)) for node in stubs]
        return "\n\n".join(dict.fromkeys(parts)) or None
    except (Unparsable, RecursionError):
        return None


def build_surroundings(scaffold: str, code: str) -> str:
    """Check that normalised code fits into scaffolding, and return the scaffolding's signature with the marker.

    The signature must not reveal the code's body, which stand-ins may repeat. It therefore excludes bodies and the
    values of constants, defaults and fields, but includes all names. It is empty if the scaffolding contains only
    imports.

    Raises:
        MalformedProgram: the code does not fit into the scaffolding unchanged, or the scaffolding contains test cases.
    """
    place_snippet(scaffold, code)
    tree = place_snippet(scaffold, _PLACEHOLDER).tree
    try:
        for node in walk([tree]):
            if isinstance(node, Definition) and node.name.startswith("test_"):
                raise MalformedProgram(
                    f"the scaffolding contains the test case `{node.name}`: remove it, because cases are added later"
                )
        parts = [ast.unparse(_Valueless().visit(node)) for node in _iterate_outline(tree.body)]
    except (Unparsable, RecursionError) as error:
        raise MalformedProgram(f"the scaffolding cannot be parsed: {error}") from error
    return "" if parts == [_PLACEHOLDER] else "\n\n".join(parts).replace(_PLACEHOLDER, MARKER)


def _iterate_outline(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in iterate_loaded(statements):
        if isinstance(node, ast.ClassDef):
            node.body = [*_iterate_outline(node.body)] or [_make_ellipsis()]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            node.value = ast.Constant(...)
        elif not isinstance(node, Function) and ast.unparse(node) != _PLACEHOLDER:
            continue
        yield node


def _make_stub(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.ClassDef):
        fields = any(get_last_name(part) in _MAKES_FIELDS for part in (*node.decorator_list, *node.bases))
        body = [
            part
            for part in iterate_loaded(node.body)
            if _is_public(part) or (fields and isinstance(part, ast.AnnAssign))
        ]
        node.body = body or [_make_ellipsis()]
    return node


class _Hollow(ast.NodeTransformer):
    """Removes comprehensions and the bodies of functions and lambdas."""

    def _visit_function(self, node: Function) -> ast.AST:
        node.body = [_make_ellipsis()]
        return self.generic_visit(node)

    def _omit(self, node: ast.AST) -> ast.AST:  # noqa: ARG002
        return ast.Constant(...)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Keep only the parameters."""
        return ast.Lambda(self.visit(node.args), ast.Constant(...))

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _omit


class _Valueless(_Hollow):
    """Also removes constants (in annotations and decorators) and the default values of parameters."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replace constants other than None."""
        return node if node.value is None else ast.Constant(...)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Replace the default values."""
        node.defaults = [ast.Constant(...) for _ in node.defaults]
        node.kw_defaults = [default and ast.Constant(...) for default in node.kw_defaults]
        return self.generic_visit(node)


def _is_public(node: ast.stmt) -> bool:
    return isinstance(node, Function) and (not node.name.startswith("_") or node.name.endswith("__"))


def _make_ellipsis() -> ast.stmt:
    return ast.Expr(ast.Constant(...))
