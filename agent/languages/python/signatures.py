"""What may be known of a snippet without its body: its signature, and that of the scaffolding around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import MARKER, place
from agent.languages.python.source import (
    Definition,
    Function,
    Unparsable,
    fragment_reason,
    last_name,
    loaded,
    parse,
    walk,
)

_PLACEHOLDER = "_the_candidate_stands_here_"
_MAKES_FIELDS = frozenset({"dataclass", "NamedTuple", "TypedDict", "BaseModel", "define"})


def signature(code: str) -> str | None:
    """Return the functions and classes of normalised code with their bodies left out; None where nothing can be called.

    Kept are names, parameters with annotations and defaults, decorators, bases, public methods, and the fields of
    classes whose constructors take them. Docstrings, comments, constants and imports are body, and so is what lambdas
    and comprehensions in defaults and decorators compute. What is defined under a condition or in a `try` reads as
    if it were not. The result is Python that can stand in the code's place.
    """
    try:
        if fragment_reason(code) is not None:
            return None
        stubs = [_stub(node) for node in loaded(parse(code).body) if isinstance(node, Definition)]
        shown = [ast.unparse(_Hollow().visit(node)) for node in stubs]
        return "\n\n".join(dict.fromkeys(shown)) or None
    except (Unparsable, RecursionError):
        return None


def surroundings(scaffold: str, code: str) -> str:
    """Check scaffolding around normalised code, and return its signature with the marker in its place.

    Whoever reads it may not know the code's body, which stand-ins may repeat: bodies are left out, and the values of
    constants, defaults and fields. Names stay, those that the scaffolding shares with the body among them. Empty where
    it provides nothing but imports.

    Raises:
        MalformedProgram: the code cannot stand in it unchanged, or it holds test cases.
    """
    place(scaffold, code)
    tree = place(scaffold, _PLACEHOLDER).tree
    try:
        for node in walk([tree]):
            if isinstance(node, Definition) and node.name.startswith("test_"):
                raise MalformedProgram(
                    f"the scaffolding holds the test case `{node.name}`: others write those, leave it out"
                )
        shown = [ast.unparse(_Valueless().visit(node)) for node in _outline(tree.body)]
    except (Unparsable, RecursionError) as error:
        raise MalformedProgram(f"the scaffolding cannot be read: {error}") from error
    return "" if shown == [_PLACEHOLDER] else "\n\n".join(shown).replace(_PLACEHOLDER, MARKER)


def _outline(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what statements define, without values, and the placeholder."""
    for node in loaded(statements):
        if isinstance(node, ast.ClassDef):
            node.body = [*_outline(node.body)] or [_ellipsis()]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            node.value = ast.Constant(...)
        elif not isinstance(node, Function) and ast.unparse(node) != _PLACEHOLDER:
            continue
        yield node


def _stub(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.ClassDef):
        fields = any(last_name(part) in _MAKES_FIELDS for part in (*node.decorator_list, *node.bases))
        kept = [part for part in loaded(node.body) if _is_public(part) or (fields and isinstance(part, ast.AnnAssign))]
        node.body = kept or [_ellipsis()]
    return node


class _Hollow(ast.NodeTransformer):
    """Leaves out the bodies of functions and lambdas, and comprehensions."""

    def _visit_function(self, node: Function) -> ast.AST:
        node.body = [_ellipsis()]
        return self.generic_visit(node)

    def _left_out(self, node: ast.AST) -> ast.AST:  # noqa: ARG002
        return ast.Constant(...)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Keep the parameters."""
        return ast.Lambda(self.visit(node.args), ast.Constant(...))

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _left_out


class _Valueless(_Hollow):
    """Leaves out constants, too, such as those in annotations and decorators, and defaults of parameters."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Keep None alone."""
        return node if node.value is None else ast.Constant(...)

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Show which parameters have defaults, and not what these are."""
        node.defaults = [ast.Constant(...) for _ in node.defaults]
        node.kw_defaults = [each and ast.Constant(...) for each in node.kw_defaults]
        return self.generic_visit(node)


def _is_public(node: ast.stmt) -> bool:
    return isinstance(node, Function) and (not node.name.startswith("_") or node.name.endswith("__"))


def _ellipsis() -> ast.stmt:
    return ast.Expr(ast.Constant(...))
