"""Detects programs that change what their verdict depends on. This file is the second part of the Python harness.

The guard compares values in watched modules and classes by identity. It also compares the code, defaults and cells of
functions. It records the originals before the program loads. Before the snippet loads, it also records the modules that
the program has imported. Once the program runs, this code does not look up names in modules, which the program may
change.
"""

from __future__ import annotations

import builtins
import sys
import types
from _operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_helpers import Helpers
    from agent.sandbox.inside.python_reports import MODULE, NAME
    from agent.sandbox.inside.python_sentinel import list_children

HARMLESS = frozenset({"_", "input", "print", "maxDiff", "longMessage", "__warningregistry__", "_getini_unknown_type"})
"""Names that programs may replace, or that pytest replaces. Replacing them cannot turn a failure into a success."""
HARMLESS_NEW = frozenset({"__annotations__", "__annotations_cache__", "__annotate__", "__annotate_func__"})
"""Names that are added to a class when its annotations are read."""
NAMES_ONLY = frozenset({"builtins", "types", "pytest"})
PARTLY = {"sys": ("modules", "exc_info"), "asyncio": ("run", "Runner")}
"""Modules in which only the given names are watched, because programs may legitimately change other names."""
WHOLE = frozenset({"unittest", "contextlib", "pluggy", "_pytest"})
"""Packages whose modules are all watched."""
NOT_WATCHED = frozenset({"_pytest.timing"})
"""Modules that programs may change, for example to freeze time."""

MODULES = sys.modules
BUILTIN = frozenset(vars(builtins))
MODULE_TYPE, FUNCTION, CODE = types.ModuleType, types.FunctionType, types.CodeType
METHOD = types.MethodType
METHODS = (staticmethod, classmethod, property, MODULE_TYPE)
FUNCTION_PARTS = [attrgetter("__code__"), attrgetter("__defaults__"), attrgetter("__kwdefaults__")]
MRO = type.__dict__["__mro__"].__get__


class Guard:
    """Reports changes that affect the program's verdict."""

    def __init__(self, emit: Callable[..., None], space: dict[str, Any]) -> None:
        self.emit = emit
        self.space = space
        self.reported: set[str] = set()
        self.parts: list[SnippetPart] = []
        self.helpers: Helpers | None = None
        self.modules: dict[str, Any] = {}
        self.watched: dict[int, WatchedNamespace] = {}
        self.bodies = Bodies()
        self.test_case: Any = None
        self.watch()

    def watch(self) -> None:
        """Record the program's test classes, and the modules that were loaded since the last call."""
        for name in [*MODULES]:
            module = MODULES[name]
            if name not in self.modules and is_watched(name) and isinstance(module, MODULE_TYPE):
                self.modules[name] = module
                self.watch_module(name, module)
        if self.test_case is None and "unittest" in self.modules:
            self.test_case = self.modules["unittest"].TestCase
            self.assertions = {key for key in dir(self.test_case) if callable(getattr(self.test_case, key))}
        if self.test_case is not None:
            for name, value in self.space.items():
                if isinstance(value, type) and issubclass(value, self.test_case):
                    self.watch_namespace(name, value, is_behaviour)

    def watch_module(self, name: str, module: Any) -> None:
        keys = PARTLY.get(name)
        if keys is not None:
            self.watch_namespace(name, module, lambda key, _value: key in keys)
            return
        self.watch_namespace(name, module, accept_all if name in NAMES_ONLY else is_behaviour)
        if name in NAMES_ONLY:
            return
        package = "unittest" if name.startswith("unittest.") else name
        for key, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                self.watch_namespace(package + "." + key, value, accept_all if package == "unittest" else is_behaviour)

    def watch_namespace(self, name: str, owner: Any, accepts: Callable[[str, Any], bool]) -> None:
        if id(owner) not in self.watched:
            namespace = self.watched[id(owner)] = WatchedNamespace(name, owner, accepts)
            if name not in NAMES_ONLY:
                for key, value in namespace.relevant.items():
                    self.bodies.add(name + "." + key, value)

    def watch_snippet(self, snippet: range, space: dict[str, Any], module: str = MODULE) -> None:
        """Record the snippet's new functions, methods and classes in the namespace of a module and in its classes."""
        pending: list[tuple[str, Any, Any]] = [("", space, None)]
        seen: set[int] = set()
        while pending:
            path, namespace, container = pending.pop()
            items = [*namespace.items()]
            parts = [
                SnippetPart(path + key, namespace, key, snippet) for key, value in items if belongs_to(snippet, value)
            ]
            if parts and container is not None:
                # replacing the class would also replace its methods
                parts.append(SnippetPart(path[:-1], container[0], container[1], snippet))
            self.parts += parts
            for key, value in items:
                if isinstance(value, type) and value.__module__ == module and id(value) not in seen:
                    seen.add(id(value))
                    pending.append((path + key + ".", vars(value), (namespace, key)))

    def list_changes(self) -> list[str]:
        """Return the changes since the start, without reporting them."""
        messages: list[str] = []
        emit = self.emit
        self.emit = lambda *_, message: messages.append(message)
        self.check()
        self.emit = emit
        return messages

    def check(self) -> None:
        """Report each change once."""
        for namespace in self.watched.values():
            if not namespace.is_unchanged():
                for key in namespace.iterate_changes():
                    self.report("the program changed %s.%s" % (namespace.name, key))
        for name, module in self.modules.items():
            if MODULES.get(name) is not module:
                self.report("the program changed sys.modules[%r]" % name)
        for name in self.bodies.iterate_changes():
            self.report("the program changed " + name)
        if self.space.get("__builtins__") is not builtins:
            self.report("the program changed its __builtins__")
        self.check_functions()

    def check_functions(self) -> None:
        for part in self.parts:
            if not part.is_intact():
                self.report("the snippet's %s was replaced" % part.name, "snippet")
        if self.helpers is None:
            return
        for name in self.helpers.iterate_changes():
            self.report("the program changed its helper " + name)
        for name, bound in self.helpers.classes.items():
            self.check_class(name, bound)

    def check_class(self, name: str, bound: set[str]) -> None:
        """Report assertion methods that were added to a test class from outside its body, which binds these names."""
        owner = self.space.get(name)
        if self.test_case is None or not isinstance(owner, type) or not issubclass(owner, self.test_case):
            return
        for key in vars(owner):
            if key in self.assertions and key not in bound and not key.startswith("_"):
                self.report("the program changed unittest.TestCase.%s, in %s" % (key, name))

    def report(self, message: str, subject: str = "") -> None:
        if message not in self.reported:
            self.reported.add(message)
            self.emit("tamper", subject, message=message)


