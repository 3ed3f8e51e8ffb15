"""What a generated program must leave to the candidate: one that defines the candidate itself judges itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import Placement
from agent.languages.python.kept import mangled
from agent.languages.python.shadowing import replacements, shadows
from agent.languages.python.tampering import BEHAVIOUR, tampering
from agent.languages.python.tree import Definition, Function, bindings, is_within, walk, walk_scope


def check_candidate_is_kept(placement: Placement) -> None:
    """Refuse programs that define, replace or re-emit what the snippet defines, or change a part of it.

    What a decorator of the snippet reads (`x` of `@x.setter`) must come from the program and is let through.

    Raises:
        MalformedProgram: the program does so; names what and where.
    """
    defined = _defined(placement.statements)
    if isinstance(placement.owner, ast.ClassDef):
        defined |= {mangled(placement.owner.name, name) for name in defined}
    assigned = {
        name
        for node in walk_scope(placement.statements)
        if isinstance(node, ast.Name)
        for name in bindings(node)
        if name not in defined
    }
    for name, line in _offences(placement, defined, assigned):
        number = _template_line(placement, line)
        raise MalformedProgram(
            f"line {number} of the program defines or replaces `{name}`, which the candidate defines: the candidate "
            "must be tested as it is. Remove that, or give yours another name"
        )
    for name, line in tampering(placement):
        number = _template_line(placement, line)
        told = "makes another function or class of what it is set on" if name in BEHAVIOUR else "the candidate defines"
        raise MalformedProgram(
            f"line {number} of the program sets, deletes or patches `{name}`, which {told}: the candidate must be "
            "tested as it is. Leave that out. Where it needs something that cannot be had here, put a stand-in around "
            "it: an argument, an object that it is given, or a function or module that it uses"
        )


def _defined(statements: Iterable[ast.stmt]) -> frozenset[str]:
    definitions = [node for node in statements if isinstance(node, Definition)]
    read = {
        part.id
        for node in definitions
        for decorator in node.decorator_list
        for part in ast.walk(decorator)
        if isinstance(part, ast.Name)
    }
    return frozenset(node.name for node in definitions if node.name not in read)


def _offences(placement: Placement, defined: frozenset[str], assigned: set[str]) -> Iterator[tuple[str, int]]:
    """Yield names and lines; the snippet's own lines never offend."""
    owner = placement.owner
    for node in walk_scope(getattr(owner, "body", [])):
        if not _is_snippets(node, placement):
            line = getattr(node, "lineno", 0)
            yield from ((name, line) for name in bindings(node) if name in defined)
            yield from ((n, line) for n in bindings(node) if n in assigned and line > placement.last_line)
    if isinstance(owner, ast.ClassDef):
        yield from _class_offences(placement, owner, defined)
    else:
        yield from _outside(_hidden(placement, defined), placement)


def _hidden(placement: Placement, defined: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield what functions or the module's namespace put in place of the candidate."""
    if isinstance(placement.owner, ast.Module):
        yield from shadows([placement.tree], defined)
        yield from replacements(placement.tree, defined)
        return
    yield from shadows(getattr(placement.owner, "body", []), defined)
    for function in walk([placement.tree]):  # elsewhere its name may be given to what the owner returns
        if isinstance(function, Function) and function is not placement.owner:
            inner = walk_scope(function.body)
            yield from ((n.name, n.lineno) for n in inner if isinstance(n, Definition) and n.name in defined)


def _class_offences(placement: Placement, owner: ast.ClassDef, defined: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield what replaces a method in a class derived from its own, or the class itself."""
    for node in walk_scope(placement.tree.body):
        if node is not owner and owner.name in bindings(node):
            yield owner.name, getattr(node, "lineno", 0)
    yield from _outside(shadows([placement.tree], {owner.name}), placement)
    yield from _outside(replacements(placement.tree, {owner.name}), placement)
    for node in walk([placement.tree]):
        if isinstance(node, ast.ClassDef) and any(_is_name(base, owner.name) for base in node.bases):
            names = {name for part in walk_scope(node.body) for name in bindings(part)}
            if not _is_snippets(node, placement):
                yield from ((name, node.lineno) for name in defined & names)


def _outside(found: Iterable[tuple[str, int]], placement: Placement) -> Iterator[tuple[str, int]]:
    return ((name, line) for name, line in found if not placement.first_line <= line <= placement.last_line)


def _is_snippets(node: ast.AST, placement: Placement) -> bool:
    return is_within(node, placement.first_line, placement.last_line)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _template_line(placement: Placement, line: int) -> int:
    shift = placement.shift
    length = placement.last_line - placement.first_line + 1
    return line - shift if line < placement.first_line else line - shift - length + 1
