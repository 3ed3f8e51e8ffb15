"""Imports the snippet's own module, with the snippet in its place. This file is the sixth part of the Python harness.

The module's source is compiled once. The snippet replaces the definition with the same class, name, lines and syntax
tree. All other statements come from the installed file. The snippet's code objects have the program's file name and
lines, so tracebacks, the guard and the sentinel treat the snippet as in any other program.
"""

from __future__ import annotations

import _frozen_importlib_external
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_guard import CODE, FUNCTION, belongs_to
    from agent.sandbox.inside.python_reports import NAME
    from agent.sandbox.inside.python_sentinel import ONLY_AST, list_children

IMPORTLIB: Any = _frozen_importlib_external
FINDER, SOURCE_LOADER = IMPORTLIB.PathFinder, IMPORTLIB.SourceFileLoader
SHIFT = 1_000_000
"""Added to the lines of the snippet's nodes while the module is compiled. It distinguishes the snippet's code."""
MAX_SOURCE = 900_000
"""The maximum size of a module's source, in bytes. A report with the source must stay below the sandbox's limit."""
CHUNK = 2_000
"""The number of characters of source per record. A field has at most 8 KB."""
BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
DEFINITIONS = ("FunctionDef", "AsyncFunctionDef")


class ContextError(BaseException):
    """The snippet cannot run in its module. Packages that catch exceptions of their modules do not catch this."""


class Context:
    """Imports a module with the snippet in its place. Finds no other module (PEP 451).

    `names` is added to the module's namespace before the module runs.
    """

    def __init__(self, options: dict[str, str], snippet: range, names: dict[str, Any]) -> None:
        self.module = options["module"]
        self.classes = options["class"].split(".") if options.get("class") else []
        self.name = options["name"]
        self.line = int(options["line"])
        self.snippet = snippet
        self.names = names
        self.loader = self.find_loader()
        self.data: bytes = self.loader.get_data(self.loader.path)
        if len(self.data) > MAX_SOURCE:
            raise ContextError("the module's source has more than %d bytes" % MAX_SOURCE)
        self.code: Any = None
        self.spec: Any = None
        self.loaded: Any = None
        self.reach = ""

    def find_loader(self) -> Any:
        """Return the loader of the module's source file. Runs no code of the module's packages."""
        if self.module in sys.modules:
            raise ContextError("the test harness itself has imported the module")
        path: Any = sys.path
        spec: Any = None
        parts = self.module.split(".")
        for number in range(len(parts)):
            # the public method imports the parents of nested namespace packages
            spec = FINDER._get_spec(".".join(parts[: number + 1]), path)
            path = [] if spec is None else [*(spec.submodule_search_locations or ())]
        loader = None if spec is None else spec.loader
        if loader is None:
            raise ContextError("the module is not installed")
        if type(loader) is not SOURCE_LOADER:
            raise ContextError("the module is loaded by %s, not from source" % type(loader).__name__)
        return loader

    def report_source(self, emit: Callable[..., None]) -> None:
        """Report the module's path and source in records of the kind `source`."""
        source = IMPORTLIB.decode_source(self.data)
        for start in range(0, len(source), CHUNK):
            emit("source", self.loader.path, message=source[start : start + CHUNK])

    def compile(self, original: list[Any], nodes: list[Any]) -> None:
        """Compile the module with `nodes` in its place. `original` is the snippet without sentinels."""
        path = self.loader.path
        tree: Any = compile(self.data, path, "exec", ONLY_AST, dont_inherit=True)
        found = [*iterate_definitions(tree, self.classes, self.name)]
        same = [(block, index) for block, index in found if is_same([block[index]], original)]
        exact = [(block, index) for block, index in same if find_first_line(block[index]) == self.line]
        exact = exact or (same if len(same) == 1 else [])
        if not exact:
            ending = "defines other code in this place" if found else "does not define the function"
            raise ContextError("the module " + ending)
        block, index = exact[0]
        shift_lines(nodes)
        block[index : index + 1] = nodes
        self.code = relocate(compile(tree, path, "exec", dont_inherit=True))

    def load(self) -> Any:
        """Import the module and return it. The next import of the module, such as a reload, is an ordinary import."""
        sys.meta_path.insert(0, self)
        try:
            __import__(self.module)
        finally:
            sys.meta_path.remove(self)
        if self.loaded is None:
            raise ContextError("the module was not imported from its source file")
        # from now on, the module does not lead to this object
        vars(self.loaded)["__loader__"] = self.spec.loader = self.loader
        self.reach = self.find_reach()
        if self.reach == "gone":
            raise ContextError("the module does not keep the function: it is conditional, or was replaced")
        return self.loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the module's specification, for the import system."""
        spec = FINDER.find_spec(name, path, target) if name == self.module else None
        if spec is None:
            return None
        if type(spec.loader) is not SOURCE_LOADER or spec.loader.path != self.loader.path:
            raise ContextError("the module was loaded from another file")
        spec.loader = make_loader(self)
        spec.cached = None
        self.spec = spec
        return spec

    def find_reach(self) -> str:
        """Return how programs reach the snippet: by its name, while it is alive (in a wrapper, say), or not (gone)."""
        owner: Any = self.loaded
        for part in self.classes:
            owner = getattr(owner, "__dict__", {}).get(part)
        private = self.classes and self.name.startswith("__") and not self.name.endswith("__")
        key = "_" + self.classes[-1].lstrip("_") + self.name if private else self.name
        if belongs_to(self.snippet, getattr(owner, "__dict__", {}).get(key)):
            return "name"
        gc.collect()  # a replaced class is garbage
        functions = (item for item in gc.get_objects() if type(item) is FUNCTION)
        return "alive" if any(belongs_to(self.snippet, item) for item in functions) else "gone"


