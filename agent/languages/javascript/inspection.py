"""Find what Node cannot run, advice for the test generator, and names that reach the runner."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from agent.languages.javascript.insertion import Fragment, Placement
from agent.languages.javascript.syntax import (
    FUNCTIONS,
    NAMES,
    SCOPES,
    find_bindings,
    find_used_names,
    get_name,
    get_text,
    walk,
    walk_outside_functions,
)
from agent.languages.javascript.tables import BROWSER, BUILT_IN, GLOBAL, NOT_ERASABLE, REACH_RUNNER

if TYPE_CHECKING:
    from tree_sitter import Node

_TEXTS = NAMES | {"property_identifier", "string_fragment", "private_property_identifier"}
_TARGETS = {
    "assignment_expression": "left", "augmented_assignment_expression": "left", "for_in_statement": "left",
    "assignment_pattern": "left", "object_assignment_pattern": "left", "update_expression": "argument",
    "pair_pattern": "value", "array_pattern": "", "object_pattern": "", "rest_pattern": "",
}  # fmt: skip
"""Nodes that assign, with the field of what they assign, or an empty text for all children."""
_CALLERS = (".map", ".flatMap", ".filter", ".every", ".some", "Object.create")
"""Functions that call a built-in object or inherit from it."""
MEMBERS = ("method_definition", "pair", "field_definition", "public_field_definition")
_ACCESS = ("member_expression", "subscript_expression")
_BOUNDARIES = FUNCTIONS | {"class_static_block", "field_definition", "public_field_definition"}


def find_unsupported(nodes: Iterable[Node]) -> str | None:
    """Return the first thing in code that Node cannot run without a build step, or None."""
    for node in walk(nodes, lambda part: part.type != "ambient_declaration"):
        if node.type == "accessibility_modifier" and node.parent is not None and "parameter" in node.parent.type:
            return "a parameter property"
        if node.type == "export_statement" and any(child.type == "=" for child in node.children):
            return "an export assignment"
        if node.type in NOT_ERASABLE and node.child_count > 0:
            return f"`{node.type}`"
    return None


def is_module(nodes: Iterable[Node]) -> bool:
    """Return whether code must be an ECMAScript module: it imports, exports or awaits at the top level."""
    for node in walk(nodes, lambda part: part.type not in _BOUNDARIES):
        if node.type in ("import_statement", "export_statement", "await_expression"):
            return True
        if node.type == "for_in_statement" and any(child.type == "await" for child in node.children):
            return True
    return False


def iterate_imports(nodes: Iterable[Node]) -> Iterator[str]:
    """Iterate over the names of imported modules."""
    for node in walk(nodes):
        text: Node | None = None
        if node.type in ("import_statement", "export_statement"):
            is_of_types = any(child.type == "type" for child in node.children)
            text = None if is_of_types else node.child_by_field_name("source")
        elif node.type == "call_expression" and _is_loader(node.children[0]):
            arguments = node.child_by_field_name("arguments")
            text = arguments.named_children[0] if arguments is not None and arguments.named_children else None
        if text is not None and text.type == "string":
            yield get_text(text)[1:-1]


def _is_loader(function: Node) -> bool:
    return function.type == "import" or get_name(function) == "require"


def is_import(binding: Node) -> bool:
    """Return whether a node that binds a name imports a module."""
    value = binding.child_by_field_name("value")
    is_required = value is not None and any(iterate_imports([value]))
    return is_required or binding.type.startswith(("import", "namespace"))


def find_stray_returns(nodes: Iterable[Node]) -> bool:
    """Return whether code returns outside a function."""
    return any(part.type == "return_statement" for part in walk_outside_functions(nodes))


def find_members(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the class and object members that code defines."""
    parts = (part for part in walk(nodes) if part.type in MEMBERS)
    names = (part.child_by_field_name(field) for part in parts for field in ("name", "property", "key"))
    return {get_text(name) for name in names if name is not None}


def is_strict(nodes: Iterable[Node]) -> bool:
    """Return whether code starts with `"use strict"`."""
    first = next((node for node in nodes if node.type not in ("comment", "hash_bang_line")), None)
    return first is not None and get_text(first).rstrip("; ")[1:-1] == "use strict"


def advise(fragment: Fragment) -> Iterator[str]:
    """Iterate over sentences for the test generator."""
    nodes, before = fragment.nodes, fragment.before
    parts = list(walk(nodes))
    types = {part.type for part in parts}
    if before.startswith("class"):
        yield "It is a class member: put the marker on a line of its own in the body of a stand-in class."
        private = {get_text(part) for part in parts if part.type == "private_property_identifier"}
        if names := sorted(private - find_members(nodes)):
            yield f"The class must declare the private names {', '.join(names)}."
    elif before.startswith("({"):
        yield "It is a member of an object: put the marker on a line of its own inside the braces of an object literal."
    elif before:
        yield "It is an expression: put the marker on a line of its own between `const f = (` and `);`."
    if "super" in types:
        yield "It uses `super`: the stand-in class must extend a base class that has these methods."
    if find_stray_returns(nodes):
        yield "It returns outside a function: put the marker inside a function that the test cases call."
    if "hash_bang_line" in types:
        yield "It starts with `#!`: put the marker on the first line of the program."
    used = find_used_names(nodes)
    if names := [name for name in used if name in BROWSER]:
        yield f"It uses names of browsers: {', '.join(names[:10])}. Define stand-ins on `globalThis` above the marker."
    if names := [name for name in used if name not in BROWSER | GLOBAL]:
        yield f"It uses names that it does not define: {', '.join(names[:10])}. Import or define them in the program."
    if any(_is_anonymous_export(node) for node in nodes):
        yield "Its default export has no name: use `(await import(import.meta.url)).default` in an `async` test case."
    if is_module(nodes) and not before:
        yield "It is an ECMAScript module: use `import`, and put the marker at the top level."


