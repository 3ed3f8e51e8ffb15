"""Makes the functions of a snippet raise an exception. This file is the fifth part of the Python harness."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ONLY_AST = 0x400
SENTINEL = "__sentinel__"
SENTINEL_MODULE = """import marshal
class SnippetEntered(BaseException): pass
def {0}():
    if {0}.armed: raise SnippetEntered("the snippet was called")
{0}.armed = False
exec(marshal.loads({1!r}))
{0}.armed = True
"""


class SnippetEntered(BaseException):
    """A function of the snippet was called in a sentinel run."""


class Sentinel:
    """A callable for sentinel runs. Each function of the snippet calls it first.

    It does nothing while the snippet loads.
    """

    armed = False

    def __call__(self) -> None:
        if self.armed:
            raise SnippetEntered("the snippet was called")


def insert_sentinel(tree: Any, snippet: range) -> None:
    """Make every function and lambda in the snippet call the sentinel first. Keeps line numbers and signatures."""
    pending = [tree]
    while pending:
        node = pending.pop()
        pending += list_children(node)
        kind = type(node).__name__
        if getattr(node, "lineno", 0) not in snippet:
            continue
        if kind in ("FunctionDef", "AsyncFunctionDef"):
            first = node.body[0]
            has_docstring = type(first).__name__ == "Expr" and isinstance(getattr(first.value, "value", None), str)
            next_statement = (node.body[has_docstring:] or node.body)[0]
            node.body.insert(has_docstring, parse_statement(SENTINEL + "()", next_statement.lineno))
        elif kind == "Lambda":
            expression = parse_statement(SENTINEL + "() or None", node.lineno).value
            expression.values[1] = node.body
            node.body = expression


def parse_statement(text: str, line: int) -> Any:
    """Parse a statement and place it at the given line."""
    statement: Any = compile(text, "<sentinel>", "exec", ONLY_AST, dont_inherit=True).body[0]
    pending = [statement]
    while pending:
        node = pending.pop()
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line
        pending += list_children(node)
    return statement


def list_children(node: Any) -> list[Any]:
    """Return the child nodes of a node of a syntax tree."""
    values = [getattr(node, field, None) for field in node._fields]
    nested = [item for value in values if isinstance(value, list) for item in value]
    return [item for item in values + nested if hasattr(item, "_fields")]
