"""What may be known of a snippet without its body: its signature, and what scaffolding provides around it."""

from __future__ import annotations

import ast

from agent.languages.base import MalformedProgram
from agent.languages.python.copies import copied_from
from agent.languages.python.hiding import hide, read_scaffolding, secrets_of
from agent.languages.python.insertion import MARKER, Placement, place
from agent.languages.python.rules import check_candidate_is_kept
from agent.languages.python.source import Unparsable, fragment_reason, parse
from agent.languages.python.tree import Definition, Function, is_within, loaded, walk

_PLACEHOLDER = "_the_candidate_stands_here_"
_MAKES_FIELDS = frozenset({"dataclass", "NamedTuple", "TypedDict", "BaseModel", "define"})
_NAMED_AT_MOST = 10


def signature(code: str) -> str | None:
    """Return the functions and classes of normalised code with their bodies left out; None where nothing can be called.

    Kept are names, parameters with annotations and defaults, decorators, bases, public methods, and the fields of
    classes whose constructors take them. Docstrings, comments, constants and imports are body, and so is what lambdas
    and comprehensions in defaults and decorators compute. What is defined under a condition or in a `try` is told as
    if it were not. The result is Python that can stand in the code's place.
    """
    try:
        if fragment_reason(code) is not None:
            return None
        stubs = [_stub(node) for node in loaded(parse(code).body) if isinstance(node, Definition)]
        told = [ast.unparse(_Hollow().visit(node)) for node in stubs]
        return "\n\n".join(dict.fromkeys(told)) or None
    except (Unparsable, RecursionError):
        return None


def _stub(node: ast.stmt) -> ast.stmt:
    if isinstance(node, Function):
        node.body = [_ellipsis()]
    elif isinstance(node, ast.ClassDef):
        fields = _has_fields(node)
        parts = loaded(node.body)
        kept = [_stub(part) for part in parts if _is_public(part) or (fields and isinstance(part, ast.AnnAssign))]
        node.body = kept or [_ellipsis()]
    return node


class _Hollow(ast.NodeTransformer):
    """Leaves out what is computed where a value is told: the bodies of lambdas, and comprehensions."""

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Keep the parameters."""
        return ast.Lambda(self.visit(node.args), ast.Constant(...))

    def _left_out(self, node: ast.AST) -> ast.AST:  # noqa: ARG002
        return ast.Constant(...)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _left_out


def _is_public(node: ast.stmt) -> bool:
    return isinstance(node, Function) and (not node.name.startswith("_") or node.name.endswith("__"))


def _has_fields(node: ast.ClassDef) -> bool:
    named = (part.func if isinstance(part, ast.Call) else part for part in (*node.decorator_list, *node.bases))
    return any(getattr(part, "attr", getattr(part, "id", "")) in _MAKES_FIELDS for part in named)


def _ellipsis() -> ast.stmt:
    return ast.Expr(ast.Constant(...))


def surroundings(scaffold: str, code: str) -> str:
    """Check scaffolding around normalised code, and return what it defines, with the marker in its place.

    Whoever reads it may not know the code's body. Imports, comments, docstrings and whatever else is only said are left
    out. No token of the body is in it but those that `secrets_of` lets through: names that the scaffolding has to
    define because the code uses them, what the signature tells, and Python's plainest words. Others that it shares
    with the body stand as `hidden_1`, `hidden_2`, …, constants as `...`. What is said in other words and under other
    names, no rule sees. Empty where it provides nothing but imports.

    Raises:
        MalformedProgram: the code cannot stand in it unchanged, it holds test cases, it repeats work of the code's, or
            what it defines has a name that only the code's body knows.
    """
    placement = place(scaffold, code)
    check_candidate_is_kept(placement)
    try:
        _check_no_cases(placement)
        told = parse(signature(code) or "")
        _check_no_copies(placement, told)
        return _shown(placement, told, code)
    except RecursionError as error:
        raise MalformedProgram("the scaffolding is nested too deeply") from error


def _check_no_cases(placement: Placement) -> None:
    for node in walk([placement.tree]):
        named = node.name if isinstance(node, Definition) and _is_scaffolds(node, placement) else ""
        if named.startswith("test_"):
            raise MalformedProgram(f"the scaffolding holds the test case `{named}`: others write those, leave it out")


def _is_scaffolds(node: ast.AST, placement: Placement) -> bool:
    return not is_within(node, placement.first_line, placement.last_line)


def _check_no_copies(placement: Placement, told: ast.Module) -> None:
    copied = copied_from(placement.statements, told, placement.tree)
    if copied is not None:
        raise MalformedProgram(
            f"the scaffolding repeats `{copied[:120]}` of the candidate: a stand-in may not do its work"
        )


def _shown(placement: Placement, told: ast.Module, code: str) -> str:
    scaffold = read_scaffolding(placement.tree, {id(node) for node in walk(placement.statements)})
    secrets = secrets_of(code, placement.statements, told, scaffold)
    if clashes := sorted(secrets.names & scaffold.named)[:_NAMED_AT_MOST]:
        names = ", ".join(f"`{name}`" for name in clashes)
        raise MalformedProgram(
            f"the scaffolding defines {names}, which the candidate has for things of its own: let names of yours begin "
            "with given_"
        )
    _Outline(placement).visit(placement.tree)
    hide(placement.tree, secrets, scaffold.named | {_PLACEHOLDER})
    outline = ast.unparse(ast.fix_missing_locations(placement.tree)).replace(_PLACEHOLDER, MARKER)
    return "" if outline.strip() == MARKER else outline


class _Outline(ast.NodeTransformer):
    """Leaves out imports, expressions without effect, and the snippet, which its marker stands for."""

    def __init__(self, placement: Placement) -> None:
        self._snippet = {id(node) for node in placement.statements}
        self._first = id(placement.statements[0])

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Return the node as it is shown."""
        if id(node) in self._snippet:
            return ast.Expr(ast.Name(_PLACEHOLDER, ast.Load())) if id(node) == self._first else None
        if isinstance(node, ast.Import | ast.ImportFrom) or _only_says(node):
            return None
        self.generic_visit(node)
        if "body" in node._fields and node.body == [] and not isinstance(node, ast.Module):  # type: ignore[attr-defined]
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node


def _only_says(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return node.value.value is not ...
    return not isinstance(node.value, ast.Call | ast.Await | ast.Yield | ast.YieldFrom)
