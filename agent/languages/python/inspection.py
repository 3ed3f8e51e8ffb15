"""What a test program must know of a snippet before it is written."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator

from agent.languages.python import python2
from agent.languages.python.insertion import leading_futures
from agent.languages.python.source import (
    Definition,
    Function,
    TooLarge,
    Unparsable,
    bindings,
    fragment_reason,
    names_bound,
    names_used,
    parse,
    roots_imported,
    walk,
    walk_scope,
    yields,
)
from agent.sandbox.dependencies.imports import PYTHON2_MODULES

MAX_NAMES = 10
"""Names that one sentence lists; a longer list helps nobody."""

_KNOWN = frozenset(dir(builtins)) | {"__file__", "__class__", "__path__", "__annotations__"}
_ALWAYS_THERE = frozenset(dir(object)) | {"__dict__"}
_LONGEST_NAME = 60

_Sentence = Callable[[ast.Module], str | None]


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
    advice = [sentence for give in _ADVICE if (sentence := give(tree)) is not None]
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


def _about_python2_names(tree: ast.Module) -> str | None:
    names = [name for name in free_names(tree) if name in python2.NAMES]
    if not names:
        return None
    ways = "; ".join(f"`{python2.NAMES[name]}`" for name in names[:MAX_NAMES])
    return f"It uses names of Python 2: {_listed(names)}. Provide them above the marker: {ways}."


def _about_python2_modules(tree: ast.Module) -> str | None:
    roots = dict.fromkeys(root for node in ast.walk(tree) for root in roots_imported(node) if root in PYTHON2_MODULES)
    if not roots:
        return None
    now = [f"{root} (now {PYTHON2_MODULES[root]})" for root in roots]
    return f"It imports modules of Python 2: {_listed(now)}. Put stand-ins into `sys.modules` above the marker."


def _about_python2_attributes(tree: ast.Module) -> str | None:
    names = list(dict.fromkeys(python2_attributes(tree)))
    if not names:
        return None
    return f"It uses what Python 3 took away: {_listed(names)}. Set it on the module above the marker."


def _about_python2_methods(tree: ast.Module) -> str | None:
    attributes = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    names = list(dict.fromkeys(name for name in attributes if name in python2.METHODS))
    if not names:
        return None
    return f"It calls methods of Python 2's dictionaries: {_listed(names)}. Give it a `dict` subclass that has them."


def _about_print(tree: ast.Module) -> str | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift) and _is_name(node.left, "print"):
            return "It prints as Python 2 does (`print >>file, text`), which fails at run time in Python 3."
    return None


def _about_free_names(tree: ast.Module) -> str | None:
    names = [name for name in free_names(tree) if name not in python2.NAMES]
    if not names:
        return None
    return f"It uses names that it does not define: {_listed(names)}. Import or define them in the program."


def _about_relative_imports(tree: ast.Module) -> str | None:
    names = [
        "." * node.level + (node.module or "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    if not names:
        return None
    return (
        f"It imports from its own package: {_listed(dict.fromkeys(names))}. Set `__package__` and put stand-ins for "
        "the package into `sys.modules` above the marker."
    )


def _about_methods(tree: ast.Module) -> str | None:
    methods = [node for node in tree.body if isinstance(node, Function) and _is_method(node)]
    if not methods:
        return None
    names = _listed([node.name for node in methods])
    sentence = f"{names} belongs into a class: put the marker, indented, into the body of a stand-in class."
    attributes = _attributes_of_receivers(methods)
    if attributes:
        sentence += f" The class must have what it uses of `{_receiver(methods[0])}`: {_listed(attributes)}."
    if any(_receiver(node) == "cls" and not node.decorator_list for node in methods):
        sentence += " It takes `cls` without being a classmethod: call it as `Class.name(Class, ...)`."
    return sentence


def _about_properties(tree: ast.Module) -> str | None:
    for node in tree.body:
        for decorator in node.decorator_list if isinstance(node, Function) else ():
            if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter", "getter"):
                name = decorator.value.id if isinstance(decorator.value, ast.Name) else "it"
                return f"It adds to a property: define the property {_listed([name])} in the class above the marker."
            if isinstance(decorator, ast.Name) and "property" in decorator.id.lower():
                return f"{_listed([node.name])} is a property: read it, do not call it."  # type: ignore[attr-defined]
    return None


def _about_async(tree: ast.Module) -> str | None:
    names = [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return f"{_listed(names)} is asynchronous: await it in an `async def test_...`." if names else None


def _about_generators(tree: ast.Module) -> str | None:
    names = [node.name for node in tree.body if isinstance(node, Function) and yields(node)]
    return f"{_listed(names)} is a generator: nothing runs until the result is iterated." if names else None


def _about_loading(tree: ast.Module) -> str | None:
    if any(isinstance(node, Definition) for node in tree.body) or not acts_at_load(tree.body):
        return None
    return "It does its work when it is loaded, not when called: prepare what it needs above the marker."


_ADVICE: tuple[_Sentence, ...] = (
    _about_methods,
    _about_properties,
    _about_python2_names,
    _about_python2_modules,
    _about_python2_attributes,
    _about_python2_methods,
    _about_print,
    _about_free_names,
    _about_relative_imports,
    _about_async,
    _about_generators,
    _about_loading,
)


def acts_at_load(statements: Iterable[ast.stmt]) -> bool:
    """Say whether loading the statements does more than define, import and assign."""
    doing = (ast.Call, ast.For, ast.While, ast.With, ast.Raise, ast.Assert)
    plain = [node for node in statements if not isinstance(node, Function)]
    return any(isinstance(node, doing) for node in walk_scope(plain, classes=True))


def _is_method(node: Function) -> bool:
    decorators = {part.id for part in node.decorator_list if isinstance(part, ast.Name)}
    attributes = {part.attr for part in node.decorator_list if isinstance(part, ast.Attribute)}
    makes_it_one = decorators & {"property", "classmethod"} or attributes & {"setter", "getter", "deleter"}
    return _receiver(node) in ("self", "cls") or bool(makes_it_one)


def _receiver(node: Function) -> str | None:
    return next((part.arg for part in (*node.args.posonlyargs, *node.args.args)), None)


def _attributes_of_receivers(methods: Iterable[Function]) -> list[str]:
    used: dict[str, None] = {}
    given = set(_ALWAYS_THERE)
    for method in methods:
        receiver = _receiver(method)
        given.add(method.name)
        changed = [node.target for node in walk(method.body) if isinstance(node, ast.AugAssign)]
        for node in walk(method.body):
            if receiver is None or not isinstance(node, ast.Attribute) or not _is_name(node.value, receiver):
                continue
            if isinstance(node.ctx, ast.Load) or node in changed:
                used[node.attr] = None
            else:
                given.add(node.attr)
    return [name for name in used if name not in given]


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _listed(names: Iterable[str]) -> str:
    every = [f"`{name[:_LONGEST_NAME]}`" for name in names]
    rest = len(every) - MAX_NAMES
    return ", ".join(every[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
