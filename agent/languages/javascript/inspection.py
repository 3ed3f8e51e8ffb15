"""Find what Node cannot run, advice for the test generator, and names that reach the runner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agent.languages.javascript.tables import BROWSER, BUILT_IN, GLOBAL, JAVASCRIPT, NOT_ERASABLE, REACH_RUNNER
from agent.languages.tree.insertion import Fragment, Placement
from agent.languages.tree.syntax import find_bindings, find_used_names, get_text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_TEXTS = JAVASCRIPT.names | {"property_identifier", "string_fragment", "private_property_identifier"}
_PATH = re.compile(rf"(?:.*\.)?(?:{'|'.join(BUILT_IN)})[.\[]|.*\.constructor\.prototype")
_CHANGES = re.compile(r"Object\.(?:assign|definePropert|setProto)")
MEMBERS = ("method_definition", "pair", "field_definition", "public_field_definition")
_ACCESS = ("member_expression", "subscript_expression")
_BOUNDARIES = JAVASCRIPT.functions | {"class_static_block", "field_definition", "public_field_definition"}


def find_unsupported(nodes: Iterable[Node]) -> str | None:
    """Return the first thing in code that Node cannot run without a build step, or None."""
    for node in (part for root in nodes for part in walk(root, lambda part: part.type != "ambient_declaration")):
        if node.type == "accessibility_modifier" and node.parent is not None and "parameter" in node.parent.type:
            return "a parameter property"
        if node.type == "export_statement" and any(child.type == "=" for child in node.children):
            return "an export assignment"
        if node.type in NOT_ERASABLE and node.child_count > 0:
            return f"`{node.type}`"
    return None


def is_module(nodes: Iterable[Node]) -> bool:
    """Return whether code must be an ECMAScript module: it imports, exports or awaits at the top level."""
    for node in (part for root in nodes for part in walk(root, lambda part: part.type not in _BOUNDARIES)):
        if node.type in ("import_statement", "export_statement", "await_expression"):
            return True
        if node.type == "for_in_statement" and any(child.type == "await" for child in node.children):
            return True
    return False


def find_stray_returns(nodes: Iterable[Node]) -> bool:
    """Return whether code returns outside a function."""
    parts = (part for node in nodes for part in walk(node, lambda part: part.type not in JAVASCRIPT.functions))
    return any(part.type == "return_statement" for part in parts)


def find_members(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the class and object members that code defines."""
    parts = (part for node in nodes for part in walk(node) if part.type in MEMBERS)
    names = (part.child_by_field_name(field) for part in parts for field in ("name", "property", "key"))
    return {get_text(name) for name in names if name is not None}


def is_strict(nodes: Iterable[Node]) -> bool:
    """Return whether code starts with `"use strict"`."""
    first = next((node for node in nodes if node.type not in ("comment", "hash_bang_line")), None)
    return first is not None and get_text(first).rstrip("; ")[1:-1] == "use strict"


def advise(fragment: Fragment) -> Iterator[str]:
    """Iterate over sentences for the test generator."""
    nodes, before = fragment.nodes, fragment.context.before
    parts = [part for node in nodes for part in walk(node)]
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
    used = find_used_names(nodes, JAVASCRIPT)
    if names := [name for name in used if name in BROWSER]:
        yield f"It uses names of browsers: {', '.join(names[:10])}. Define stand-ins on `globalThis` above the marker."
    if names := [name for name in used if name not in BROWSER | GLOBAL]:
        yield f"It uses names that it does not define: {', '.join(names[:10])}. Import or define them in the program."
    if is_module(nodes) and not before:
        yield "It is an ECMAScript module: use `import`, and put the marker at the top level."


def find_introspection(placement: Placement) -> tuple[str, ...]:
    """Return the sorted names through which code can reach the runner, and what the snippet replaces outside itself.

    The result is incomplete: it misses strings built at run time.
    """
    parts = [part for part in walk(placement.root) if part.type in _TEXTS]
    strings = {get_text(part) for part in parts if part.type == "string_fragment"}
    modules = {f"node:{text.removeprefix('node:').partition('/')[0]}" for text in strings}
    reached = REACH_RUNNER & {*map(get_text, parts), *modules}
    if any("/proc" in text for text in strings):
        reached |= {"/proc"}
    return tuple(sorted(reached.union(_iterate_replaced(placement))))


def _iterate_replaced(placement: Placement) -> Iterator[str]:
    """Iterate over built-in objects that the snippet replaces, changes or renames, and functions that it replaces."""
    own = find_bindings(placement.nodes, JAVASCRIPT, nested=True)
    around = find_bindings(placement.root.named_children, JAVASCRIPT)
    functions = {name for name, node in around.items()
                 if (node.child_by_field_name("value") or node).type in JAVASCRIPT.functions}  # fmt: skip
    yield from BUILT_IN.intersection(find_bindings(placement.nodes, JAVASCRIPT))
    for node in (part for root in placement.nodes for part in walk(root)):
        text, parent = get_text(node), node.parent
        if parent is None:
            continue
        is_left = parent.child_by_field_name("left") == node and parent.type != "binary_expression"
        is_target = is_left or _is_changing(parent)
        is_value = node in (parent.child_by_field_name("value"), parent.child_by_field_name("right"))
        if node.type == "identifier" and text not in own:
            is_changed = parent.type == "arguments" and _CHANGES.match(get_text(parent.parent or parent))
            is_renamed = is_value and parent.type in ("variable_declarator", "assignment_expression")
            if (is_target and text in functions) or (text in BUILT_IN and (is_target or is_changed or is_renamed)):
                yield text
        elif node.type in _ACCESS and _PATH.match(text):
            is_object = parent.type in _ACCESS and parent.child_by_field_name("object") == node
            if is_target or (text.endswith(".prototype") and not is_object):
                yield text if len(text) <= 60 else f"{text[:60]}..."


def _is_changing(node: Node) -> bool:
    return node.type == "update_expression" or (node.type == "unary_expression" and node.children[0].type == "delete")
