"""Finds what may make equal runs of a Python program end differently: time, chance and order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.source import Unparsable, parse
from agent.languages.python.tree import roots_imported

_OF_SETS = "order of sets"
_MODULES: Mapping[str, Sequence[str]] = {
    "time": ("time", "timeit", "datetime", "calendar", "sched", "signal", "arrow", "pendulum"),
    "random": ("random", "secrets", "uuid", "faker"),
    "threads": ("threading", "_thread", "concurrent", "multiprocessing", "queue", "joblib"),
    "tasks": ("anyio", "trio", "curio"),
    "processes": ("subprocess",),
    "load of the machine": ("psutil", "resource"),
    "connections": ("socket", "socketserver", "select", "selectors"),
    "order of files": ("glob",),
}
_NAMES: Mapping[str, Sequence[str]] = {
    "time": (
        *("now", "utcnow", "today", "sleep", "timeout", "wait_for", "call_later"),
        *("getmtime", "getctime", "getatime", "st_mtime", "st_ctime", "st_atime", "st_mtime_ns"),
    ),
    "random": (
        *("random", "urandom", "getrandom", "shuffle", "choice", "choices", "sample", "randint", "randrange"),
        *("rand", "randn", "randperm", "permutation", "default_rng", "RandomState", "train_test_split"),
    ),
    "tasks": ("create_task", "ensure_future", "gather", "wait", "as_completed", "TaskGroup", "start_soon"),
    "threads": ("to_thread", "run_in_executor"),
    "processes": ("getpid", "getppid", "fork", "Popen", "popen", "system", "create_subprocess_exec"),
    "hosts": ("gethostname", "uname"),
    "load of the machine": ("getloadavg", "disk_usage", "statvfs"),
    "contents of memory": ("empty_like", "empty_strided", "new_empty"),
    "order of files": ("listdir", "scandir", "walk", "fwalk", "iterdir", "glob", "iglob", "rglob"),
    "names of temporary files": (
        *("mkdtemp", "mkstemp", "mktemp", "TemporaryDirectory", "NamedTemporaryFile", "gettempprefix"),
    ),
    _OF_SETS: (
        *("union", "difference", "intersection", "symmetric_difference"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    ),
    "hashes": ("__hash__",),
}
_OF_MODULES: Mapping[str, Sequence[str]] = {
    "time": ("times",),
    "contents of memory": ("empty",),
}
_BUILT_IN: Mapping[str, Sequence[str]] = {
    _OF_SETS: ("set", "frozenset"),
    "hashes": ("hash",),
    "addresses": ("id",),
}
_CALLED: Mapping[str, Sequence[str]] = {
    "addresses": ("object",),
}
_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_VIEWS = ("keys", "items")


def what_varies(source: str) -> tuple[str, ...]:
    """Return what of a program's source depends on more than its input, each once, in order of appearance.

    It reads names and cannot know values: too much is found rather than too little, as running again is cheap.
    """
    try:
        tree = parse(source, MAX_PROGRAM)
    except Unparsable:
        return ()
    views = frozenset(_views(tree))
    return tuple(dict.fromkeys(what for node in ast.walk(tree) for what in _of(node, views)))


def _of(node: ast.AST, views: frozenset[str]) -> Iterator[str]:
    """Yield what a node alone tells; a name tells the same wherever it comes from and whatever is done with it."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _known(_MODULES, roots_imported(node))
    if isinstance(node, ast.Set | ast.SetComp) or _makes_set(node, views):
        yield _OF_SETS
    names = _names(node)
    yield from _known(_NAMES, names)
    if not isinstance(node, ast.Name):  # `for each in range(times)` asks no clock
        yield from _known(_OF_MODULES, names)
    if not isinstance(node, ast.Attribute):  # `record.id` is no address
        yield from _known(_BUILT_IN, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):  # `class A(object)` shows none
        yield from _known(_CALLED, _names(node.func))


def _known(table: Mapping[str, Sequence[str]], names: Sequence[str]) -> Iterator[str]:
    return (what for name in names for what, known in table.items() if name in known)


def _names(node: ast.AST) -> Sequence[str]:
    if isinstance(node, ast.alias):
        return node.name.split(".")
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    return (node.id,) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ()


def _makes_set(node: ast.AST, views: frozenset[str]) -> bool:
    """Say whether views of a dict are put together: `a.keys() & b` is a set."""
    if isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.AugAssign):
        operands = [node.target, node.value]
    else:
        return False
    return isinstance(node.op, _OPERATORS) and any(_is_view(operand, views) for operand in operands)


def _is_view(node: ast.expr, names: frozenset[str] = frozenset()) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS


def _views(tree: ast.Module) -> Iterator[str]:
    """Yield the names that views of dicts are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_view(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None and _is_view(node.value):
            yield from (target.id for target in [node.target] if isinstance(target, ast.Name))
