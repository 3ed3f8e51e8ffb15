"""Detects snippets that change the program's helpers. This file is the third part of the Python harness.

Helpers are the functions, classes, partial functions and instances that the program binds in its module. Functions are
compared by identity and by their parts. Data may change, because fakes count calls and recorders collect them.
"""

from __future__ import annotations

import types
from _functools import partial as PARTIAL  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from agent.sandbox.inside.python_guard import CODE, FUNCTION, METHOD, MRO, Bodies, iterate_bindings, unwrap
    from agent.sandbox.inside.python_reports import MODULE, NAME
    from agent.sandbox.inside.python_sentinel import list_children

INSTANCES = frozenset({MODULE, "unittest.case"})
"""The modules of classes whose instances can be helpers."""
COMPARING = frozenset({"__eq__", "__ne__", "__getattribute__"})
"""Methods that decide comparisons. Every class inherits them, and dataclasses generate them."""
NAMESPACE = types.SimpleNamespace
SETTING = frozenset({"", "__init__", "__new__", "__post_init__"})
"""Functions whose code sets attributes for the first time. "" is the module."""
PARTS = ("__code__", "__defaults__", "__kwdefaults__")
NOTHING = (lambda: None).__code__.co_code[::2]
"""The operations of a function that does nothing. Such a function checks nothing, so the snippet may replace it."""


class Helpers:
    """The program's helpers. `space` is the program's namespace, and `snippet` contains the snippet's lines.

    `classes` maps undecorated classes to the names that their bodies bind.
    """

    def __init__(self, space: dict[str, Any], tree: Any, snippet: range) -> None:
        self.space = space
        self.tree = tree
        self.snippet = snippet
        self.bindings = self.list_bindings(tree.body)
        self.bound: set[str] = set()
        self.defined: set[str] = set()
        self.classes: dict[str, set[str]] = {}
        self.replaced: list[str] = []
        self.uses: tuple[set[str], set[str]] | None = None
        self.record()

    def watch(self, part: list[Any], code: types.CodeType) -> None:
        """Check the functions that a part of the program has just defined, and record the helpers."""
        self.bound.update(self.list_bindings([node for node in part if "names" not in node._fields]))
        self.defined.update(node.name for node in part if hasattr(node, "decorator_list"))
        for owner, name, defined in self.iterate_functions(part, code, self.bindings):
            namespace = read_namespace(self.space.get(owner)) if owner else self.space
            value = namespace.get(name)
            if getattr(getattr(value, "__func__", value), "__code__", None) is not defined:
                self.replaced.append(owner + "." + name if owner else name)
        self.record()

    def list_bindings(self, body: list[Any]) -> list[str]:
        return [name for node in body if node.lineno not in self.snippet for name in iterate_bindings(node)]

    def iterate_functions(
        self, body: list[Any], code: types.CodeType, bindings: list[str], owner: str = ""
    ) -> Iterator[tuple[str, str, types.CodeType]]:
        """Iterate over undecorated functions that a body binds once: class (or ""), name and code."""
        for node in body:
            if not hasattr(node, "decorator_list") or node.lineno in self.snippet or node.decorator_list:
                continue
            inner = [const for const in code.co_consts if isinstance(const, CODE) and const.co_name == node.name]
            inner = [const for const in inner if const.co_firstlineno == node.lineno and bindings.count(node.name) == 1]
            if type(node).__name__ != "ClassDef":
                mangled = owner and node.name.startswith("__") and not node.name.endswith("__")
                name = "_" + owner.lstrip("_") + node.name if mangled else node.name
                yield from ((owner, name, const) for const in inner[:1])
            elif inner and not owner:
                names = self.list_bindings(node.body)
                self.classes[node.name] = set(names)
                yield from self.iterate_functions(node.body, inner[0], names, node.name)

    def record(self) -> None:
        """Record the helpers. The program may have changed those that it bound earlier."""
        names = [name for name in self.bound if name in self.space]
        self.names = {
            name: self.space[name] for name in names if name in self.defined or self.is_helper(self.space[name])
        }
        self.owners: dict[int, Owner] = {}
        self.bodies = Bodies()
        pending = [*self.names.items()]
        while pending:
            path, value = pending.pop()
            if id(value) in self.owners:
                continue
            self.owners[id(value)] = owner = Owner(path, value, self.is_own)
            if isinstance(value, PARTIAL):
                pending.append((path, value.func))
            elif isinstance(value, METHOD):
                pending.append((path, value.__self__))
            elif type(value).__module__ == MODULE:
                pending.append((type(value).__name__, type(value)))
            for layer in unwrap(value):
                self.bodies.add(path, layer, cells=False)
            pending += [(path + "." + key, part) for key, part in owner.before]

    def is_helper(self, value: Any) -> bool:
        """Return whether a value is a helper. Mocks, foreign functions and other data are not."""
        kind = type(value)
        if kind is METHOD:
            return self.is_own(value) or self.is_helper(value.__self__)
        if issubclass(kind, type):
            return bool(value.__module__ == MODULE)
        return kind is NAMESPACE or kind is PARTIAL or kind.__module__ in INSTANCES or self.is_own(value)

    def is_own(self, value: Any) -> bool:
        """Return whether a value is a function that the program defines outside the snippet, or wraps one."""
        codes = [layer.__code__ for layer in unwrap(value) if isinstance(layer, FUNCTION)]
        return any(code.co_filename == NAME and code.co_firstlineno not in self.snippet for code in codes)

    def iterate_changes(self) -> Iterator[str]:
        """Iterate over the helpers that changed, except those that the program's own functions change as well."""
        yield from self.replaced
        for name, value in self.names.items():
            if self.space.get(name) is not value and self.matters(name, value):
                yield name
        for owner in self.owners.values():
            yield from (owner.path + "." + key for key, part in owner.iterate_changes() if self.matters(key, part))
        yield from (name for name in self.bodies.iterate_changes() if all(map(self.matters, PARTS)))

    def matters(self, name: str, value: Any = None) -> bool:
        """Return whether the change of a name or attribute can affect the cases.

        The program's code must use lambdas and instances, because otherwise they exist only for the snippet.
        """
        if self.uses is None:
            self.uses = self.find_uses()
        read, replaced = self.uses
        is_function = isinstance(value, FUNCTION)
        if is_function and does_nothing(value) and not name.startswith("test"):
            return False
        named = value is None or (is_function and value.__name__ != "<lambda>") or isinstance(value, type)
        return (named or name in read) and name not in replaced

    def find_uses(self) -> tuple[set[str], set[str]]:
        """Return the names that the program's code reads, and the names that its functions may replace."""
        read: set[str] = set()
        replaced: set[str] = set()
        pending = [(self.tree, "")]
        while pending:
            node, function = pending.pop()
            if getattr(node, "lineno", -1) in self.snippet:
                continue
            kind = type(node).__name__
            if kind in ("FunctionDef", "AsyncFunctionDef"):
                function = node.name
            elif kind in ("Global", "Nonlocal"):
                replaced.update(node.names)
            elif kind == "Call":  # for setattr and patch
                texts = [getattr(argument, "value", None) for argument in node.args]
                replaced.update(name for text in texts if isinstance(text, str) for name in text.split("."))
            elif kind in ("Name", "Attribute"):
                name = node.id if kind == "Name" else node.attr
                if type(node.ctx).__name__ == "Load":
                    read.add(name)
                elif kind == "Attribute" and function not in SETTING:
                    replaced.add(name)
            pending += [(item, function) for item in list_children(node)]
        return read, replaced


