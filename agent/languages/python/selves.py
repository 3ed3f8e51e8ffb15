"""Finds what the classes of a program set on `self`: a name there is one thing for a class and its derived ones."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping

from agent.languages.python.tree import Function, bindings, last_name, walk_scope

SELF = frozenset({"self", "cls"})

_DEEPEST = 20

_Targets = dict[str, list[ast.AST]]


class Selves:
    """The attributes that each class sets on itself, by the nodes that set them; those outside of classes together."""

    def __init__(self, tree: ast.Module, is_left_out: Callable[[ast.AST], bool]) -> None:
        self.set_on_others: set[str] = set()
        """Names that are set on anything but `self`, which may be an object of such a class too."""
        self._set: dict[ast.ClassDef | None, _Targets] = {None: {}}
        self._methods: dict[ast.AST, ast.ClassDef] = {}
        pending: list[tuple[ast.AST, ast.ClassDef | None]] = [(tree, None)]
        while pending:
            node, owner = pending.pop()
            if isinstance(node, ast.ClassDef):
                owner = node
                self._set[node] = {}
                self._methods |= {part: node for part in walk_scope(node.body) if isinstance(part, Function)}
                body = (part for part in walk_scope(node.body) if not is_left_out(part))
                self._add(owner, ((name, part) for part in body for name in bindings(part)))
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not is_left_out(node):
                if isinstance(node.value, ast.Name) and node.value.id in SELF:
                    self._add(owner, [(node.attr, node)])
                else:
                    self.set_on_others.add(node.attr)
            pending.extend((part, owner) for part in ast.iter_child_nodes(node))
        classes = [node for node in self._set if node is not None]
        self._bases: dict[ast.ClassDef, list[ast.ClassDef]] = {node: [] for node in classes}
        self._derived: dict[ast.ClassDef, list[ast.ClassDef]] = {node: [] for node in classes}
        named: dict[str, list[ast.ClassDef]] = {}
        for node in classes:
            named.setdefault(node.name, []).append(node)
        for node in classes:
            for base in (each for part in node.bases for each in named.get(last_name(part), ())):
                self._bases[node].append(base)
                self._derived[base].append(node)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class whose method a function is."""
        return self._methods.get(function)

    def set_in(self, owner: ast.ClassDef | None) -> Mapping[str, list[ast.AST]]:
        """Return what sets each name on `self` in a class and its bases, or else in those derived from it."""
        if owner is None:
            return self._set[None]
        return self._of(_reached(owner, self._derived)) | self._of([owner, *_reached(owner, self._bases)])

    def _add(self, owner: ast.ClassDef | None, found: Iterable[tuple[str, ast.AST]]) -> None:
        for name, node in found:
            self._set[owner].setdefault(name, []).append(node)

    def _of(self, classes: Iterable[ast.ClassDef]) -> _Targets:
        merged: _Targets = {}
        for each in classes:
            for name, nodes in self._set[each].items():
                merged.setdefault(name, []).extend(nodes)
        return merged


def _reached(node: ast.ClassDef, ways: Mapping[ast.ClassDef, list[ast.ClassDef]]) -> Iterable[ast.ClassDef]:
    found: dict[ast.ClassDef, None] = {}
    latest = [node]
    for _ in range(_DEEPEST):
        latest = [each for near in latest for each in ways[near] if each not in found and each is not node]
        found |= dict.fromkeys(latest)
    return found
