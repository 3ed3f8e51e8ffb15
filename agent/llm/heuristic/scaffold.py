"""What a snippet needs around it: imports, names of older Python, and declared stand-ins for what it lacks."""

from __future__ import annotations

import ast
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.llm.heuristic.arguments import named_kinds
from agent.llm.heuristic.kinds import VALUES
from agent.llm.heuristic.names import (
    CLASS_ATTRIBUTES,
    MEMBERS,
    MODULES,
    MOVED,
    OLD_MODULES,
    OLD_NAMES,
    SUBMODULES,
    THIRD_PARTY,
)
from agent.llm.heuristic.snippets import Outline, Use
from agent.llm.heuristic.words import query_terms, split_identifier, terms, weight

_TYPING = frozenset(typing.__all__)
_PACKAGE = "given_outer.given_middle.given_package"
"""Package that the snippet is said to be a module of, deep enough for `from ... import`."""

_SWITCHES = ("has_", "is_", "use_", "enable", "debug", "verbose")

CORE_FROM = 0.5
"""Share of the query's telling words that makes a missing helper the core of the answer: it is left undefined."""


@dataclass(frozen=True)
class Scaffold:
    """Lines before the snippet, and what of them stands in for something else."""

    lines: tuple[str, ...]
    stand_ins: tuple[str, ...]


@dataclass(frozen=True)
class _Provided:
    lines: tuple[str, ...]
    stand_in: str | None = None


def scaffold(read: Outline, query: str, *, holder: str | None = None) -> Scaffold:
    """Return what the snippet lacks. `holder` is the class that it will stand in, if any (it mangles names)."""
    lines: list[str] = []
    stand_ins: list[str] = []
    for name, use in read.free.items():
        if name == holder:
            continue
        provided = _provide(_mangled(name, holder), name, use)
        if provided is None:
            asked = _asked_of(name, query) if use.called else 0.0
            if asked >= CORE_FROM:
                continue  # a stand-in may not do what the query asks for
            provided = _stand_in(_mangled(name, holder), name, use, echo=not asked)
        lines += provided.lines
        stand_ins += [] if provided.stand_in is None else [provided.stand_in]
    for imported in _old_imports(read):
        lines += imported.lines
        stand_ins += [] if imported.stand_in is None else [imported.stand_in]
    return Scaffold(tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(stand_ins)))


def _asked_of(name: str, query: str) -> float:
    """Return the share of the query, by weight, that a helper's name covers; generic words do not count."""
    telling = [term for term in query_terms(query) if weight(term) == 1.0]
    covered = set(telling) & set(terms(split_identifier(name)))
    return len(covered) / len(telling) if telling else 0.0


def _mangled(name: str, holder: str | None) -> str:
    """Return the name as a class body reads it: `__x` inside class `Holder` is `_Holder__x`."""
    if holder is None or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{holder.lstrip('_')}{name}"


def _provide(target: str, name: str, use: Use) -> _Provided | None:
    """Return lines that bind `target` to the real thing that the name usually means; None when unknown."""
    bare = name.lstrip("_") or name
    for known in dict.fromkeys((name, bare)):
        attributes = use.attributes
        class_like = CLASS_ATTRIBUTES.get(known, frozenset())
        module = MODULES.get(known) or (known if known in sys.stdlib_module_names or known in THIRD_PARTY else None)
        if attributes and module and not attributes & class_like and not (use.called and known in MEMBERS):
            return _Provided(tuple(_module_lines(target, module, attributes)))
        if known in OLD_NAMES and not (attributes and known in MEMBERS and not use.called):
            line = OLD_NAMES[known]
            return _Provided((line,) if target == known else (line, f"{target} = {known}"), f"{known}: {line}")
        if known in MEMBERS:
            return _Provided((f"from {MEMBERS[known]} import {known} as {target}",))
        if known in _TYPING:
            return _Provided((f"from typing import {known} as {target}",))
        if module is not None and not use.called:
            return _Provided((f"import {module} as {target}",))
    return None


