"""What of a program tells something of the code: its asserts, what they read, and what uses the code."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.languages.base import Program
from agent.languages.python.insertion import MAX_PROGRAM, statements_between
from agent.languages.python.source import parse
from agent.languages.python.tree import Definition, Function, bindings, is_within, last_name, names_bound, walk_scope

Scope = tuple[str, ...]
Shape = tuple[str, ...]
_Hole = Callable[[ast.Call], bool]

_CODE = ast.Name("<candidate>", ast.Load())
_DATA = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_CONVERTERS = frozenset({"list", "tuple"})
_NEUTRAL = frozenset({"patch", "object", "dict", "multiple", "redirect_stdout", "redirect_stderr", "open"}) | {
    "TemporaryDirectory",
    "TemporaryFile",
    "NamedTemporaryFile",
    "catch_warnings",
}
_DECORATORS = frozenset({"patch", "object", "dict", "multiple", "asyncio", "usefixtures"})
_IGNORED = frozenset({"ctx", "kind", "type_comment"})


@dataclass(frozen=True, eq=False)
class Block:
    """A compound statement of a scope and which of its parts is meant, in the blocks `outer` to it."""

    node: ast.stmt
    part: str
    outer: Block | None


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement that is not the snippet's, its scope and the innermost block; a definition opens a scope."""

    node: ast.stmt
    scope: Scope
    block: Block | None

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks around it, inmost first."""
        block = self.block
        while block is not None:
            yield block
            block = block.outer


class Told:
    """A program's statements by scope, in order, and how they read when calls of the code are left open."""

    def __init__(self, program: Program) -> None:
        tree = parse(program.source, MAX_PROGRAM)
        owner, snippet = statements_between(tree, program.first_line, program.last_line)
        top = {node.name for node in walk_scope(snippet) if isinstance(node, Definition)}
        classes = {node.name: node for node in snippet if isinstance(node, ast.ClassDef)}
        methods = {part.name for node in classes.values() for part in node.body if isinstance(part, Function)}
        inside = isinstance(owner, ast.ClassDef)
        self._classes = {owner.name} if isinstance(owner, ast.ClassDef) else set(classes)
        self._names = self._classes if inside else top
        self._attributes = top | methods if inside else methods
        self._known = names_bound([tree]) | set(dir(builtins))
        self.scopes: dict[Scope, list[Statement]] = {}
        self.bound: Counter[tuple[Scope, str]] = Counter()
        self.defined: set[str] = set()
        for each in _statements(tree.body):
            if not is_within(each.node, program.first_line, program.last_line):
                self.scopes.setdefault(each.scope, []).append(each)
                self._note_bindings(each)
        every = [each for found in self.scopes.values() for each in found]
        self.read = {name for each in every if asserts(each.node) for name in self._read(each)} - self._names
        cases = {tuple(name.split(".")) for name in program.cases}
        self._helpers = {scope for scope in self.scopes if scope and scope[-1] in self.read and scope not in cases}

    def telling(self) -> Iterator[tuple[Scope, list[Statement]]]:
        """Yield the scopes in which something is told of the code, and what tells it; ways out of them belong to it."""
        marked = {scope: {each for each in found if self._tells(each)} for scope, found in self.scopes.items()}
        around = {scope[:end] for scope, telling in marked.items() if telling for end in range(1, len(scope))}
        for scope, telling in marked.items():
            if telling or scope in around:
                also = (*EXITS, *_DEFINITIONS) if telling else _DEFINITIONS
                yield scope, [each for each in self.scopes[scope] if each in telling or isinstance(each.node, also)]

    def plain(self, statement: Statement) -> Shape:
        """Return the statement and the blocks around it as they are written."""
        return self._shape(statement, lambda _: False)

    def strict(self, statement: Statement) -> Shape:
        """Return the same, with what surely calls the code left open."""
        return self._shape(statement, self._calls_code)

    def lenient(self, statement: Statement) -> Shape:
        """Return the same, with what was meant to call the code left open as well: a name that nothing defines."""
        return self._shape(statement, self._meant(statement))

    def _meant(self, statement: Statement) -> _Hole:
        if _CODE in _parts(_head(statement.node), self._may_call_code):
            return self._may_call_code
        unknown = [part for part in walk_head(statement.node) if isinstance(part, ast.Call) and self._is_unknown(part)]
        return (lambda call: call in unknown) if len(unknown) == 1 else self._may_call_code

    def _is_unknown(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id not in self._known

    def _calls_code(self, call: ast.Call) -> bool:
        func = call.func
        if isinstance(func, ast.Name):
            return func.id in self._names
        if not isinstance(func, ast.Attribute) or func.attr not in self._attributes:
            return False
        base, made = func.value, False
        while isinstance(base, ast.Attribute | ast.Call):
            made = made or isinstance(base, ast.Call)
            base = base.func if isinstance(base, ast.Call) else base.value
        return isinstance(base, ast.Name) and (not made or base.id in self._names)

    def _may_call_code(self, call: ast.Call) -> bool:
        func = call.func
        if last_name(func) in self._names | self._attributes:
            return True
        made = func.value if isinstance(func, ast.Attribute) else None
        return isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in self._classes

    def _shape(self, statement: Statement, hole: _Hole) -> Shape:
        node = statement.node
        found = [type(node).__name__.removeprefix("Async"), *map(_token, _parts(_head(node), hole))]
        for block in statement.blocks():
            if not _is_neutral(block.node):
                found += [block.part, type(block.node).__name__.removeprefix("Async")]
                found += map(_token, _parts(_head(block.node), hole))
        return tuple(found)

    def _tells(self, statement: Statement) -> bool:
        if statement.scope in self._helpers or asserts(statement.node):
            return True
        parts = list(_parts(_head(statement.node), self._may_call_code))
        if _CODE in parts or any(isinstance(part, ast.Name) and part.id in self._names for part in parts):
            return True
        return bool(binds(statement.node) & self.read) and self._is_data(statement)

    def _is_data(self, statement: Statement) -> bool:
        """Say whether it sets a name to what stands there, or by a call that nothing defines."""
        node = statement.node
        if not isinstance(node, _DATA) or isinstance(node.value, ast.Lambda):
            return isinstance(node, _DATA)
        calls = [part for part in walk_head(node) if isinstance(part, ast.Call)]
        return not calls or (len(calls) == 1 and self._is_unknown(calls[0]))

    def _read(self, statement: Statement) -> Iterator[str]:
        heads = [_head(statement.node), *(_head(block.node) for block in statement.blocks())]
        for part in _parts(heads, self._may_call_code):
            if isinstance(part, ast.Name):
                yield part.id

    def _note_bindings(self, statement: Statement) -> None:
        node = statement.node
        if isinstance(node, Definition):
            self.bound[statement.scope[:-1], node.name] += 1
            self.defined.add(node.name)
            return
        self.bound.update((statement.scope, name) for name in binds(node))
        if not isinstance(node, ast.Import | ast.ImportFrom):
            self.defined |= binds(node)


def asserts(node: ast.stmt) -> bool:
    """Say whether a statement is an `assert` or calls `self.assert...` or `raises`, bodies left out."""
    names = (last_name(part) for part in walk_head(node) if isinstance(part, ast.Call))
    return isinstance(node, ast.Assert) or any(name.startswith("assert") or name == "raises" for name in names)


def walk_head(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield what a statement consists of, without the statements in it."""
    return (part for part in _parts(_head(node), lambda _: False) if isinstance(part, ast.AST))


def _statements(body: list[ast.stmt]) -> Iterator[Statement]:
    pending = [Statement(node, _scope((), node), None) for node in reversed(body)]
    while pending:
        each = pending.pop()
        yield each
        for part, inner in reversed(list(_bodies(each.node))):
            block = None if isinstance(each.node, Definition) else Block(each.node, part, each.block)
            pending.extend(Statement(node, _scope(each.scope, node), block) for node in reversed(inner))


def _scope(outer: Scope, node: ast.stmt) -> Scope:
    return (*outer, node.name) if isinstance(node, Definition) else outer


def _bodies(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield field, value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            yield from ((field, part.body) for part in value)


def _head(node: ast.stmt) -> list[object]:
    if isinstance(node, Function):
        return [each for each in node.decorator_list if last_name(each) not in _DECORATORS]
    if isinstance(node, ast.Assert):
        return [node.test]
    fields = (value for name, value in ast.iter_fields(node) if name not in _IGNORED)
    parts = [value for value in fields if not (isinstance(value, list) and value and isinstance(value[0], ast.stmt))]
    # a statement more in the body of `raises` may be the one that raises
    length = [len(node.body)] if isinstance(node, ast.With | ast.AsyncWith) and not _is_neutral(node) else []
    return [*parts, *length]


def _parts(root: object, hole: _Hole) -> Iterator[object]:
    """Yield nodes, lengths of lists and values in order; `_CODE` for each call that is a hole, with its conversions."""
    pending = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            yield len(part)
            pending.extend(reversed(part))
        elif isinstance(part, ast.expr) and _is_hole(part, hole):
            yield _CODE
        else:
            yield part
            if isinstance(part, ast.AST):
                values = [value for name, value in ast.iter_fields(part) if name not in _IGNORED]
                pending.extend(reversed(values))


def _is_hole(node: ast.expr, hole: _Hole) -> bool:
    while True:
        if isinstance(node, ast.Await):
            node = node.value
        elif not isinstance(node, ast.Call):
            return False
        elif hole(node):
            return True
        elif len(node.args) == 1 and not node.keywords and _converts(node.func):
            node = node.args[0]
        else:
            return False


def _converts(func: ast.expr) -> bool:
    if isinstance(func, ast.Name):
        return func.id in _CONVERTERS
    if not isinstance(func, ast.Attribute):
        return False
    of_asyncio = isinstance(func.value, ast.Name) and func.value.id == "asyncio"
    return func.attr == "run_until_complete" or (func.attr == "run" and of_asyncio)


def _token(part: object) -> str:
    return "<candidate>" if part is _CODE else type(part).__name__ if isinstance(part, ast.AST) else repr(part)


def _is_neutral(node: ast.stmt) -> bool:
    """Say whether it is a `with` that prepares and cannot keep an error from being seen."""
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    return all(last_name(item.context_expr) in _NEUTRAL for item in node.items)


def binds(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds, without the statements in it."""
    return {name for part in walk_head(node) for name in bindings(part)}
