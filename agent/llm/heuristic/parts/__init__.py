"""Helpers that generated programs carry with them, kept as real code; `source` gives the text of those needed.

They run inside programs, next to the tested snippet: each imports what it uses, and none knows the snippet.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import lru_cache

from agent.llm.heuristic.parts import checks, files, stand_ins

_NAME = re.compile(r"\b_(?:[gG]iven|StandIn)\w*")


class _Bare(ast.NodeTransformer):
    """Leaves out annotations: the programs run on old interpreters too, and import nothing for them."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function


@lru_cache(maxsize=1)
def _parts() -> dict[str, str]:
    """Return the source of every helper, by name, in the order of their modules."""
    trees = [ast.parse(inspect.getsource(module)) for module in (stand_ins, files, checks)]
    kept = [
        node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith(("_given", "_Given", "_StandIn"))
    ]
    return {node.name: ast.unparse(_Bare().visit(node)) for node in kept}


def source(text: str) -> list[str]:
    """Return the source of each helper that a text mentions, and of those that these need."""
    parts = _parts()
    needed: set[str] = set()
    fresh = _mentioned(text)
    while fresh:
        needed |= fresh
        fresh = {name for user in fresh for name in _mentioned(parts[user])} - needed
    return [code for name, code in parts.items() if name in needed]


def _mentioned(text: str) -> set[str]:
    return _parts().keys() & set(_NAME.findall(text))