class WatchedNamespace:
    """The recorded names and values of a module or class. `accepts` selects the names to compare."""

    def __init__(self, name: str, owner: Any, accepts: Callable[[str, Any], bool]) -> None:
        self.name = name
        self.owner = owner
        self.kind = type(owner)
        self.mro = MRO(owner) if isinstance(owner, type) else None
        self.now = vars(owner)
        self.before = dict(self.now)  # keeps the values alive, so that their ids are not reused
        self.ids = [*map(id, self.before.values())]
        self.relevant = {
            key: value for key, value in self.before.items() if key not in HARMLESS and accepts(key, value)
        }

    def is_unchanged(self) -> bool:
        """Return whether nothing was replaced, added or removed. This fast check usually suffices."""
        if type(self.owner) is not self.kind or [*map(id, self.now.values())] != self.ids:
            return False
        return self.mro is None or MRO(self.owner) is self.mro

    def iterate_changes(self) -> Iterator[str]:
        """Iterate over the names whose values changed."""
        now = dict(self.now)
        if type(self.owner) is not self.kind:
            yield "__class__"
        if self.mro is not None and MRO(self.owner) is not self.mro:
            yield "__bases__"
        yield from (key for key, value in self.relevant.items() if now.get(key, self) is not value)
        yield from (key for key in now if key not in self.before and self.hides_name(key))

    def hides_name(self, key: str) -> bool:
        """Return whether a new name hides a built-in name (in a module) or an inherited name (in a class)."""
        if self.mro is None:
            return key in BUILTIN
        if key.startswith("__") and key not in HARMLESS_NEW:
            return True
        return any(key in vars(base) and is_behaviour(key, vars(base)[key]) for base in self.mro[1:])


