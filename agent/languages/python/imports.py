"""Which modules a program needs from outside of the standard library."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent.languages.python.tree import roots_imported
from agent.sandbox.dependencies.imports import PYTHON2_MODULES, is_stdlib

_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def third_party(tree: ast.Module) -> tuple[str, ...]:
    """Return the top-level modules to install, in order of appearance.

    Left out are those whose absence the code handles itself, and those it puts into `sys.modules`.
    """
    provided = modules_provided(tree)
    roots = dict.fromkeys(root for node in _unguarded(tree) for root in roots_imported(node))
    return tuple(root for root in roots if is_third_party(root) and root not in provided)


def is_third_party(name: str) -> bool:
    """Say whether the top-level module of a name belongs neither to the standard library nor to Python 2's."""
    root = name.partition(".")[0]
    return not is_stdlib(root) and root not in PYTHON2_MODULES


def modules_provided(tree: ast.Module) -> frozenset[str]:
    """Return the top-level modules for which the program puts stand-ins into `sys.modules`."""
    return frozenset(name.partition(".")[0] for node in ast.walk(tree) for name in _entries(node))


def _entries(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_sys_modules(node.value):
        keys: list[ast.expr | None] = [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_sys_modules(node.func.value):
        mappings = [part for part in node.args if isinstance(part, ast.Dict)]
        keys = [*node.args[:1], *(key for mapping in mappings for key in mapping.keys)]
    else:
        keys = []
    return (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def _is_sys_modules(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "modules"


def _unguarded(tree: ast.Module) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Try) and any(_catches_missing(handler) for handler in node.handlers):
            children = [*node.orelse, *node.finalbody]
        pending.extend(reversed(children))


def _catches_missing(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(part, ast.Name) and part.id in _MISSING for part in ast.walk(handler.type))
