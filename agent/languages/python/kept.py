"""What must be kept of the snippet's classes: the parts that it gives them, and those that are methods."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.languages.python.insertion import Placement
from agent.languages.python.setting import values
from agent.languages.python.tree import Function, bindings, last_name, same_tree, walk, walk_scope

_LEAVE_A_METHOD = frozenset(
    {
        *("abstractmethod", "asynccontextmanager", "cache", "classmethod", "contextmanager", "final"),
        *("lru_cache", "override", "staticmethod", "wraps"),
    }
)
"""Decorators under which an object's attribute of that name is a method's; under others it may be a property's."""

_TELL_NO_BEHAVIOUR = frozenset(
    {
        *("__abstractmethods__", "__annotations__", "__doc__", "__module__", "__name__", "__qualname__"),
        *("__test__", "__unittest_skip__"),
    }
)
"""Special names that programs set on classes with good reason, to make an abstract one or to leave it to no runner."""

_PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.keyword)
_LITERAL = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context)


@dataclass(frozen=True)
class Kept:
    """What the snippet gives a class: the names in its body with their values, and which of them are methods.

    `whole` says that the class is the snippet's own; of a stand-in, only what the snippet puts into it is kept.
    """

    path: str
    parts: Mapping[str, ast.expr | None]
    methods: frozenset[str]
    inner: Mapping[str, Kept] = field(default_factory=dict)
    whole: bool = True
    data: frozenset[str] = frozenset()
    """What the snippet sets itself in this class and its bases: on objects that is data like any other."""
    enters_itself: bool = False
    """Whether `with` gives the object itself."""

    def holds(self, name: str, value: ast.expr | None) -> bool:
        """Say whether setting a name of the class to this changes it; it may be set back to what the snippet wrote.

        That is a literal, or a call such as `set()` and `defaultdict(list)`, whose names must mean what they meant.
        """
        if name not in self.parts:
            is_special = name.startswith("__") and name.endswith("__")
            return name == "__class__" or (self.whole and is_special and name not in _TELL_NO_BEHAVIOUR)
        was = self.parts[name]
        return value is None or was is None or not _can_be_written_again(was) or not same_tree(was, value)


def kept_classes(placement: Placement) -> Mapping[str, Kept]:
    """Return the classes that the program can name, by these names."""
    owner = placement.owner
    if not isinstance(owner, ast.ClassDef):
        return _classes(placement.statements)
    inside = [node for node in walk([placement.tree]) if isinstance(node, ast.ClassDef) and _is_around(node, owner)]
    kept = _kept(owner.name, placement.statements, whole=False)
    kept = replace(kept, enters_itself=_enters_itself(owner.body))
    for node in sorted(inside, key=lambda node: node.lineno, reverse=True):
        kept = Kept(node.name, {}, frozenset(), {kept.path: kept}, whole=False)
    return {kept.path: kept}


def _is_around(node: ast.ClassDef, inner: ast.ClassDef) -> bool:
    return node.lineno < inner.lineno and (node.end_lineno or 0) >= (inner.end_lineno or 0)


def _classes(statements: Iterable[ast.stmt], within: str = "") -> Mapping[str, Kept]:
    found: dict[str, Kept] = {}
    for node in walk_scope(statements):
        if isinstance(node, ast.ClassDef):
            bases = [found[name] for base in node.bases if (name := last_name(base)) in found]
            found[node.name] = _kept(f"{within}{node.name}", node.body, bases)
    return found


def _kept(path: str, body: Iterable[ast.stmt], bases: Iterable[Kept] = (), *, whole: bool = True) -> Kept:
    body = list(body)
    parts: dict[str, ast.expr | None] = {}
    methods: set[str] = set()
    data: set[str] = set()
    inner: dict[str, Kept] = {}
    bases = list(bases)
    for base in reversed(bases):
        parts |= base.parts
        methods |= base.methods
        data |= base.data
        inner |= base.inner
    nodes = list(walk_scope(body))
    only_told = {node.target for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None}
    own = [(name, node) for node in nodes if node not in only_told for name in bindings(node)]
    times = Counter(name for name, _ in own)
    assignments = values(node for node in nodes if getattr(node, "target", None) not in only_told)
    written = {target.id: value for target, value in assignments.items() if isinstance(target, ast.Name)}
    given = {name: written.get(name) if count == 1 else None for name, count in times.items()}
    parts |= given | {mangled(path, name): value for name, value in given.items()}
    own_data = _set_on_objects(body)
    assigned = {name for name, node in own if not isinstance(node, Function)} | own_data
    defined = [node for _, node in own if isinstance(node, Function)]
    methods -= {name for name, _ in own}
    methods |= {
        node.name for node in defined if all(last_name(part) in _LEAVE_A_METHOD for part in node.decorator_list)
    }
    methods -= assigned
    methods |= {mangled(path, name) for name in methods.intersection(given)}
    data |= own_data | {mangled(path, name) for name in own_data}
    inner |= {mangled(path, name): kept for name, kept in _classes(body, f"{path}.").items()}
    enters = _enters_itself(body) or any(base.enters_itself for base in bases if "__enter__" not in times)
    return Kept(path, parts, frozenset(methods - data), inner, whole, frozenset(data), enters)


def mangled(path: str, name: str) -> str:
    """Return what a name in the body of the class at this path is called outside of it."""
    owner = path.rpartition(".")[2].lstrip("_")
    return f"_{owner}{name}" if owner and name.startswith("__") and not name.endswith("__") else name


def _enters_itself(body: Iterable[ast.stmt]) -> bool:
    entering = [node for node in body if isinstance(node, Function) and node.name in ("__enter__", "__aenter__")]
    ends = [(node, part) for node in entering for part in walk_scope(node.body) if isinstance(part, ast.Return)]
    return bool(ends) and all(
        isinstance(end.value, ast.Name) and end.value.id in {arg.arg for arg in node.args.args[:1]}
        for node, end in ends
    )


def _set_on_objects(body: Iterable[ast.stmt]) -> set[str]:
    """Return the attributes that the snippet itself sets somewhere in here."""
    return {node.attr for node in walk(body) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def _can_be_written_again(node: ast.expr) -> bool:
    parts = list(ast.walk(node))
    return all(isinstance(part, _LITERAL) for part in parts) or (
        isinstance(node, ast.Call) and all(isinstance(part, _LITERAL + _PLAIN) for part in parts)
    )