class Bodies:
    """The recorded parts of functions, including functions in closure cells."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.functions: list[Any] = []
        self.parts: list[list[Any]] = [[] for _ in FUNCTION_PARTS]
        self.ids: list[list[int]] = [[] for _ in FUNCTION_PARTS]
        self.keywords: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.cells: list[tuple[str, Any, Any]] = []

    def add(self, name: str, value: Any, cells: bool = True) -> None:
        """Record a value that is a function, a method or a property. With `cells`, record its closure cells as well."""
        pending = [value]
        while pending:
            value = pending.pop()
            if isinstance(value, (staticmethod, classmethod)):
                pending.append(value.__func__)
            elif isinstance(value, property):
                pending += [value.fget, value.fset]
            elif isinstance(value, FUNCTION) and id(value) not in self.names:
                self.names[id(value)] = name
                self.functions.append(value)
                for part, numbers, get in zip(self.parts, self.ids, FUNCTION_PARTS):
                    part.append(get(value))
                    numbers.append(id(part[-1]))
                if value.__kwdefaults__:
                    self.keywords.append((name, value.__kwdefaults__, dict(value.__kwdefaults__)))
                contents = [(cell, read_cell(cell)) for cell in value.__closure__ or () if cells]
                self.cells += [(name, cell, content) for cell, content in contents if callable(content)]
                pending += [content for _, content in contents]

    def iterate_changes(self) -> Iterator[str]:
        """Iterate over the names of functions whose parts changed."""
        for numbers, get in zip(self.ids, FUNCTION_PARTS):
            now = [*map(id, map(get, self.functions))]
            if now != numbers:
                different = (function for function, a, b in zip(self.functions, now, numbers) if a != b)
                yield from (self.names[id(function)] for function in different)
        for name, keywords, recorded in self.keywords:
            if [*map(id, keywords.values())] != [*map(id, recorded.values())]:
                yield name
        yield from (name for name, cell, content in self.cells if read_cell(cell) is not content)


def read_cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def is_watched(name: str) -> bool:
    if name.partition(".")[0] in WHOLE:
        return name not in NOT_WATCHED
    return name in NAMES_ONLY or name in PARTLY or name == "asyncio.runners"


def accept_all(_key: str, _value: Any) -> bool:
    return True


def is_behaviour(key: str, value: Any) -> bool:
    """Return whether a value in a module or class is behaviour rather than state."""
    return callable(value) or isinstance(value, METHODS) or key == "__builtins__"


class SnippetPart:
    """A function, method or class that the snippet defines. Only the snippet's code may replace it."""

    def __init__(self, name: str, namespace: Any, key: str, snippet: range) -> None:
        self.name = name
        self.namespace = namespace
        self.key = key
        self.snippet = snippet
        self.value = namespace[key]
        functions = [layer for layer in unwrap(self.value) if isinstance(layer, FUNCTION)]
        cells = [(cell, read_cell(cell)) for function in functions for cell in function.__closure__ or ()]
        self.cells = [(cell, content) for cell, content in cells if callable(content)]

    def is_intact(self) -> bool:
        now = self.namespace.get(self.key)
        if isinstance(self.value, type):
            return now is self.value
        cells = ((read_cell(cell), content) for cell, content in self.cells)
        return belongs_to(self.snippet, now) and all(a is b or belongs_to(self.snippet, a) for a, b in cells)


def belongs_to(snippet: range, value: Any) -> bool:
    """Return whether a value is a function that the snippet defines, or wraps such a function."""
    codes = [layer.__code__ for layer in unwrap(value) if isinstance(layer, FUNCTION)]
    return any(code.co_filename == NAME and code.co_firstlineno in snippet for code in codes)


def unwrap(value: Any) -> Iterator[Any]:
    """Iterate over a value and the values that it wraps. Does not call the program's code."""
    pending = [value]
    for _ in range(10):
        if not pending:
            return
        value = pending.pop()
        yield value
        if isinstance(value, (staticmethod, classmethod, METHOD)):
            pending.append(value.__func__)
        elif isinstance(value, property):
            pending += [value.fget, value.fset, value.fdel]
        else:
            try:
                pending.append(object.__getattribute__(value, "__dict__")["__wrapped__"])
            except (AttributeError, KeyError, TypeError):
                continue


def iterate_bindings(node: Any) -> Iterator[str]:
    """Iterate over the names that a statement binds in its scope."""
    pending = [node]
    while pending:
        part = pending.pop()
        kind = type(part).__name__
        if kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
            yield part.name
        elif kind == "alias":
            yield (part.asname or part.name).partition(".")[0]
        elif kind == "Name":
            if type(part.ctx).__name__ != "Load":
                yield part.id
        elif kind != "Lambda":
            pending += list_children(part)
