"""What a test program must know of a snippet before it is written."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from agent.languages.python import python2
from agent.languages.python.insertion import leading_futures
from agent.languages.python.source import (
    MOST_LISTED,
    Definition,
    Function,
    TooLarge,
    Unparsable,
    bindings,
    fragment_reason,
    last_name,
    list_names,
    names_bound,
    names_used,
    parse,
    roots_imported,
    walk,
    walk_scope,
    yields,
)
from agent.sandbox.dependencies.imports import PYTHON2_MODULES

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__class__", "__path__", "__annotations__"}
_ALWAYS_THERE = frozenset(dir(object)) | {"__dict__"}
_OF_METHODS = frozenset({"property", "classmethod", "setter", "getter", "deleter"})


def examine(code: str) -> tuple[str | None, tuple[str, ...]]:
    """Return why normalised code cannot be tested (None when it can), and advice for the generator.

    Raises:
        TooLarge: it is beyond what is read, which says nothing of whether it can be tested.
    """
    try:
        tree = parse(code)
        fragment = fragment_reason(code)
    except TooLarge:
        raise
    except Unparsable as error:
        return str(error), ()
    if not [node for node in tree.body if node not in leading_futures(tree.body)]:
        return "it holds no statement", ()
    advice = [sentence for give in _ADVICE for sentence in give(tree)]
    if any(line.startswith("\t") for line in code.split("\n")):
        advice.append(
            "It is indented with tabs, which stay: each line of it gets the marker's indentation before them."
        )
    if fragment is not None:
        advice.append(
            f"It compiles only inside of a function or loop ({fragment}): put the marker, indented, into one."
        )
    return None, tuple(advice)


def free_names(tree: ast.Module) -> list[str]:
    """Return the names the code reads and nowhere binds, built-in ones left out, in order of first use."""
    bound = names_bound([tree])
    return [name for name in names_used([tree]) if name not in bound and name not in _KNOWN]


def python2_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield `module.name` for what the code takes from modules that had it in Python 2 only."""
    bound = {name for node in ast.walk(tree) if not isinstance(node, ast.alias) for name in bindings(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in bound:
            module, names = node.value.id, [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module, names = node.module, [alias.name for alias in node.names]
        else:
            continue
        yield from (f"{module}.{name}" for name in names if name in python2.ATTRIBUTES.get(module, ()))


def _about_methods(tree: ast.Module) -> Iterator[str]:
    methods = [node for node in tree.body if isinstance(node, Function) and _is_method(node)]
    if methods:
        names = list_names([node.name for node in methods])
        sentence = f"{names} belongs into a class: put the marker, indented, into the body of a stand-in class."
        if attributes := _attributes_of_receivers(methods):
            sentence += f" The class must have what it uses of `{_receiver(methods[0])}`: {list_names(attributes)}."
        if any(_receiver(node) == "cls" and not node.decorator_list for node in methods):
            sentence += " It takes `cls` without being a classmethod: call it as `Class.name(Class, ...)`."
        yield sentence


def _about_properties(tree: ast.Module) -> Iterator[str]:
    functions = [node for node in tree.body if isinstance(node, Function)]
    for function, decorator in [(node, part) for node in functions for part in node.decorator_list]:
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter", "getter"):
            name = decorator.value.id if isinstance(decorator.value, ast.Name) else "it"
            yield f"It adds to a property: define the property {list_names([name])} in the class above the marker."
            return
        if isinstance(decorator, ast.Name) and "property" in decorator.id.lower():
            yield f"{list_names([function.name])} is a property: read it, do not call it."
            return


def _about_python2(tree: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    if names := [name for name in free_names(tree) if name in python2.NAMES]:
        ways = "; ".join(f"`{python2.NAMES[name]}`" for name in names[:MOST_LISTED])
        yield f"It uses names of Python 2: {list_names(names)}. Provide them above the marker: {ways}."
    if roots := dict.fromkeys(root for node in nodes for root in roots_imported(node) if root in PYTHON2_MODULES):
        now = [f"{root} (now {PYTHON2_MODULES[root]})" for root in roots]
        yield f"It imports modules of Python 2: {list_names(now)}. Put stand-ins into `sys.modules` above the marker."
    if attributes := dict.fromkeys(python2_attributes(tree)):
        yield f"It uses what Python 3 took away: {list_names(attributes)}. Set it on the module above the marker."
    read = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    if methods := dict.fromkeys(name for name in read if name in python2.METHODS):
        yield (
            f"It calls methods of Python 2's dictionaries: {list_names(methods)}. "
            "Give it a `dict` subclass that has them."
        )
    shifts = [node.left for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift)]
    if any(_is_name(left, "print") for left in shifts):
        yield "It prints as Python 2 does (`print >>file, text`), which fails at run time in Python 3."


def _about_names(tree: ast.Module) -> Iterator[str]:
    if names := [name for name in free_names(tree) if name not in python2.NAMES]:
        yield f"It uses names that it does not define: {list_names(names)}. Import or define them in the program."
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    if relative := dict.fromkeys("." * node.level + (node.module or "") for node in imports):
        yield (
            f"It imports from its own package: {list_names(relative)}. Set `__package__` and put stand-ins for "
            "the package into `sys.modules` above the marker."
        )


def _about_running(tree: ast.Module) -> Iterator[str]:
    if names := [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]:
        yield f"{list_names(names)} is asynchronous: await it in an `async def test_...`."
    if names := [node.name for node in tree.body if isinstance(node, Function) and yields(node)]:
        yield f"{list_names(names)} is a generator: nothing runs until the result is iterated."
    if acts_at_load(tree.body) and not any(isinstance(node, Definition) for node in tree.body):
        yield "It does its work when it is loaded, not when called: prepare what it needs above the marker."


_ADVICE = (_about_methods, _about_properties, _about_python2, _about_names, _about_running)


def acts_at_load(statements: Iterable[ast.stmt]) -> bool:
    """Say whether loading the statements does more than define, import and assign."""
    doing = (ast.Call, ast.For, ast.While, ast.With, ast.Raise, ast.Assert)
    plain = [node for node in statements if not isinstance(node, Function)]
    return any(isinstance(node, doing) for node in walk_scope(plain, classes=True))


def _is_method(node: Function) -> bool:
    decorators = {last_name(part) for part in node.decorator_list}
    return _receiver(node) in ("self", "cls") or not decorators.isdisjoint(_OF_METHODS)


def _receiver(node: Function) -> str | None:
    return next((part.arg for part in (*node.args.posonlyargs, *node.args.args)), None)


def _attributes_of_receivers(methods: Iterable[Function]) -> list[str]:
    used: list[str] = []
    given = set(_ALWAYS_THERE)
    for method in methods:
        given.add(method.name)
        changed = [node.target for node in walk(method.body) if isinstance(node, ast.AugAssign)]
        for node in walk(method.body):
            if isinstance(node, ast.Attribute) and _is_name(node.value, _receiver(method)):
                if isinstance(node.ctx, ast.Load) or node in changed:
                    used.append(node.attr)
                else:
                    given.add(node.attr)
    return [name for name in dict.fromkeys(used) if name not in given]


def _is_name(node: ast.expr, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name
