"""Finds where a program puts something in the place of the candidate's parts: a function's code, a class's methods."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from agent.languages.python.insertion import Placement
from agent.languages.python.kept import Kept, kept_classes
from agent.languages.python.selves import SELF, Selves
from agent.languages.python.setting import Setting, Settings
from agent.languages.python.shadowing import MODULE, Offence, is_own, own_names, sources
from agent.languages.python.tree import Function, bindings, is_within, last_name, walk, walk_scope

BEHAVIOUR = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__bases__", "cell_contents"})
"""What makes a function or class another one, whatever it is named."""

_DEEPEST = 20
_OF_SELF = "self."
_GAP = re.compile(r"%s|\{\d*\}")


@dataclass(frozen=True)
class _Meant:
    """A class of the candidate's, an object of one, or a value that the class has."""

    kept: Kept
    is_object: bool = False
    part: str = ""
    """Where it is neither, but what the class holds under this name."""

    @property
    def is_class(self) -> bool:
        return not self.is_object and not self.part


_NOTHING = _Meant(Kept("", {}, frozenset()))
"""What a name means that is deleted or given None: of the objects that it is given elsewhere, this takes nothing."""

_Names = dict[str, _Meant]


def tampering(placement: Placement) -> Iterator[Offence]:
    """Yield what is set or deleted of the candidate, and the lines; the snippet's own lines never offend.

    It is seen where the class is reached by its name, an alias of it, or an object that the same function, or `self`,
    was given as `C(...)`. Computed names, and objects that come from elsewhere, are not; SECURITY.md lists them.
    """
    reading = _Reading(placement)
    pending: list[tuple[list[ast.AST], _Names]] = [([*placement.tree.body], reading.everywhere)]
    while pending:
        nodes, outer = pending.pop()
        here = list(walk_scope(nodes, classes=True))
        names = reading.bound(here, outer)
        for node in here:
            if reading.is_snippets(node):
                continue
            if isinstance(node, Function):
                pending.append(([*node.body], reading.inside(node, names)))
            elif isinstance(node, ast.Lambda):
                pending.append(([node.body], _without(names, node.args)))
            for setting in reading.settings.of(node):
                found = reading.offence(setting, names)
                if found is not None:
                    yield found, getattr(node, "lineno", 0)


