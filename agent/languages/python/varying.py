"""Finds what may make equal runs of a Python program end differently: time, chance and order.

The names of temporary files are left out: nearly every program that writes has some, and hardly any looks at them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from agent.languages.python.insertion import MAX_PROGRAM
from agent.languages.python.source import Unparsable, parse
from agent.languages.python.tree import roots_imported

_MODULES: Mapping[str, str] = {
    "time": "time",
    "timeit": "time",
    "datetime": "time",
    "calendar": "time",
    "sched": "time",
    "random": "random",
    "secrets": "random",
    "uuid": "random",
    "faker": "random",
    "threading": "threads",
    "_thread": "threads",
    "concurrent": "threads",
    "multiprocessing": "threads",
    "queue": "threads",
    "glob": "order of files",
}
_ATTRIBUTES: Mapping[str, str] = {
    "now": "time",
    "utcnow": "time",
    "today": "time",
    "random": "random",
    "urandom": "random",
    "shuffle": "random",
    "create_task": "tasks",
    "gather": "tasks",
    "as_completed": "tasks",
    "to_thread": "threads",
    "run_in_executor": "threads",
    "listdir": "order of files",
    "scandir": "order of files",
    "walk": "order of files",
    "iterdir": "order of files",
    "glob": "order of files",
    "rglob": "order of files",
    "intersection": "order of sets",
    "symmetric_difference": "order of sets",
}
_NAMES: Mapping[str, str] = {
    "set": "order of sets",
    "frozenset": "order of sets",
    "hash": "hashes",
    "id": "addresses",
}


def what_varies(source: str) -> tuple[str, ...]:
    """Return what of a program's source depends on more than its input, each once, in order of appearance.

    It reads names and cannot know values: too much is found rather than too little, as running again is cheap.
    """
    try:
        tree = parse(source, MAX_PROGRAM)
    except Unparsable:
        return ()
    return tuple(dict.fromkeys(name for node in ast.walk(tree) for name in _of(node)))


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (_MODULES[root] for root in roots_imported(node) if root in _MODULES)
    elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
        yield _ATTRIBUTES[node.attr]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        yield _NAMES[node.func.id]
    elif isinstance(node, ast.Set | ast.SetComp):
        yield _NAMES["set"]
