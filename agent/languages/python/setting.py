"""Reads which names of which objects a piece of a program sets or deletes, by assignment or by a call."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.languages.python.tree import bindings, last_name, walk

_ATTRIBUTE_SETTERS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__", "object", "patch", "multiple"})
_ITEM_SETTERS = frozenset({"__setitem__", "__delitem__", "setitem", "delitem", "update", "setdefault", "pop", "dict"})
_MAPPINGS = frozenset({"Counter", "MutableMapping", "OrderedDict", "UserDict", "defaultdict", "dict", "type"})
_TARGETS = ("target", "obj")
_NAMES = ("attribute", "name")
_VALUES = ("new", "value")


@dataclass(frozen=True)
class Setting:
    """What is set: `name` of `receiver`, or where that is None the dotted path that `path` tells.

    `value` is what it is set to, where that is plain; None for what is deleted.
    """

    receiver: ast.expr | None
    name: str
    value: ast.expr | None = None
    path: ast.expr | None = None


class Settings:
    """Finds the settings of one program."""

    def __init__(self, tree: ast.Module) -> None:
        self.values = values(walk([tree]))
        """What is assigned to each single target."""
        self.entered: Mapping[ast.AST, ast.expr] = {
            node.optional_vars: node.context_expr
            for node in walk([tree])
            if isinstance(node, ast.withitem) and node.optional_vars is not None
        }
        """Whose `__enter__` gives each target its value."""
        self.texts = _texts(tree, self.values)
        """The texts of names that never have another value."""
        self._renamed = _renamed(tree)

    def of(self, node: ast.AST) -> Iterator[Setting]:
        """Yield what this node alone sets."""
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield Setting(node.value, node.attr, self.values.get(node))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            receiver = _whose_namespace(node.value)
            if receiver is not None:
                yield from (Setting(receiver, name) for name in _text(node.slice))
        elif isinstance(node, ast.Call):
            how = last_name(node.func)
            how = self._renamed.get(how, how) if isinstance(node.func, ast.Name) else how
            if how in _ATTRIBUTE_SETTERS:
                yield from _attributes(node, how, self.texts)
            elif how in _ITEM_SETTERS and isinstance(node.func, ast.Attribute):
                yield from _items(node, node.func)


def _attributes(call: ast.Call, how: str, texts: Mapping[str, ast.Constant]) -> Iterator[Setting]:
    given: list[ast.expr | None] = [*call.args, None, None, None]
    first, name, value = given[0] or _keyword(call, _TARGETS), given[1], given[2]
    if how.startswith("__") and isinstance(call.func, ast.Attribute) and isinstance(first, ast.Constant):
        first, name, value = call.func.value, first, name  # `C.__setattr__("m", x)`; of `object` it has one more
    if first is None:
        return
    first = texts.get(first.id, first) if isinstance(first, ast.Name) else first
    is_format = isinstance(first, ast.Call) and last_name(first) == "format"
    is_text = is_format or isinstance(first, ast.Constant | ast.JoinedStr | ast.BinOp)
    if how == "multiple":
        names = _keywords(call)
        yield from (Setting(None if is_text else first, *each, path=first if is_text else None) for each in names)
    elif is_text:
        yield Setting(None, "", name or _keyword(call, _VALUES), first)
    elif how != "patch":
        name, value = name or _keyword(call, _NAMES), value or _keyword(call, _VALUES)
        yield from (Setting(first, each, value) for each in _text(name))


def _items(call: ast.Call, func: ast.Attribute) -> Iterator[Setting]:
    # `d.update(vars(c), m=1)` reads its argument, `dict.update(vars(c), m=1)` changes it
    is_bound = func.attr == "update" and len(call.args) < 2 and last_name(func.value) not in _MAPPINGS
    for part in [func.value] if is_bound else [func.value, *call.args[:1]]:
        receiver = _whose_namespace(part)
        if receiver is not None:
            names = [name for argument in call.args for name in _text(argument)]
            given = [name for argument in call.args for name, _ in _entries(argument)]
            names += [*given, *(name for name, _ in _keywords(call))]
            yield from (Setting(receiver, name) for name in names)


def _whose_namespace(node: ast.expr) -> ast.expr | None:
    """Return the object of `vars(x)` and `x.__dict__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars" and node.args:
        return node.args[0]
    return None


def _keywords(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for keyword in call.keywords:
        yield from [(keyword.arg, keyword.value)] if keyword.arg is not None else _entries(keyword.value)


def _keyword(call: ast.Call, names: Iterable[str]) -> ast.expr | None:
    return next((value for name, value in _keywords(call) if name in names), None)


def _entries(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield from ((name, value) for name in _text(key))


def _text(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def values(nodes: Iterable[ast.AST]) -> Mapping[ast.AST, ast.expr]:
    """Return what these nodes assign to each single target; None where they only tell its type."""
    found: dict[ast.AST, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            found.update(pair for target in node.targets for pair in _pairs(target, node.value))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            found[node.target] = node.value or ast.Constant(None)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield single targets and their values: those of `a, b = 1, 2` too, as far as they stand side by side."""
    pending = [(target, value)]
    while pending:
        target, value = pending.pop()
        yield target, value
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            is_plain = not any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
            if is_plain and len(target.elts) == len(value.elts):
                pending.extend(zip(target.elts, value.elts, strict=True))


def _texts(tree: ast.Module, given: Mapping[ast.AST, ast.expr]) -> Mapping[str, ast.Constant]:
    times = Counter(name for node in walk([tree]) for name in bindings(node))
    named = ((node.id, value) for node, value in given.items() if isinstance(node, ast.Name))
    texts = {name: value for name, value in named if isinstance(value, ast.Constant) and isinstance(value.value, str)}
    return {name: value for name, value in texts.items() if times[name] == 1}


def _renamed(tree: ast.Module) -> Mapping[str, str]:
    """Return the names that setters are given: `swap` of `from mock import patch as swap` and `swap = mock.patch`."""
    found: dict[str, str] = {}
    for node in walk([tree]):
        if isinstance(node, ast.ImportFrom):
            found.update({each.asname: each.name for each in node.names if each.asname})
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            found.update({each.id: last_name(node.value) for each in node.targets if isinstance(each, ast.Name)})
    return {name: meant for name, meant in found.items() if meant in _ATTRIBUTE_SETTERS}
