"""What can be known of a snippet without running it: its functions, their parameters, the names it lacks."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_CODE = 60_000
"""Characters of code that are parsed; real snippets are far below, and parsing more costs seconds."""

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

_BUILTINS = frozenset(dir(builtins)) - {"WindowsError", "input"} | {
    "__file__",
    "__name__",
    "__doc__",
    "__builtins__",
    "__class__",
}
_TOO_MUCH = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@dataclass(frozen=True)
class Parameter:
    """One parameter; `annotation` and `default` are source text, None where there is none."""

    name: str
    annotation: str | None = None
    default: str | None = None
    keyword_only: bool = False
    positional_only: bool = False

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is None


@dataclass(frozen=True)
class Function:
    """One function. `receiver` is `self` or `cls` where the first parameter is one; `owner` is its class, if any."""

    name: str
    node: AnyFunction
    parameters: tuple[Parameter, ...] = ()
    receiver: str | None = None
    owner: str | None = None
    starred: bool = False
    decorators: tuple[str, ...] = ()
    doc: str = ""

    @property
    def is_property(self) -> bool:
        """Whether reading an attribute calls it."""
        last = {decorator.rpartition(".")[2] for decorator in self.decorators}
        return bool(last & {"property", "cached_property", "lazy_property", "getter"})

    @property
    def setter_of(self) -> str | None:
        """The property that this function sets or deletes, if it is decorated so."""
        for decorator in self.decorators:
            name, _, last = decorator.rpartition(".")
            if last in ("setter", "deleter", "getter") and name.isidentifier():
                return name
        return None

    @property
    def required(self) -> tuple[Parameter, ...]:
        """Parameters that a call must give, receiver left out."""
        return tuple(parameter for parameter in self.parameters if parameter.required)

    @property
    def positional(self) -> tuple[Parameter, ...]:
        """Parameters that a call may give by position, receiver left out."""
        return tuple(parameter for parameter in self.parameters if not parameter.keyword_only)


@dataclass(frozen=True)
class Use:
    """How code uses a name that it does not define."""

    attributes: frozenset[str] = frozenset()
    called: bool = False
    raised: bool = False
    decorates: bool = False


@dataclass(frozen=True)
class Outline:
    """A snippet as far as it was understood; `tree` is None when it does not parse (`problem` says why).

    `fragment` is why it compiles only inside of a function (`return` outside of one, say), None when it is whole.
    """

    code: str
    tree: ast.Module | None = None
    problem: str | None = None
    fragment: str | None = None
    functions: tuple[Function, ...] = ()
    classes: tuple[ast.ClassDef, ...] = ()
    free: dict[str, Use] = field(default_factory=dict)


def outline(code: str) -> Outline:
    """Read a snippet. Never raises, however hostile the code."""
    if len(code) > MAX_CODE:
        return Outline(code, problem="too long to be read by rule")
    code = code.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
            return Outline(
                code,
                tree=tree,
                fragment=_fragment(tree),
                functions=tuple(_functions(tree)),
                classes=tuple(node for node in tree.body if isinstance(node, ast.ClassDef)),
                free=_free_names(code, tree),
            )
    except _TOO_MUCH as error:
        return Outline(code, problem=f"{type(error).__name__}: {str(error)[:200]}")


def _fragment(tree: ast.Module) -> str | None:
    try:
        compile(tree, "<snippet>", "exec", dont_inherit=True)
    except SyntaxError as error:
        if "outside" in error.msg or "not properly in loop" in error.msg:
            return error.msg
        raise
    return None


def _functions(tree: ast.Module) -> Iterator[Function]:
    for node in tree.body:
        if isinstance(node, AnyFunction):
            yield _function(node, None)
        elif isinstance(node, ast.ClassDef):
            yield from (_function(inner, node.name) for inner in node.body if isinstance(inner, AnyFunction))


def _function(node: AnyFunction, owner: str | None) -> Function:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    decorators = tuple(_dotted(decorator) for decorator in node.decorator_list)
    receiver = _receiver(positional, decorators, owner)
    parameters = [
        _parameter(argument, default, positional_only=index < len(arguments.posonlyargs))
        for index, (argument, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    parameters = parameters[1:] if receiver else parameters
    parameters += [
        _parameter(argument, default, keyword_only=True)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    doc = ast.get_docstring(node) or ""
    starred = arguments.vararg is not None
    return Function(node.name, node, tuple(parameters), receiver, owner, starred, decorators, doc)


def _receiver(positional: list[ast.arg], decorators: tuple[str, ...], owner: str | None) -> str | None:
    if not positional or "staticmethod" in decorators:
        return None
    first = positional[0].arg
    if "classmethod" in decorators or (first in ("cls", "klass") and (owner or first == "cls")):
        return "cls"
    return "self" if first == "self" or owner or "property" in decorators else None


def _parameter(
    argument: ast.arg, default: ast.expr | None, *, keyword_only: bool = False, positional_only: bool = False
) -> Parameter:
    annotation = None if argument.annotation is None else ast.unparse(argument.annotation)
    text = None if default is None else ast.unparse(default)
    return Parameter(argument.arg, annotation, text, keyword_only, positional_only)


def _dotted(node: ast.expr) -> str:
    """Return `a.b` for a decorator `@a.b` or `@a.b(...)`."""
    node = node.func if isinstance(node, ast.Call) else node
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([*([node.id] if isinstance(node, ast.Name) else []), *reversed(parts)])


def _free_names(code: str, tree: ast.Module) -> dict[str, Use]:
    names = [name for name in _global_names(code) if name not in _BUILTINS]
    return {name: _use(name, tree) for name in names}


def _global_names(code: str) -> list[str]:
    """Return the global names that are read and never bound, sorted."""
    try:
        module = symtable.symtable(code, "<snippet>", "exec")
    except SyntaxError:  # a fragment, see `Outline.fragment`
        return []
    bound: set[str] = set()
    read: set[str] = set()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            here = table is module
            if (here or symbol.is_declared_global()) and (
                symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            ):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (here or symbol.is_global()):
                read.add(symbol.get_name())
    assigned_before_read = {name for name in bound if not _declared_only(name, module)}
    return sorted(read - assigned_before_read)


def _declared_only(name: str, module: symtable.SymbolTable) -> bool:
    """Say whether a name is bound only inside functions (`global name`): the first call may read it before that."""
    if name not in module.get_identifiers():
        return True
    symbol = module.lookup(name)
    return not (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())


def _use(name: str, tree: ast.Module) -> Use:
    attributes: set[str] = set()
    called = raised = decorates = False

    def means(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and means(node.value):
            attributes.add(node.attr)
        elif isinstance(node, ast.Call):
            called |= means(node.func)
        elif isinstance(node, ast.Raise):
            raised |= means(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            raised |= any(means(each) for each in (node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorates |= any(isinstance(each, ast.Call) and means(each.func) for each in node.decorator_list)
    return Use(frozenset(attributes), called, raised, decorates)


_DEF = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(([^)]{0,2000})", re.MULTILINE)
_DOC = re.compile(r"\"\"\"(.{0,5000}?)\"\"\"|'''(.{0,5000}?)'''", re.DOTALL)
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class CodeText:
    """The words of a snippet by where they stand: names of functions, parameters, docstrings, the rest."""

    names: tuple[str, ...]
    parameters: tuple[str, ...]
    docs: tuple[str, ...]
    body: tuple[str, ...]


def code_text(read: Outline) -> CodeText:
    """Return names, parameter names and docstrings of a snippet; by pattern where it does not parse."""
    if read.functions:
        names: Iterable[str] = (function.name for function in read.functions)
        parameters: Iterable[str] = (p.name for function in read.functions for p in function.parameters)
        docs: Iterable[str] = (function.doc for function in read.functions)
        class_docs = (ast.get_docstring(node) or "" for node in read.classes)
        return CodeText(
            (*names, *(node.name for node in read.classes)), tuple(parameters), (*docs, *class_docs), _body(read.code)
        )
    code = read.code[:MAX_CODE]
    found = _DEF.findall(code)
    parameters = (word for _, listed in found for word in _NAME.findall(listed))
    docs = tuple("".join(match) for match in _DOC.findall(code))[:20]
    return CodeText(tuple(name for name, _ in found), tuple(parameters), docs, _body(code))


def _body(code: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_NAME.findall(_DOC.sub(" ", code))))
