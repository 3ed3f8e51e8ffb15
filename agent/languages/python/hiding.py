"""Hides what a snippet's body holds in the scaffolding around it, for a reader who may not know the body."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from agent.languages.python.tree import bindings, names_bound, names_used, walk, walk_scope

_WORKERS = frozenset({"enumerate", "filter", "map", "reversed", "zip"})
_TYPES = frozenset(name for name, value in vars(builtins).items() if isinstance(value, type)) - _WORKERS
_ASKING = frozenset({"callable", "getattr", "hasattr", "isinstance", "issubclass", "iter", "len", "next", "repr"})
_KEEPING = frozenset({"add", "append", "copy", "extend", "get", "items", "keys", "pop", "setattr", "update", "values"})
_PLAIN = frozenset({*keyword.kwlist, "self", "cls", "args", "kwargs"}) | _TYPES | _ASKING | _KEEPING
_PLAIN_NUMBERS = frozenset({"0", "1"})
_DUNDER = re.compile(r"__\w+__")
_WORD = re.compile(r"[^\W\d]\w+|\d+(?:\.\d+)?")  # a single letter may be anything
_COMMENT = re.compile(r"#(.*)")
_BY_KEY = frozenset({"get", "pop", "setdefault", "getattr", "hasattr", "setattr"})


def is_plain(name: str) -> bool:
    """Say whether a name is one of Python's plainest, which say nothing of the code that holds them."""
    return name in _PLAIN or _DUNDER.fullmatch(name) is not None


@dataclass(frozen=True)
class Secrets:
    """What of a snippet's body scaffolding may not show.

    `names` are those of the body, `prose` the words of its strings, docstrings and comments, `constants` its strings
    and numbers (as they are written), each without what may be shown: see `secrets_of`.
    """

    names: frozenset[str]
    prose: frozenset[str]
    constants: frozenset[str]
    shown: frozenset[str]

    def hides(self, constant: object) -> bool:
        """Say whether a constant is the body's, or a text that shares a word with it."""
        text = _text(constant)
        if text is None:
            return _is_number(constant) and repr(constant) in self.constants
        words = set(_WORD.findall(text)) - self.shown
        return text in self.constants or not words.isdisjoint(self.names | self.prose | self.constants)


@dataclass(frozen=True)
class Scaffolding:
    """The names that scaffolding defines.

    `named` are those that its users may have to write: globals, members, parameters that go by keyword; `defined` are
    all that it gives to something of its own, by whatever means; `imported` come from elsewhere.
    """

    named: frozenset[str]
    imported: frozenset[str]
    defined: frozenset[str]


def secrets_of(code: str, body: Iterable[ast.stmt], told: ast.AST, scaffold: Scaffolding) -> Secrets:
    """Return what `scaffold` may not show of normalised code: `body` are its statements, `told` is its signature.

    That is every name, number and string in it, save what the signature tells, Python's plainest words (`self`, `len`,
    0), and what scaffolding has to define because the code uses it: names that the code does not bring along,
    attributes, keywords of calls, what it imports, and the keys by which it looks something up.
    """
    body = list(body)
    keys, lacking = frozenset(_keys(body)), _lacking(body)
    sought = (lacking - vars(builtins).keys()) | frozenset(_members(body)) | _words(keys)
    needed = (lacking & (scaffold.named | scaffold.imported)) | (sought & scaffold.defined)
    shown = needed | keys | _words(keys) | frozenset(_identifiers([told])) | _words(_texts([told]))
    names = frozenset(name for name in _identifiers(body) if not is_plain(name)) - shown
    texts = frozenset(_texts(body))
    prose = _words(texts) | _words(_COMMENT.findall(code))
    constants = (texts | _numbers(body)) - _numbers([told]) - frozenset(_texts([told])) - keys - _PLAIN_NUMBERS - {""}
    return Secrets(names, frozenset(word for word in prose if not is_plain(word)) - shown, constants, shown)