def _is_anonymous_export(node: Node) -> bool:
    value = node.child_by_field_name("value") if node.type == "export_statement" else None
    return value is not None and value.type not in NAMES


def find_introspection(placement: Placement) -> tuple[str, ...]:
    """Return the sorted names through which code can reach the runner, and what the snippet replaces outside itself.

    The result is incomplete: it misses strings built at run time.
    """
    parts = [part for part in walk([placement.root]) if part.type in _TEXTS]
    strings = {get_text(part) for part in parts if part.type == "string_fragment"}
    modules = {f"node:{text.removeprefix('node:').partition('/')[0]}" for text in strings}
    reached = REACH_RUNNER & {*map(get_text, parts), *modules}
    if any("/proc" in text for text in strings):
        reached |= {"/proc"}
    return tuple(sorted(reached.union(_iterate_replaced(placement))))


def _iterate_replaced(placement: Placement) -> Iterator[str]:
    """Iterate over built-in objects that the snippet changes or passes on, and functions that it replaces."""
    own, declared = (find_bindings(placement.nodes, nested=nested) for nested in (True, False))
    around = placement.find_surrounding_names()
    functions = {name for name, node in around.items() if _is_definition(node)}
    modules = {name for name, node in (around | own).items() if is_import(node)}
    yield from (BUILT_IN | functions | ({"assert"} - modules)).intersection(declared)
    # `Node.parent` searches from the root, so it is slow in deeply nested code
    roots = ((root, root.parent) for root in placement.nodes)
    for node, parent in chain(roots, ((child, part) for part in walk(placement.nodes) for child in part.children)):
        if parent is None:
            continue
        if node.child_count == 0:
            yield from _find_replaced_name(node, parent, own, functions)
        elif node.type in _ACCESS and not (parent.type in _ACCESS and parent.child_by_field_name("object") == node):
            root, keys = _split_access(node)
            is_of_others = "prototype" in keys and not (root in own and _is_definition(own[root]))
            is_built_in = root in BUILT_IN - own.keys() or (root == "this" and keys[-1] in BUILT_IN)
            is_of_module = root in modules or root.startswith("require(")
            is_changed = (is_of_others or is_built_in or is_of_module) and _is_target(node, parent)
            is_prototype = is_of_others and keys[0] == "prototype" and not _is_plain_use(node, parent)
            is_function = keys[0] == "constructor" and root != "this" and _is_called(node, parent)
            if is_changed or is_prototype or is_function:
                text = get_text(node)
                yield text if len(text) <= 60 else f"{text[:60]}..."


def _find_replaced_name(node: Node, parent: Node, own: Container[str], functions: set[str]) -> Iterator[str]:
    text = get_text(node)
    is_escaped = "\\" in text and node.type in _TEXTS
    is_key = text == "prototype" and parent.type in ("pair_pattern", "object_pattern")
    if is_escaped or is_key:
        yield text
    elif node.type in NAMES and text not in own:
        is_evaluation = text == "Function" and _is_called(node, parent)
        is_passed_on = text in BUILT_IN and not _is_plain_use(node, parent)
        if is_evaluation or is_passed_on or (_is_target(node, parent) and text in GLOBAL | functions):
            yield text


def _is_definition(binding: Node) -> bool:
    value = binding.child_by_field_name("value") or binding
    return value.type in SCOPES


def _split_access(node: Node) -> tuple[str, list[str]]:
    """Return the text of the object that a chain of accesses starts with, and the keys, last one first."""
    keys = []
    while node.type in _ACCESS:
        key = node.child_by_field_name("property") or node.child_by_field_name("index")
        keys.append("" if key is None else get_text(key).strip("'\"`"))
        node = node.child_by_field_name("object") or node.children[0]
    return get_text(node), keys


def _is_target(node: Node, parent: Node) -> bool:
    """Return whether a node is assigned, updated or deleted."""
    if parent.type == "unary_expression":
        return parent.children[0].type == "delete"
    field = _TARGETS.get(parent.type)
    return field == "" or (field is not None and parent.child_by_field_name(field) == node)


def _is_plain_use(node: Node, parent: Node) -> bool:
    """Return whether a built-in object is called, compared, extended or read, and not passed to other code."""
    if parent.type == "arguments" and parent.parent is not None:
        return get_text(parent.parent.children[0]).endswith(_CALLERS)
    return _is_called(node, parent) or parent.type in (
        "binary_expression", "class_heritage", "extends_clause", "unary_expression", *_ACCESS
    )  # fmt: skip


def _is_called(node: Node, parent: Node) -> bool:
    return node in (parent.child_by_field_name("function"), parent.child_by_field_name("constructor"))
