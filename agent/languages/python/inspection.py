"""Inspect a snippet before a test program is written for it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from agent.languages.python import python2
from agent.languages.python.insertion import find_leading_futures
from agent.languages.python.source import (
    MOST_LISTED,
    Definition,
    Function,
    find_bound_names,
    find_fragment_reason,
    find_imported_roots,
    find_used_names,
    get_last_name,
    is_generator,
    iterate_bindings,
    list_names,
    parse,
    walk,
    walk_scope,
)
from agent.sandbox.dependencies.imports import PYTHON2_MODULES

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__class__", "__path__", "__annotations__"}
_OBJECT_ATTRIBUTES = frozenset(dir(object)) | {"__dict__"}
_METHOD_DECORATORS = frozenset({"property", "classmethod", "setter", "getter", "deleter"})


def examine(code: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the reason why normalised code cannot be tested (or None), and advice for the test generator.

    Raises:
        Unparsable: the code does not parse.
        TooLarge: the code is too long or too deeply nested to be parsed.
    """
    tree = parse(code)
    fragment = find_fragment_reason(code)
    if not [node for node in tree.body if node not in find_leading_futures(tree.body)]:
        return "it contains no statement", ()
    advice = [sentence for advise in _ADVICE for sentence in advise(tree)]
    if any(line.startswith("\t") for line in code.split("\n")):
        advice.append("It is indented with tabs, which are kept: the marker's indentation is added before them.")
    if fragment is not None:
        advice.append(
            f"It compiles only inside a function or loop ({fragment}): put the marker inside one, with indentation."
        )
    return None, tuple(advice)


def find_free_names(tree: ast.Module) -> list[str]:
    """Return the names that the code reads but never binds, except built-ins, in order of first use."""
    bound = find_bound_names([tree])
    return [name for name in find_used_names([tree]) if name not in bound and name not in _KNOWN]


def find_python2_attributes(tree: ast.Module) -> Iterator[str]:
    """Iterate over attributes (`module.name`) that the code uses and that only Python 2 has."""
    bound = {name for node in ast.walk(tree) if not isinstance(node, ast.alias) for name in iterate_bindings(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in bound:
            module, names = node.value.id, [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module, names = node.module, [alias.name for alias in node.names]
        else:
            continue
        yield from (f"{module}.{name}" for name in names if name in python2.ATTRIBUTES.get(module, ()))


def _advise_on_methods(tree: ast.Module) -> Iterator[str]:
    methods = [node for node in tree.body if isinstance(node, Function) and _is_method(node)]
    if methods:
        names = list_names([node.name for node in methods])
        sentence = f"{names} must be in a class: put the marker, indented, in the body of a stand-in class."
        if attributes := _find_receiver_attributes(methods):
            receiver = _find_receiver(methods[0])
            sentence += f" The class must have the attributes of `{receiver}` that it uses: {list_names(attributes)}."
        if any(_find_receiver(node) == "cls" and not node.decorator_list for node in methods):
            sentence += " It has a `cls` parameter but is not a classmethod: call it as `Class.name(Class, ...)`."
        yield sentence


def _advise_on_properties(tree: ast.Module) -> Iterator[str]:
    functions = [node for node in tree.body if isinstance(node, Function)]
    for function, decorator in [(node, part) for node in functions for part in node.decorator_list]:
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter", "getter"):
            name = decorator.value.id if isinstance(decorator.value, ast.Name) else "it"
            yield f"It extends a property: define the property {list_names([name])} in the class above the marker."
            return
        if isinstance(decorator, ast.Name) and "property" in decorator.id.lower():
            yield f"{list_names([function.name])} is a property: read it, do not call it."
            return


def _advise_on_python2(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    if names := [name for name in find_free_names(tree) if name in python2.NAMES]:
        definitions = "; ".join(f"`{python2.NAMES[name]}`" for name in names[:MOST_LISTED])
        yield f"It uses names from Python 2: {list_names(names)}. Define them above the marker: {definitions}."
    if roots := dict.fromkeys(root for node in nodes for root in find_imported_roots(node) if root in PYTHON2_MODULES):
        now = [f"{root} (now {PYTHON2_MODULES[root]})" for root in roots]
        yield f"It imports modules from Python 2: {list_names(now)}. Add stand-ins to `sys.modules` above the marker."
    if attributes := dict.fromkeys(find_python2_attributes(tree)):
        yield (
            f"It uses attributes that Python 3 removed: {list_names(attributes)}. "
            "Set them on the module above the marker."
        )
    read = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    if methods := dict.fromkeys(name for name in read if name in python2.METHODS):
        yield (
            f"It calls dictionary methods from Python 2: {list_names(methods)}. "
            "Pass it a `dict` subclass that defines them."
        )
    shifts = [node.left for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift)]
    if any(_is_name(operand, "print") for operand in shifts):
        yield "It uses Python 2's form of printing (`print >>file, text`), which fails at run time in Python 3."


def _advise_on_names(tree: ast.Module) -> Iterator[str]:
    if names := [name for name in find_free_names(tree) if name not in python2.NAMES]:
        yield f"It uses names that it does not define: {list_names(names)}. Import or define them in the program."
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    if relative := dict.fromkeys("." * node.level + (node.module or "") for node in imports):
        yield (
            f"It imports from its own package: {list_names(relative)}. Set `__package__` and add stand-ins for "
            "the package to `sys.modules` above the marker."
        )


def _advise_on_running(tree: ast.Module) -> Iterator[str]:
    if names := [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]:
        yield f"Await the asynchronous {list_names(names)} in an `async def test_...`."
    if names := [node.name for node in tree.body if isinstance(node, Function) and is_generator(node)]:
        yield f"Iterate over the result of {list_names(names)}: a generator does not run until then."
    if does_work_at_load(tree.body) and not any(isinstance(node, Definition) for node in tree.body):
        yield "It runs when it is loaded, not when it is called: set up what it needs above the marker."


_ADVICE = (_advise_on_methods, _advise_on_properties, _advise_on_python2, _advise_on_names, _advise_on_running)


def does_work_at_load(statements: Iterable[ast.stmt]) -> bool:
    """Return whether loading the statements does more than define, import and assign."""
    doing = (ast.Call, ast.For, ast.While, ast.With, ast.Raise, ast.Assert)
    plain = [node for node in statements if not isinstance(node, Function)]
    return any(isinstance(node, doing) for node in walk_scope(plain, classes=True))


def _is_method(node: Function) -> bool:
    decorators = {get_last_name(part) for part in node.decorator_list}
    return _find_receiver(node) in ("self", "cls") or not decorators.isdisjoint(_METHOD_DECORATORS)


def _find_receiver(node: Function) -> str | None:
    return next((part.arg for part in (*node.args.posonlyargs, *node.args.args)), None)


def _find_receiver_attributes(methods: Iterable[Function]) -> list[str]:
    reads: list[str] = []
    defined = set(_OBJECT_ATTRIBUTES)
    for method in methods:
        defined.add(method.name)
        updated = [node.target for node in walk(method.body) if isinstance(node, ast.AugAssign)]
        for node in walk(method.body):
            if isinstance(node, ast.Attribute) and _is_name(node.value, _find_receiver(method)):
                if isinstance(node.ctx, ast.Load) or node in updated:
                    reads.append(node.attr)
                else:
                    defined.add(node.attr)
    return [name for name in dict.fromkeys(reads) if name not in defined]


def _is_name(node: ast.expr, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name
