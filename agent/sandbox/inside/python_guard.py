"""Tells when a program changes what its own judgement depends on; the second part of the Python harness.

What stands in a watched module or class is compared by identity, and each of its functions by what it is made of. All
of it is noted before the program loads: nothing here is looked up in a module afterwards.
"""

from __future__ import annotations

import builtins
import sys
import types
from _operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_functions import Function

HARMLESS = frozenset({"_", "input", "print", "maxDiff", "longMessage", "__warningregistry__", "_getini_unknown_type"})
"""Names that programs, or pytest as it starts, may replace: none of them can turn a failure into a success."""
HARMLESS_NEW = frozenset({"__annotations__", "__annotations_cache__", "__annotate__", "__annotate_func__"})
"""Names that appear in a class when somebody looks."""
NAMES_ONLY = frozenset({"builtins", "types", "pytest"})
PARTLY = {"sys": ("modules", "exc_info"), "asyncio": ("run", "Runner")}
"""Modules of which only these names are watched, for programs have reason to change others."""
WHOLE = frozenset({"unittest", "contextlib", "pluggy", "_pytest"})
"""Modules that are watched with all that is in them."""
NOT_WATCHED = frozenset({"_pytest.timing"})
"""Modules of which programs may stop the clock."""

MODULES = sys.modules
BUILTIN = frozenset(vars(builtins))
MODULE_TYPE, FUNCTION, CODE = types.ModuleType, types.FunctionType, types.CodeType
METHODS = (staticmethod, classmethod, property, MODULE_TYPE)
MADE_OF = [attrgetter("__code__"), attrgetter("__defaults__"), attrgetter("__kwdefaults__")]
MRO = type.__dict__["__mro__"].__get__


class Guard:
    """Tells when the program changed what its own judgement depends on."""

    def __init__(self, emit: Callable[..., None], space: dict[str, Any]) -> None:
        self.emit = emit
        self.space = space
        self.told: set[str] = set()
        self.defined: list[Function] = []
        self.modules: dict[str, Any] = {}
        self.places: dict[int, Place] = {}
        self.bodies = Bodies()
        self.test_case: Any = None
        self.watch()

    def watch(self) -> None:
        """Note what is loaded by now and was not noted yet, and the program's own test classes."""
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
                    self.watch_place(name, value, runs)

    def watch_module(self, name: str, module: Any) -> None:
        keys = PARTLY.get(name)
        if keys is not None:
            self.watch_place(name, module, lambda key, _value: key in keys)
            return
        self.watch_place(name, module, everything if name in NAMES_ONLY else runs)
        if name in NAMES_ONLY:
            return
        shown = "unittest" if name.startswith("unittest.") else name
        for key, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                self.watch_place(shown + "." + key, value, everything if shown == "unittest" else runs)

    def watch_place(self, name: str, place: Any, wanted: Callable[[str, Any], bool]) -> None:
        if id(place) not in self.places:
            noted = self.places[id(place)] = Place(name, place, wanted)
            if name not in NAMES_ONLY:
                for key, value in noted.kept.items():
                    self.bodies.add(name + "." + key, value)

    def expect(self, defined: Iterable[Function]) -> None:
        """Say what has just been defined."""
        self.defined += defined

    def check(self) -> None:
        """Report each change, once."""
        for place in self.places.values():
            if not place.is_unchanged():
                for key in place.changes():
                    self.tell("the program changed %s.%s" % (place.name, key))
        for name, module in self.modules.items():
            if MODULES.get(name) is not module:
                self.tell("the program changed sys.modules[%r]" % name)
        for name in self.bodies.changes():
            self.tell("the program changed " + name)
        if self.space.get("__builtins__") is not builtins:
            self.tell("the program changed its __builtins__")
        for function in self.defined:
            if not function.check(self.space):
                self.tell("the program replaced its function " + function.name)
            if function.bound is not None:
                self.check_class(function)

    def check_class(self, function: Function) -> None:
        """Look for assertions that were put into a test class from outside."""
        owner = self.space.get(function.owner)
        if self.test_case is None or not isinstance(owner, type) or not issubclass(owner, self.test_case):
            return
        for key in vars(owner):
            if key in self.assertions and key not in (function.bound or ()) and not key.startswith("_"):
                self.tell("the program changed unittest.TestCase.%s, in %s" % (key, function.owner))

    def tell(self, message: str) -> None:
        if message not in self.told:
            self.told.add(message)
            self.emit("tamper", message=message)


