"""Reports when a program changes what its own judgement depends on; the second part of the Python harness.

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

    from agent.sandbox.inside.python_reports import MODULE, NAME

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
METHOD = types.MethodType
METHODS = (staticmethod, classmethod, property, MODULE_TYPE)
MADE_OF = [attrgetter("__code__"), attrgetter("__defaults__"), attrgetter("__kwdefaults__")]
MRO = type.__dict__["__mro__"].__get__


class Guard:
    """Reports what the program changed of what its own judgement depends on."""

    def __init__(self, emit: Callable[..., None], space: dict[str, Any]) -> None:
        self.emit = emit
        self.space = space
        self.reported: set[str] = set()
        self.defined: list[Function] = []
        self.parts: list[SnippetPart] = []
        self.modules: dict[str, Any] = {}
        self.places: dict[int, WatchedPlace] = {}
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
            noted = self.places[id(place)] = WatchedPlace(name, place, wanted)
            if name not in NAMES_ONLY:
                for key, value in noted.kept.items():
                    self.bodies.add(name + "." + key, value)

    def expect(self, defined: Iterable[Function]) -> None:
        """Say what has just been defined."""
        self.defined += defined

    def watch_snippet(self, snippet: range) -> None:
        """Note what the snippet has just defined in the module and in classes of the program."""
        pending: list[tuple[str, Any, Any]] = [("", self.space, None)]
        seen: set[int] = set()
        while pending:
            path, namespace, place = pending.pop()
            items = [*namespace.items()]
            parts = [SnippetPart(path + key, namespace, key, snippet) for key, value in items if is_of(snippet, value)]
            if parts and place is not None:
                # whoever puts another class in the place of this one replaces its methods
                parts.append(SnippetPart(path[:-1], place[0], place[1], snippet))
            self.parts += parts
            for key, value in items:
                if isinstance(value, type) and value.__module__ == MODULE and id(value) not in seen:
                    seen.add(id(value))
                    pending.append((path + key + ".", vars(value), (namespace, key)))

    def check(self) -> None:
        """Report each change, once."""
        for place in self.places.values():
            if not place.is_unchanged():
                for key in place.changes():
                    self.report("the program changed %s.%s" % (place.name, key))
        for name, module in self.modules.items():
            if MODULES.get(name) is not module:
                self.report("the program changed sys.modules[%r]" % name)
        for name in self.bodies.changes():
            self.report("the program changed " + name)
        if self.space.get("__builtins__") is not builtins:
            self.report("the program changed its __builtins__")
        self.check_functions()

    def check_functions(self) -> None:
        for part in self.parts:
            if not part.is_kept():
                self.report("the snippet's %s was replaced" % part.name, "snippet")
        for function in self.defined:
            if not function.check(self.space):
                self.report("the program replaced its function " + function.name)
            if function.bound is not None:
                self.check_class(function)

    def check_class(self, function: Function) -> None:
        """Look for assertions that were put into a test class from outside."""
        owner = self.space.get(function.owner)
        if self.test_case is None or not isinstance(owner, type) or not issubclass(owner, self.test_case):
            return
        for key in vars(owner):
            if key in self.assertions and key not in (function.bound or ()) and not key.startswith("_"):
                self.report("the program changed unittest.TestCase.%s, in %s" % (key, function.owner))

    def report(self, message: str, what: str = "") -> None:
        if message not in self.reported:
            self.reported.add(message)
            self.emit("tamper", what, message=message)


class WatchedPlace:
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


class SnippetPart:
    """A function, method or class of the snippet's: nothing but other code of the snippet's may take its place."""

    def __init__(self, name: str, namespace: Any, key: str, snippet: range) -> None:
        self.name = name
        self.namespace = namespace
        self.key = key
        self.snippet = snippet
        self.value = namespace[key]
        functions = [each for each in unwrapped(self.value) if isinstance(each, FUNCTION)]
        cells = [(cell, contents(cell)) for each in functions for cell in each.__closure__ or ()]
        self.cells = [(cell, held) for cell, held in cells if callable(held)]

    def is_kept(self) -> bool:
        now = self.namespace.get(self.key)
        if isinstance(self.value, type):
            return now is self.value
        holds = all(contents(cell) is held or is_of(self.snippet, contents(cell)) for cell, held in self.cells)
        return holds and is_of(self.snippet, now)


def is_of(snippet: range, value: Any) -> bool:
    """Say whether a value is a function that the snippet defines, or was made around one."""
    codes = [each.__code__ for each in unwrapped(value) if isinstance(each, FUNCTION)]
    return any(code.co_filename == NAME and code.co_firstlineno in snippet for code in codes)


def unwrapped(value: Any) -> Iterator[Any]:
    """Yield a value and what it was made around; what a program makes is not asked, for it may answer anything."""
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


class Function:
    """A function of the program, or a method: `owner` is its class, `bound` the names that the class's body binds."""

    def __init__(self, owner: str, node: Any, code: types.CodeType, decorated: bool, bound: Any) -> None:
        mangled = owner and node.name.startswith("__") and not node.name.endswith("__")
        self.key = "_" + owner.lstrip("_") + node.name if mangled else node.name
        self.name = owner + "." + node.name if owner else node.name
        self.owner = owner
        self.code = code
        self.decorated = decorated
        self.bound = bound
        self.seen = self.traceable = False
        self.value: Any = None

    def check(self, space: dict[str, Any]) -> bool:
        """Say whether the name still stands for what it did at the first call, which is after loading."""
        try:
            value = (vars(space[self.owner]) if self.owner else space).get(self.key)
        except (KeyError, TypeError):
            value = None
        has_code = self.has_code(value)
        if not self.seen:
            self.seen = True
            self.value = value
            self.traceable = has_code
            return has_code or self.decorated
        return value is self.value and has_code is self.traceable

    def has_code(self, value: Any) -> bool:
        """Say whether a value is the function of the source, or a decorator's work around it."""
        for _ in range(10):
            value = getattr(value, "__func__", value)
            if not isinstance(value, FUNCTION):
                return False
            if value.__code__ is self.code or not self.decorated:
                break
            value = value.__dict__.get("__wrapped__")
        return value.__code__ is self.code


def functions(
    body: list[Any], code: types.CodeType, snippet: range, bound: list[str], owner: str = "", decorated: bool = False
) -> Iterator[Function]:
    """Yield the functions that a body defines outside of the snippet, where nothing else binds their names."""
    codes = [const for const in code.co_consts if isinstance(const, CODE)]
    for node in body:
        kind = type(node).__name__
        definition = kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef")
        if not definition or node.lineno in snippet or bound.count(node.name) > 1:
            continue
        lines = [node.lineno] + [part.lineno for part in node.decorator_list]
        own = [each for each in codes if each.co_name == node.name and each.co_firstlineno in lines]
        wrapped = decorated or bool(node.decorator_list)
        if kind != "ClassDef":
            yield from (
                Function(owner, node, each, wrapped, None if decorated or not owner else set(bound)) for each in own[:1]
            )
        elif not owner:
            inner = [name for part in node.body if part.lineno not in snippet for name in bindings(part)]
            for each in own[:1]:
                yield from functions(node.body, each, snippet, inner, node.name, wrapped)


def bindings(node: Any) -> Iterator[str]:
    """Yield the names that a statement binds in the scope it stands in."""
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
            values = [getattr(part, field, None) for field in part._fields]
            nested = [item for value in values if isinstance(value, list) for item in value]
            pending += [item for item in values + nested if hasattr(item, "_fields")]