def does_nothing(function: Any) -> bool:
    """Return whether a function has no statement besides `pass` and its docstring."""
    code = function.__code__
    return bool(code.co_code[::2] == NOTHING) and {None, function.__doc__}.issuperset(code.co_consts)


class Owner:
    """A class, instance or function whose namespace may contain functions of the program, or a partial function."""

    def __init__(self, path: str, value: Any, is_own: Any) -> None:
        self.path = path
        self.value = value  # keeps the value alive, so that its id is not reused
        self.identity = identify(value)
        namespace = read_namespace(value)
        self.before = [(key, part) for key, part in namespace.items() if is_own(part) or key in COMPARING]
        bases = MRO(value)[1:] if isinstance(value, type) else MRO(type(value))
        namespaces = [(base.__module__, vars(base)) for base in bases if base.__module__ in INSTANCES]
        parts = [(module, key, part) for module, namespace in namespaces for key, part in namespace.items()]
        hidden = {key for module, key, part in parts if (is_own(part) if module == MODULE else callable(part))}
        self.hidden = hidden.union(COMPARING).difference(namespace)

    def iterate_changes(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names of functions that were replaced or removed, with the function, and over other changes."""
        now = read_namespace(self.value)
        yield from ((key, part) for key, part in self.before if now.get(key) is not part)
        yield from ((key, None) for key in self.hidden if key in now)
        identity = identify(self.value)
        if len(identity) != len(self.identity) or any(a is not b for a, b in zip(identity, self.identity)):
            yield "__class__", None


def identify(value: Any) -> list[Any]:
    """Return the objects outside of a value's namespace that determine what the value does."""
    if isinstance(value, PARTIAL):
        return [value.func, *value.keywords, *value.keywords.values()]
    return [type(value), MRO(value) if isinstance(value, type) else None]


def read_namespace(value: Any) -> Any:
    if isinstance(value, type):
        return vars(value)
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