class _Reading:
    """What the expressions of one program mean."""

    def __init__(self, placement: Placement) -> None:
        self.settings = Settings(placement.tree)
        self._placement = placement
        self._classes = kept_classes(placement)
        self._named = {name: _Meant(kept) for name, kept in self._classes.items()}
        self._selves = Selves(placement.tree, self.is_snippets)
        self._known_of_self: dict[ast.ClassDef | None, _Names] = {}
        self._own = own_names(placement.tree)
        declarations = (node for node in walk([placement.tree]) if isinstance(node, ast.Global | ast.Nonlocal))
        self._declared = frozenset(name for node in declarations for name in node.names)
        self._sources = sources(placement.tree)
        self._imported = {
            alias: alias.name
            for node in walk([placement.tree])
            if isinstance(node, ast.ImportFrom) and node.module in MODULE
            for alias in node.names
        }
        self.everywhere = self._named | self._of_self(None)
        """What names mean in the whole program: the classes, and what `self.x` is outside of all classes."""

    def inside(self, function: ast.FunctionDef | ast.AsyncFunctionDef, outer: _Names) -> _Names:
        """Return what the names from outside, and `self`, mean in a function."""
        names = _without(outer, function.args)
        owner = self._selves.class_of(function)
        if owner is not None:
            names = {name: meant for name, meant in names.items() if not name.startswith(_OF_SELF)}
            names |= self._of_self(owner)
        return names | self._first_parameter(function)

    def _of_self(self, owner: ast.ClassDef | None) -> _Names:
        if owner not in self._known_of_self:
            found = {
                name: [self._given(node, self._named) for node in nodes]
                for name, nodes in self._selves.set_in(owner).items()
            }
            self._known_of_self[owner] = {
                f"{_OF_SELF}{name}": meant
                for name, meant in _certain(found).items()
                if not meant.part or name not in self._selves.set_on_others
            }
        return self._known_of_self[owner]

    def _first_parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> _Names:
        """Return what `self` means in a method of the class that the snippet stands in."""
        owner, arguments = self._placement.owner, [*function.args.posonlyargs, *function.args.args]
        decorators = {last_name(node) for node in function.decorator_list}
        if not isinstance(owner, ast.ClassDef) or function not in owner.body or not arguments:
            return {}
        if "staticmethod" in decorators or owner.name not in self._classes:
            return {}
        return {arguments[0].arg: _Meant(self._classes[owner.name], is_object="classmethod" not in decorators)}

    def bound(self, nodes: Iterable[ast.AST], outer: _Names) -> _Names:
        """Return what names mean in a scope of these nodes: what is bound to a class, and what only to objects."""
        names = dict(outer)
        found: dict[str, list[_Meant | None]] = {}
        for node in nodes:
            for name in bindings(node):
                if name not in self._classes:
                    meant = self._given(node, names)
                    found.setdefault(name, []).append(meant)
                    names |= {name: meant} if meant is not None and meant is not _NOTHING else {}
        for name in self._declared.intersection(found):  # elsewhere it may be bound to something else
            found[name] = [meant for meant in found[name] if meant is None or not meant.part]
        return {name: meant for name, meant in names.items() if name not in found} | _certain(found)

    def offence(self, setting: Setting, names: _Names) -> str | None:
        """Return how what is set is named, where it is the candidate's."""
        if setting.path is not None:
            path = f"{self._path(setting.path, names)}.{setting.name}".rstrip(".")
            whose, _, name = path.rpartition(".")
            root, _, rest = whose.partition(".")
            receiver = self._meant(_read(rest), names) if root in MODULE else None
        else:
            name = setting.name
            receiver = self._meant(setting.receiver, names)
        if name in BEHAVIOUR:
            return name
        if receiver is None or receiver.part:
            return None
        if receiver.is_object:
            kept = name == "__class__" or name in receiver.kept.methods
        elif self._meant(setting.value, names) == _Meant(receiver.kept, part=name):
            kept = False
        else:
            kept = receiver.kept.holds(name, setting.value if self._is_steady(setting.value) else None)
        return f"{receiver.kept.path}.{name}" if kept else None

    def _is_steady(self, value: ast.expr | None) -> bool:
        """Say whether the names in a value mean one thing wherever they stand."""
        names = (node.id for node in walk([value] if value else []) if isinstance(node, ast.Name))
        return all(len(self._sources.get(name, ())) <= (0 if hasattr(builtins, name) else 1) for name in names)

    def is_snippets(self, node: ast.AST) -> bool:
        """Say whether a node stands in the snippet's lines."""
        return is_within(node, self._placement.first_line, self._placement.last_line)

    def _given(self, node: ast.AST, names: _Names) -> _Meant | None:
        if isinstance(node, ast.alias):
            return names.get(self._imported.get(node, ""))
        if isinstance(getattr(node, "ctx", None), ast.Del):
            return _NOTHING
        entered = self._meant(self.settings.entered.get(node), names)
        if entered is not None:
            return entered if entered.is_object and entered.kept.enters_itself else None
        value = self.settings.values.get(node)
        return _NOTHING if _is_none(value) else self._meant(value, names)

    def _meant(self, node: ast.expr | None, names: _Names, left: int = _DEEPEST) -> _Meant | None:
        if not left or node is None:
            return None
        if isinstance(node, ast.Name):
            return names.get(node.id)
        if isinstance(node, ast.NamedExpr):
            return self._meant(node.value, names, left - 1)
        if isinstance(node, ast.Call) and _is_name(node.func, "type") and len(node.args) == 1:
            return _class_of(self._meant(node.args[0], names, left - 1))
        if isinstance(node, ast.IfExp | ast.BoolOp):
            choices = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            choices = choices[-1:] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else choices
            found = [_NOTHING if _is_none(each) else self._meant(each, names, left - 1) for each in choices]
            return _certain({"": found}).get("")
        part = _part(node)
        if part is not None:
            return self._part_of(*part, names, left - 1)
        called = self._meant(node.func, names, left - 1) if isinstance(node, ast.Call) else None
        return _Meant(called.kept, is_object=True) if called is not None and called.is_class else None

    def _part_of(self, value: ast.expr, name: str, names: _Names, left: int) -> _Meant | None:
        if isinstance(value, ast.Name) and value.id in SELF and f"{_OF_SELF}{name}" in names:
            return names[f"{_OF_SELF}{name}"]
        whole = self._meant(value, names, left)
        if whole is None or whole.part:
            return names.get(name) if name in self._classes and is_own(value, self._own) else None
        if name == "__class__":
            return _class_of(whole)
        if name in whole.kept.inner:
            return _Meant(whole.kept.inner[name])
        return _Meant(whole.kept, part=name) if whole.is_class and whole.kept.parts.get(name) else None

    def _path(self, node: ast.expr, names: _Names) -> str:
        """Return the dotted path that an expression writes; what it computes of other things is left empty."""
        parts: list[str] = []
        pending: list[ast.expr] = [node]
        while pending:
            part = pending.pop()
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            elif isinstance(part, ast.JoinedStr):
                pending.extend(reversed(part.values))
            elif isinstance(part, ast.FormattedValue):
                pending.append(part.value)
            elif isinstance(part, ast.Name) and part.id in self.settings.texts:
                pending.append(self.settings.texts[part.id])
            elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                given = part.right.elts if isinstance(part.right, ast.Tuple) else [part.right]
                pending.extend(reversed(_filled(part.left, given)))
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "format":
                pending.extend(reversed(_filled(part.func.value, part.args)))
            elif isinstance(part, ast.BinOp):
                pending.extend((part.right, part.left))
            elif isinstance(part, ast.Attribute) and part.attr in ("__name__", "__qualname__"):
                meant = self._meant(part.value, names)
                parts.append("" if meant is None or meant.part else meant.kept.path)
            elif is_own(part, self._own) or (isinstance(part, ast.Attribute) and part.attr == "__module__"):
                parts.append("__main__")
        return "".join(parts)


