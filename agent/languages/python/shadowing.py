"""Finds where a program puts something else under a name of the candidate: within a function, or by the back door."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping

from agent.languages.python.tree import Function, bindings, last_name, walk, walk_scope

MODULE = frozenset({"__main__", "test_program"})
"""What a program may call itself: it runs as `test_program`."""

_NAMESPACES = frozenset({"globals", "locals", "vars"})
_READERS = frozenset({"getattr", "hasattr", "get"})

Offence = tuple[str, int]


def shadows(nodes: Iterable[ast.AST], names: Collection[str]) -> Iterator[Offence]:
    """Yield which of the names functions bind for themselves, and the lines.

    A parameter that a function only passes on, such as the `timeout` of a stand-in, hides nothing and is let through.
    """
    for function in walk(nodes):
        if not isinstance(function, Function | ast.Lambda):
            continue
        yield from ((arg.arg, arg.lineno) for arg in _given(function) if arg.arg in names)
        body = function.body if isinstance(function.body, list) else [function.body]
        for node in walk_scope(body):
            bound = node.names if isinstance(node, ast.Global | ast.Nonlocal) else bindings(node)
            yield from ((name, getattr(node, "lineno", 0)) for name in bound if name in names)


def _given(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.arg]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*without, *arguments.defaults, *arguments.kw_defaults, None, None]
    others = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    is_case = isinstance(function, Function) and function.name.startswith("test")
    called = {last_name(part) for part in ast.walk(function) if isinstance(part, ast.Call) and _is_name(part.func)}
    for arg, default in zip([*positional, *arguments.kwonlyargs, *others], defaults, strict=False):
        if is_case or arg.arg in called or not isinstance(default, ast.Constant | None):
            yield arg


def replacements(tree: ast.Module, names: Collection[str]) -> Iterator[Offence]:
    """Yield which of the names are set or deleted by way of the module or its namespace, and the lines.

    Such as `globals()["f"] = g`, `setattr(sys.modules[__name__], "f", g)` and `mock.patch("__main__.f")`. The same name
    in another place, as in `mock.patch("requests.get")`, is none of the module's.
    """
    aliases = own_names(tree)
    for node in walk([tree]):
        found: Iterable[object] = ()
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if is_own(node.value, aliases):
                found = [node.attr] if isinstance(node, ast.Attribute) else _texts(node.slice)
        elif isinstance(node, ast.Call) and last_name(node.func) not in _READERS:
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            if any(is_own(part, aliases) for part in (*receiver, *node.args[:1])):
                given = (text for part in node.args for text in _texts(part))
                found = [*given, *(keyword.arg for keyword in node.keywords)]
        told = (str(text).rpartition(".")[2] for text in found)
        yield from ((name, getattr(node, "lineno", 0)) for name in told if name in names)


def own_names(tree: ast.Module) -> frozenset[str]:
    found = {"__name__", "__main__"}
    for node in walk([tree]):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name in MODULE}
        elif isinstance(node, ast.Assign | ast.NamedExpr) and is_own(node.value, found):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


def sources(tree: ast.Module) -> Mapping[str, set[object]]:
    """Return where each name comes from: a module from which it is imported, any number of times, or a statement."""
    found: dict[str, set[object]] = {}
    for node in walk([tree]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            for alias in node.names:
                for name in bindings(alias):
                    found.setdefault(name, set()).add((module, alias.name if alias.asname or module else name))
        elif not isinstance(node, ast.alias):
            for name in bindings(node):
                found.setdefault(name, set()).add(node)
    return found


def is_own(node: ast.expr, aliases: Collection[str]) -> bool:
    """Say whether an expression speaks of the program's module, by its name or its namespace."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in aliases:
            return True
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.split(".")[0] in MODULE:
            return True
        if isinstance(part, ast.Attribute) and part.attr == "__globals__":
            return True
        if isinstance(part, ast.Call) and _is_name(part.func) and last_name(part) in _NAMESPACES and not part.args:
            return True
    return False


def _texts(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.keyword) and part.arg is not None:
            yield part.arg


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name)
