"""Where the snippet stands in the program, and how the tests call it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from agent.llm.heuristic.arguments import plausible_arguments
from agent.llm.heuristic.snippets import Function, Outline

HOLDER = "Holder"
"""Class around a snippet that is a method, unless the snippet calls `super(Name, self)`."""


@dataclass(frozen=True)
class Placing:
    """Lines around the marker. `holder` is the class that holds the snippet, None for a snippet at column 0."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    holder: str | None = None
    stand_ins: tuple[str, ...] = ()

    def marker_line(self, marker: str) -> str:
        """Return the marker with the indentation that the snippet is to have."""
        return marker if self.holder is None else f"    {marker}"


def place(function: Function, read: Outline) -> Placing:
    """Return the lines around a snippet whose tests call this function."""
    if function.owner is not None:
        return Placing((), (_call_of_method(function, read),))
    if function.receiver is None and not function.is_property and not function.name.startswith("test"):
        return Placing((), (f"_given_call = {function.name}",))
    return _held(function, read)


def _held(function: Function, read: Outline) -> Placing:
    holder = _holder_name(read)
    before = [f"class _GivenParent(metaclass=_GivenPermissive):\n{_parent_body(sorted(_names_on_super(read)))}"]
    lines = [f"class {holder}(_GivenParent):"]
    if function.setter_of is not None:
        lines.append(f"    {function.setter_of} = property(lambda self: None)")
    stand_ins = (f"{holder}: the snippet's class; attributes it is not given are objects without contents",)
    return Placing((*before, "\n".join(lines)), (_call_of_held(function, holder),), holder, stand_ins)


def _parent_body(names: list[str]) -> str:
    """Return a class body with these methods; what stands in the parent never hides what the snippet defines."""
    methods = [f"    def {name}(self, *values, **named):\n        return None" for name in ("__init__", *names)]
    return "\n\n".join([*methods, "    def __getattr__(self, name):\n        return _given_attribute(self, name)"])


def _holder_name(read: Outline) -> str:
    """Return the name that `super(Name, self)` gives the class, else a name that the snippet does not use."""
    used: set[str] = set()
    for node in ast.walk(read.tree or ast.Module(body=[], type_ignores=[])):
        if isinstance(node, ast.Call) and _is_super(node.func) and node.args and isinstance(node.args[0], ast.Name):
            name = node.args[0].id
            if name in read.free:
                return name
        if isinstance(node, ast.Name):
            used.add(node.id)
    holder = HOLDER
    while holder in used or holder in read.free:
        holder += "_"
    return holder


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "super"


def _names_on_super(read: Outline) -> set[str]:
    """Return the names of methods that the snippet calls on `super()`, `object`'s own left out."""
    return {
        node.attr
        for node in ast.walk(read.tree or ast.Module(body=[], type_ignores=[]))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and _is_super(node.value.func)
        and not hasattr(object, node.attr)
    }


def _attribute(function: Function, holder: str) -> str:
    """Return the attribute under which a class keeps a function: names with two leading underscores are mangled."""
    if function.name.startswith("__") and not function.name.endswith("__"):
        return f"_{holder.lstrip('_')}{function.name}"
    return function.name


def _call_of_held(function: Function, holder: str) -> str:
    name = _attribute(function, holder)
    if function.setter_of is not None and function.parameters:
        body = f"setattr({holder}(), {function.setter_of!r}, values[0])"
    elif function.is_property:
        body = f"getattr(object.__new__({holder}), {name!r})"
    elif "classmethod" in function.decorators or "staticmethod" in function.decorators or function.receiver is None:
        body = f"getattr({holder}, {name!r})(*values, **named)"
    elif function.receiver == "cls":
        body = f"{holder}.__dict__[{name!r}]({holder}, *values, **named)"
    else:
        body = f"{holder}.__dict__[{name!r}](object.__new__({holder}), *values, **named)"
    return f"def _given_call(*values, **named):\n    return {body}"


def _call_of_method(function: Function, read: Outline) -> str:
    owner = function.owner or ""
    name = _attribute(function, owner)
    maker = next((each for each in read.functions if each.owner == owner and each.name == "__init__"), None)
    made = plausible_arguments(maker, "")[0] if maker is not None else None
    if function.receiver == "cls" or "staticmethod" in function.decorators:
        return f"def _given_call(*values, **named):\n    return getattr({owner}, {name!r})(*values, **named)"
    make = "lambda: ((), {})" if made is None else made.source()
    last = f"getattr(made, {name!r})" + ("" if function.is_property else "(*values, **named)")
    return (
        f"def _given_call(*values, **named):\n    given, options = ({make})()\n"
        f"    made = {owner}(*given, **options)\n    return {last}"
    )
