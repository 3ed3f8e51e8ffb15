"""Create mutants of a Python snippet: replacements that cannot be right, and small changes that are probably wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.python.mutations import Edit, find_edits
from agent.languages.python.source import (
    Function,
    Unparsable,
    find_fragment_reason,
    is_generator,
    iterate_bindings,
    normalise,
    parse,
    walk_scope,
)

MAX_CHARACTERS = 20_000
"""Maximum length of a snippet to which small changes are made, in characters.

Longer snippets are only replaced, because all code is compiled for each change.
"""

_RAISE = "raise RuntimeError('this stand-in always raises')"
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__init_subclass__", "__post_init__"})
_RECEIVERS = frozenset({"self", "cls", "mcs"})
_MAX_QUOTED = 80


def create_mutants(code: str, limit: int) -> tuple[Mutation, ...]:
    """Create at most `limit` mutants of normalised code: replacements first, then small changes of alternating kinds.

    Each mutant compiles wherever the snippet does, and all mutants differ from each other and from the snippet. Code
    that cannot be parsed or unparsed has no mutants.
    """
    try:
        return tuple(islice(_iterate_distinct(code), limit))
    except (Unparsable, RecursionError, MemoryError):
        return ()


def reformat(code: str) -> str:
    """Return code as mutants are written: unparsed. See `Language.reformat`."""
    try:
        return ast.unparse(parse(normalise(code)))
    except (RecursionError, MemoryError) as error:
        raise Unparsable("it is too deeply nested") from error


def _iterate_distinct(code: str) -> Iterator[Mutation]:
    tree = parse(code)
    seen = {_dump_tree(ast.unparse(tree)), None}
    for kind, change, text in _write_mutants(tree, mutate=len(code) <= MAX_CHARACTERS):
        if (dump := _dump_tree(text)) not in seen:
            seen.add(dump)
            yield Mutation(kind, change, Snippet(text))


def _list_definitions(tree: ast.Module) -> tuple[list[ast.stmt], list[str]]:
    """Return the imports of a snippet, and the other names that it binds at its top level."""
    imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in tree.body if node not in imports]
    return imports, [*dict.fromkeys(name for node in walk_scope(others) for name in iterate_bindings(node))]


def _dump_tree(text: str) -> str | None:
    """Return a dump of the syntax tree, or None if the code does not compile."""
    try:
        find_fragment_reason(text)
        return ast.dump(parse(text))
    except Unparsable:
        return None


def _write_mutants(tree: ast.Module, *, mutate: bool) -> Iterator[tuple[str, str, str]]:
    """Iterate over the kind, change and source of every mutant. Replacements, which are certainly wrong, come first."""
    if functions := _find_functions(tree):
        for kind, change, body_of in _REPLACEMENTS:
            bodies = [(node, body_of(node)) for node in functions]
            if any(body is not None for _, body in bodies):
                changes: list[tuple[ast.AST, str, object]] = [
                    (node, "body", [*_get_docstring(node), *(body or _parse_body("return", node))])
                    for node, body in bodies
                ]
                with _change_tree(changes):
                    yield kind, change, ast.unparse(tree)
    else:
        imports, names = _list_definitions(tree)
        empty_body = " = ".join([*names, "None"]) if names else "pass"
        for kind, change, statement in (
            (MutantKind.RETURNS_NOTHING, "it does nothing", empty_body),
            (MutantKind.RAISES, "it raises", _RAISE),
        ):
            with _change_tree([(tree, "body", [*imports, *ast.parse(statement).body])]):
                yield kind, change, ast.unparse(tree)
    for edit in _alternate_kinds(find_edits(tree)) if mutate else ():
        before, line = _format_node(edit.about), edit.about.lineno
        with _change_tree([(edit.node, edit.field, edit.value())]):
            after = edit.node if edit.about is edit.node else getattr(edit.node, edit.field)
            yield edit.kind, f"line {line}: {before} became {_format_node(after)}", ast.unparse(tree)


def _find_functions(tree: ast.Module) -> list[Function]:
    """Return the functions and methods. Includes constructors only if there is nothing else."""
    functions = [node for node in walk_scope(tree.body, classes=True) if isinstance(node, Function)]
    return [node for node in functions if node.name not in _CONSTRUCTORS] or functions


@contextmanager
def _change_tree(changes: Sequence[tuple[ast.AST, str, object]]) -> Iterator[None]:
    """Change fields of a tree temporarily, which is cheaper than a copy per mutant."""
    before = [(node, field, getattr(node, field)) for node, field, _ in changes]
    for node, field, value in changes:
        setattr(node, field, value)
    try:
        yield
    finally:
        for node, field, value in before:
            setattr(node, field, value)


def _get_docstring(node: Function) -> list[ast.stmt]:
    """Return a function's docstring, which mutants keep."""
    return node.body[:1] if ast.get_docstring(node, clean=False) is not None else []


def _return_first_argument(node: Function) -> list[ast.stmt] | None:
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    if positional and positional[0] in _RECEIVERS:
        del positional[0]
    values = positional + [argument.arg for argument in node.args.kwonlyargs]
    if node.args.vararg is not None:
        values.append(f"next(iter({node.args.vararg.arg}), None)")
    if not values:
        return None
    return ast.parse(f"yield {values[0]}" if is_generator(node) else f"return {values[0]}").body


def _parse_body(text: str, node: Function) -> list[ast.stmt]:
    """Parse the statements of a new function body. A generator stays a generator, so that it can still be iterated."""
    return ast.parse(f"{text}\nyield" if is_generator(node) else text).body


_REPLACEMENTS = (
    (MutantKind.RETURNS_NOTHING, "it returns nothing", partial(_parse_body, "return")),
    (MutantKind.RETURNS_FIRST_ARGUMENT, "it returns its first argument", _return_first_argument),
    (MutantKind.RAISES, "it raises", partial(_parse_body, _RAISE)),
)


def _alternate_kinds(edits: list[Edit]) -> Iterator[Edit]:
    """Iterate over edits of alternating kinds, so that the first few are diverse."""
    by_kind = [[edit for edit in edits if edit.kind == kind] for kind in _KINDS]
    for turn in zip_longest(*by_kind):
        yield from (edit for edit in turn if edit is not None)


_KINDS = (
    "swapped_comparison",
    "off_by_one",
    "dropped_branch",
    "swapped_arithmetic",
    "dropped_statement",
    "empty_result",
    "swapped_truth",
    "negated_condition",
    "swapped_and_or",
)


def _format_node(node: object) -> str:
    text = f"`{ast.unparse(node)}`" if isinstance(node, ast.AST) else "nothing"
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…`"