def _class_of(meant: _Meant | None) -> _Meant | None:
    return _Meant(meant.kept) if meant is not None and meant.is_object else None


def _part(node: ast.expr) -> tuple[ast.expr, str] | None:
    """Return what is read of what by `x.name`, `x["name"]` and `getattr(x, "name")`."""
    value: ast.expr
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if isinstance(node, ast.Subscript):
        value, name = node.value, node.slice
    elif isinstance(node, ast.Call) and _is_name(node.func, "getattr") and len(node.args) > 1:
        value, name = node.args[:2]
    else:
        return None
    return (value, name.value) if isinstance(name, ast.Constant) and isinstance(name.value, str) else None


def _read(path: str) -> ast.expr | None:
    """Return the expression of a dotted path."""
    first, *rest = path.split(".")
    node: ast.expr = ast.Name(first, ast.Load())
    for name in rest[:_DEEPEST]:
        node = ast.Attribute(node, name, ast.Load())
    return node


def _certain(found: Mapping[str, list[_Meant | None]]) -> dict[str, _Meant]:
    """Return the names that are some class at all, or never anything but objects of one, or one and the same part."""
    certain: dict[str, _Meant] = {}
    for name, all_meant in found.items():
        meant = [each for each in all_meant if each is not None and each is not _NOTHING]
        classes = [each for each in meant if each.is_class]
        is_one = all(each.is_object for each in meant) or all(each == meant[0] for each in all_meant)
        if classes or (meant and None not in all_meant and is_one):
            certain[name] = (classes or meant)[0]
    return certain


def _filled(text: ast.expr, given: Iterable[ast.expr]) -> list[ast.expr]:
    """Return the parts of a text whose `%s` and `{}` are given these."""
    pieces = _GAP.split(text.value) if isinstance(text, ast.Constant) and isinstance(text.value, str) else []
    return [part for pair in zip_longest(map(ast.Constant, pieces), given) for part in pair if part is not None]


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _without(names: _Names, arguments: ast.arguments) -> _Names:
    given = {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
    names = {name: meant for name, meant in names.items() if name not in given}
    return {name: meant for name, meant in names.items() if not (given & SELF and name.startswith(_OF_SELF))}


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