def _module_lines(target: str, module: str, attributes: frozenset[str]) -> Iterator[str]:
    for attribute in sorted(attributes):
        if attribute in SUBMODULES.get(module, ()):
            yield f"import {module}.{attribute}"
    yield f"import {module}" if target == module else f"import {module} as {target}"
    for moved in _moved_members(module, sorted(attributes)):
        yield from moved.lines


def _stand_in(target: str, name: str, use: Use, *, echo: bool) -> _Provided:
    if use.raised and not use.attributes:
        return _Provided((f"class {target}(Exception): pass",), f"{name}: an error class of its own")
    if use.decorates:
        line = f"{target} = lambda *values, **named: values[0] if values and callable(values[0]) else (lambda it: it)"
        return _Provided((line,), f"{name}: a decorator that changes nothing")
    plain = not use.attributes and not use.called
    if plain and name.lstrip("_").lower().startswith(_SWITCHES):
        return _Provided((f"{target} = False",), f"{name}: a switch that is off")
    kind = next(named_kinds(name.lower()), None) if plain and name.isupper() else None
    if kind is not None:
        return _Provided((f"{target} = {VALUES[kind][0]}",), f"{name}: {VALUES[kind][0]}")
    if use.called and name.lstrip("_")[:1].islower() and not use.attributes and echo:
        return _Provided(
            (f"{target} = _StandIn({name!a}, echo=True)",), f"{name}: a function that returns its argument"
        )
    return _Provided((f"{target} = _StandIn({name!a})",), f"{name}: an object without contents")


def _old_imports(read: Outline) -> Iterator[_Provided]:
    """Yield what lets the snippet's own imports of old, moved and sibling modules succeed."""
    if read.tree is None:
        return
    siblings: list[str] = []
    for node in ast.walk(read.tree):
        if isinstance(node, ast.Import):
            yield from _old_modules([alias.name for alias in node.names])
        elif isinstance(node, ast.ImportFrom) and node.level:
            siblings += _sibling_modules(node)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from _old_modules([node.module])
            yield from _moved_members(node.module, [alias.name for alias in node.names])
    if siblings:
        above = _PACKAGE.split(".")
        packages = [".".join(above[: end + 1]) for end in range(len(above))]
        names = ", ".join(ascii(name) for name in dict.fromkeys([*packages, *siblings]))
        shown = ", ".join(name.rpartition(".")[2] for name in dict.fromkeys(siblings))
        yield _Provided(
            (f"__package__ = {_PACKAGE!r}", f"_given_package({names})"),
            f"{shown}: modules of the snippet's package, without contents",
        )


def _sibling_modules(node: ast.ImportFrom) -> list[str]:
    """Return the modules, packages above them included, that a relative import needs."""
    above = _PACKAGE.split(".")
    package = above[: max(1, len(above) - node.level + 1)]
    if not node.module:
        return [".".join([*package, alias.name]) for alias in node.names]
    parts = node.module.split(".")
    return [".".join([*package, *parts[: end + 1]]) for end in range(len(parts))]


def _old_modules(modules: Sequence[str]) -> Iterator[_Provided]:
    for module in modules:
        if module in OLD_MODULES:
            line = f"__import__('sys').modules.setdefault({module!r}, __import__('importlib').import_module(" + (
                f"{OLD_MODULES[module]!r}))"
            )
            yield _Provided((line,), f"{module}: {OLD_MODULES[module]}")


def _moved_members(module: str, names: Sequence[str]) -> Iterator[_Provided]:
    for name in names:
        replacement = MOVED.get(module, {}).get(name)
        if replacement is not None:
            yield _Provided(
                (f"_given_moved({module!r}, {name!r}, lambda: {replacement})",), f"{module}.{name}: {replacement}"
            )