def read_scaffolding(tree: ast.Module, apart: Set[int]) -> Scaffolding:
    """Return the names that a program defines, but for the nodes whose ids are in `apart`."""
    nodes = [node for node in walk([tree]) if id(node) not in apart]
    members = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    keywords = {argument.arg for node in nodes if isinstance(node, ast.arguments) for argument in node.kwonlyargs}
    scope = (node for node in walk_scope(tree.body, classes=True) if id(node) not in apart)
    aliases = (node for node in nodes if isinstance(node, ast.alias))
    given = (node for node in nodes if not isinstance(node, ast.alias))
    return Scaffolding(
        named=_bound(node for node in scope if not isinstance(node, ast.alias)) | members | keywords,
        imported=_bound(aliases),
        defined=_bound(given) | members | frozenset(_named_by_value(nodes)),
    )


def _bound(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(name for node in nodes for name in bindings(node))


def _named_by_value(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what stands for a name in a call or a table: `Row(price=3)`, `{"price": 3}`, `setattr(row, "price", 3)`."""
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            yield from parts if all(part.isidentifier() for part in parts) else ()


def hide(tree: ast.AST, secrets: Secrets, kept: Set[str]) -> None:
    """Put `hidden_1`, … in place of secret names that need not be `kept`, and `...` in place of secret constants."""
    hidden: dict[str, str] = {}
    secret = (secrets.names | secrets.prose) - kept

    def shown(name: str) -> str:
        return hidden.setdefault(name, f"hidden_{len(hidden) + 1}") if name in secret else name

    formatted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if secrets.hides(node.value):
                node.value, node.kind = "..." if id(node) in formatted else ..., None
            continue
        for field, value in ast.iter_fields(node):
            if isinstance(value, str):
                setattr(node, field, ".".join(map(shown, value.split("."))))
            elif isinstance(value, list):
                value[:] = [shown(part) if isinstance(part, str) else part for part in value]


def _identifiers(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in walk(nodes):
        if not isinstance(node, ast.Constant):
            for _, value in ast.iter_fields(node):
                for part in value if isinstance(value, list) else (value,):
                    if isinstance(part, str):
                        yield from part.split(".")


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in walk(nodes):
        text = _text(node.value) if isinstance(node, ast.Constant) else None
        if text is not None:
            yield text


def _text(constant: object) -> str | None:
    if isinstance(constant, bytes):
        return constant.decode("latin-1")
    return constant if isinstance(constant, str) else None


def _numbers(nodes: Iterable[ast.AST]) -> frozenset[str]:
    constants = (node.value for node in walk(nodes) if isinstance(node, ast.Constant))
    return frozenset(repr(value) for value in constants if _is_number(value))


def _is_number(constant: object) -> bool:
    return isinstance(constant, int | float | complex) and not isinstance(constant, bool)


def _words(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in _WORD.findall(text))


def _lacking(body: list[ast.stmt]) -> frozenset[str]:
    """Return the names that the code reads and does not bring along, and those that it takes from its module."""
    taken = {name for node in walk(body) if isinstance(node, ast.Global) for name in node.names}
    return frozenset(names_used(body).keys() - names_bound(body)) | taken


def _members(body: list[ast.stmt]) -> Iterator[str]:
    """Yield attributes, keywords of calls, and what is imported: what objects and modules must have for the code."""
    for node in walk(body):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _identifiers([node])
        elif isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)):
            yield from (given.arg for given in node.keywords if given.arg is not None)


def _keys(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the texts by which something is looked up: `row["price"]`, `row.get("price")`, `"price" in row`."""
    for node in walk(body):
        found: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            found = [node.slice]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = [node.left]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _BY_KEY:
            found = node.args[:2] if isinstance(node.func, ast.Name) else node.args[:1]
        yield from _texts(part for part in found if isinstance(part, ast.Constant))
