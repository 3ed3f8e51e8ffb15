"""What may be known of a snippet without its body: its signature, and what scaffolding provides around it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import MARKER, Placement, place
from agent.languages.python.rules import check_candidate_is_kept
from agent.languages.python.source import Unparsable, fragment_reason, parse
from agent.languages.python.tree import Definition, Function, is_within, walk

_PLACEHOLDER = "_the_candidate_stands_here_"
_MAKES_FIELDS = frozenset({"dataclass", "NamedTuple", "TypedDict", "BaseModel", "define"})
_WORKS = (ast.Call, ast.BinOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.comprehension, ast.IfExp, ast.JoinedStr)


def signature(code: str) -> str | None:
    """Return the functions and classes of normalised code with their bodies left out; None where nothing can be called.

    Kept are names, parameters with annotations and defaults, decorators, bases, public methods, and the fields of
    classes whose constructors take them. Docstrings, comments, constants and imports are body. The result is Python
    that can stand in the code's place.
    """
    try:
        if fragment_reason(code) is not None:
            return None
        stubs = [_stub(node) for node in parse(code).body if isinstance(node, Definition)]
        return ast.unparse(ast.Module(stubs, [])) or None
    except (Unparsable, RecursionError):
        return None


def _stub(node: ast.stmt) -> ast.stmt:
    if isinstance(node, Function):
        node.body = [_ellipsis()]
    elif isinstance(node, ast.ClassDef):
        fields = _has_fields(node)
        kept = [_stub(part) for part in node.body if _is_public(part) or (fields and isinstance(part, ast.AnnAssign))]
        node.body = kept or [_ellipsis()]
    return node


def _is_public(node: ast.stmt) -> bool:
    return isinstance(node, Function) and (not node.name.startswith("_") or node.name.endswith("__"))


def _has_fields(node: ast.ClassDef) -> bool:
    named = (part.func if isinstance(part, ast.Call) else part for part in (*node.decorator_list, *node.bases))
    return any(getattr(part, "attr", getattr(part, "id", "")) in _MAKES_FIELDS for part in named)


def _ellipsis() -> ast.stmt:
    return ast.Expr(ast.Constant(...))


def surroundings(scaffold: str, code: str) -> str:
    """Check scaffolding around normalised code, and return what it defines, with the marker in its place.

    Imports, comments and docstrings are left out. Empty where it provides nothing but imports.

    Raises:
        MalformedProgram: the code cannot stand in it unchanged, it holds test cases, or it repeats work of the code's.
    """
    placement = place(scaffold, code)
    check_candidate_is_kept(placement)
    try:
        _check_no_cases(placement)
        _check_no_copies(placement)
        return _outline(placement)
    except RecursionError as error:
        raise MalformedProgram("the scaffolding is nested too deeply") from error


def _check_no_cases(placement: Placement) -> None:
    for node in walk([placement.tree]):
        named = node.name if isinstance(node, Definition) and _is_scaffolds(node, placement) else ""
        if named.startswith("test_"):
            raise MalformedProgram(f"the scaffolding holds the test case `{named}`: others write those, leave it out")


def _check_no_copies(placement: Placement) -> None:
    """Refuse statements of the code's own: what stands in the scaffolding is shown to whoever may not see the code."""
    own = {ast.dump(node) for node in _working(walk(placement.statements))}
    others = (node for node in walk([placement.tree]) if _is_scaffolds(node, placement))
    for node in _working(others):
        if ast.dump(node) in own:
            raise MalformedProgram(
                f"the scaffolding repeats `{ast.unparse(node)[:120]}` of the candidate: a stand-in may not do its work"
            )


def _working(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield the simple statements that compute something; a bare call of the parent's method does not."""
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return | ast.Assert):
            continue
        if any(isinstance(part, _WORKS) for part in ast.walk(node)) and not _is_super(node):
            yield node


def _is_super(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and any(isinstance(p, ast.Name) and p.id == "super" for p in ast.walk(node))


def _is_scaffolds(node: ast.AST, placement: Placement) -> bool:
    return hasattr(node, "lineno") and not is_within(node, placement.first_line, placement.last_line)


def _outline(placement: Placement) -> str:
    _Outline(placement).visit(placement.tree)
    told = ast.unparse(ast.fix_missing_locations(placement.tree)).replace(_PLACEHOLDER, MARKER)
    return "" if told.strip() == MARKER else told


class _Outline(ast.NodeTransformer):
    """Leaves out imports, docstrings and the snippet, which its marker stands for."""

    def __init__(self, placement: Placement) -> None:
        self._snippet = {id(node) for node in placement.statements}
        self._first = id(placement.statements[0])

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Return the node as it is shown."""
        if id(node) in self._snippet:
            return ast.Expr(ast.Name(_PLACEHOLDER, ast.Load())) if id(node) == self._first else None
        if isinstance(node, ast.Import | ast.ImportFrom):
            return None
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        if "body" in node._fields and node.body == [] and not isinstance(node, ast.Module):  # type: ignore[attr-defined]
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node
