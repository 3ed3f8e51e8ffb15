"""Finds the functions that a program defines outside of its snippet; the last part of the Python harness.

It is joined to the other parts, and takes what it needs of Python from them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from collections.abc import Iterator
    from typing import Any

    from agent.sandbox.inside.python_guard import CODE, FUNCTION


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