class Place:
    """A module or a class as it was: what its names stood for, as far as that is `wanted`."""

    def __init__(self, name: str, place: Any, wanted: Callable[[str, Any], bool]) -> None:
        self.name = name
        self.place = place
        self.kind = type(place)
        self.mro = MRO(place) if isinstance(place, type) else None
        self.now = vars(place)
        self.before = dict(self.now)  # keeps all alive, so that nothing else comes to have the number of one of them
        self.ids = [*map(id, self.before.values())]
        self.kept = {key: value for key, value in self.before.items() if key not in HARMLESS and wanted(key, value)}

    def is_unchanged(self) -> bool:
        """Say whether nothing was replaced, added or removed: the quick answer, and mostly the only one needed."""
        if type(self.place) is not self.kind or [*map(id, self.now.values())] != self.ids:
            return False
        return self.mro is None or MRO(self.place) is self.mro

    def changes(self) -> Iterator[str]:
        """Yield the names whose meaning is another now."""
        now = dict(self.now)
        if type(self.place) is not self.kind:
            yield "__class__"
        if self.mro is not None and MRO(self.place) is not self.mro:
            yield "__bases__"
        yield from (key for key, value in self.kept.items() if now.get(key, self) is not value)
        yield from (key for key in now if key not in self.before and self.matters(key))

    def matters(self, key: str) -> bool:
        """Say whether a new name hides another: a built-in one in a module, an inherited one in a class."""
        if self.mro is None:
            return key in BUILTIN
        if key.startswith("__") and key not in HARMLESS_NEW:
            return True
        return any(key in vars(base) and runs(key, vars(base)[key]) for base in self.mro[1:])


class Bodies:
    """What functions are made of, their wrapped ones included."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.functions: list[Any] = []
        self.parts: list[list[Any]] = [[] for _ in MADE_OF]
        self.ids: list[list[int]] = [[] for _ in MADE_OF]
        self.keywords: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.cells: list[tuple[str, Any, Any]] = []

    def add(self, name: str, value: Any) -> None:
        """Note the functions of a value: itself, a method's or property's, and those that they enclose."""
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
                for part, numbers, get in zip(self.parts, self.ids, MADE_OF):
                    part.append(get(value))
                    numbers.append(id(part[-1]))
                if value.__kwdefaults__:
                    self.keywords.append((name, value.__kwdefaults__, dict(value.__kwdefaults__)))
                enclosed = [(cell, contents(cell)) for cell in value.__closure__ or ()]
                self.cells += [(name, cell, held) for cell, held in enclosed if callable(held)]
                pending += [held for _, held in enclosed]

    def changes(self) -> Iterator[str]:
        """Yield the names of functions that are made of something else now."""
        for numbers, get in zip(self.ids, MADE_OF):
            now = [*map(id, map(get, self.functions))]
            if now != numbers:
                different = (function for function, a, b in zip(self.functions, now, numbers) if a != b)
                yield from (self.names[id(function)] for function in different)
        for name, keywords, kept in self.keywords:
            if [*map(id, keywords.values())] != [*map(id, kept.values())]:
                yield name
        yield from (name for name, cell, held in self.cells if contents(cell) is not held)


def contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def is_watched(name: str) -> bool:
    if name.partition(".")[0] in WHOLE:
        return name not in NOT_WATCHED
    return name in NAMES_ONLY or name in PARTLY or name == "asyncio.runners"


def everything(_key: str, _value: Any) -> bool:
    return True


def runs(key: str, value: Any) -> bool:
    """Say whether a value of a module or a class does something; the others are state."""
    return callable(value) or isinstance(value, METHODS) or key == "__builtins__"