def make_loader(context: Context) -> Any:
    """Return a loader that runs the code of `context`."""

    class Loader(SOURCE_LOADER):  # type: ignore[misc, valid-type]
        def get_code(self, _name: str) -> Any:
            return context.code

        def exec_module(self, module: Any) -> None:
            context.loaded = module
            vars(module).update(context.names)
            super().exec_module(module)

    return Loader(context.module, context.loader.path)


def iterate_definitions(tree: Any, classes: list[str], name: str) -> Iterator[tuple[list[Any], int]]:
    """Iterate over the blocks and positions of a function's definitions. Does not enter other functions."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        values = [getattr(node, field, None) for field in BLOCKS]
        for block in [value for value in values if isinstance(value, list)]:
            for index, item in enumerate(block):
                kind = type(item).__name__
                if kind in DEFINITIONS:
                    if item.name == name and depth == len(classes):
                        yield block, index
                elif kind != "ClassDef":
                    pending.append((item, depth))
                elif depth < len(classes) and item.name == classes[depth]:
                    pending.append((item, depth + 1))


def find_first_line(node: Any) -> int:
    lines: list[int] = [node.lineno] + [part.lineno for part in node.decorator_list]
    return min(lines)


def is_same(left: Any, right: Any) -> bool:
    """Return whether two syntax trees are equal, apart from positions."""
    pending = [(left, right)]
    while pending:
        a, b = pending.pop()
        if type(a) is not type(b):
            return False
        if hasattr(a, "_fields"):
            pending += [(getattr(a, name, None), getattr(b, name, None)) for name in a._fields]
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            pending += zip(a, b)
        elif a != b:
            return False
    return True


def shift_lines(nodes: list[Any]) -> None:
    pending = [*nodes]
    while pending:
        node = pending.pop()
        for key in ("lineno", "end_lineno"):
            if getattr(node, key, None) is not None:
                setattr(node, key, getattr(node, key) + SHIFT)
        pending += list_children(node)


def relocate(code: Any) -> Any:
    """Give the snippet's code objects the program's file name and lines."""
    constants = tuple(relocate(part) if isinstance(part, CODE) else part for part in code.co_consts)
    if code.co_firstlineno > SHIFT:
        return code.replace(co_consts=constants, co_filename=NAME, co_firstlineno=code.co_firstlineno - SHIFT)
    return code.replace(co_consts=constants)
