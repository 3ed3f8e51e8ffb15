"""Makes mutants of a Python snippet: stand-ins that cannot be right, and small changes that probably are wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest

from agent.languages.base import MutantKind, Mutation, Snippet
from agent.languages.python.mutations import Edit, edits
from agent.languages.python.source import Function, Unparsable, bindings, fragment_reason, parse, walk_scope, yields
from agent.sandbox.inside import read_source

MAX_CHARACTERS = 20_000
"""Longer snippets have stand-ins alone: every mutant is written out and compiled whole."""

_RAISE = "raise RuntimeError('this stand-in always raises')"
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__init_subclass__", "__post_init__"})
_RECEIVERS = frozenset({"self", "cls", "mcs"})
_SHOWN = 80


def mutants(code: str, limit: int) -> tuple[Mutation, ...]:
    """Return at most `limit` mutants of normalised code: stand-ins, then changes, spread over their kinds.

    Each compiles where the snippet does, no two are equal, and none equals the snippet. Code that does not parse, or is
    nested too deeply to be written out, has none.
    """
    try:
        return tuple(islice(_iterate_distinct(code), limit))
    except (Unparsable, RecursionError, MemoryError):
        return ()


def _iterate_distinct(code: str) -> Iterator[Mutation]:
    tree = parse(code)
    seen = {_dump(ast.unparse(tree)), None}
    for kind, change, text in _write_mutants(tree, mutate=len(code) <= MAX_CHARACTERS):
        if (dump := _dump(text)) not in seen:
            seen.add(dump)
            yield Mutation(kind, change, Snippet(text))


def universal_mocks(code: str) -> tuple[Mutation, ...]:
    """Return mutants of normalised code that bind its names to an object which no use breaks; none without names.

    One says no to whatever is asked of it, and one yes: a program that looks at the result notices one of them.
    """
    try:
        imports, names = _names(parse(code))
        if not names:
            return ()
        (mock,) = (node for node in parse(read_source("python_universal_mock")).body if isinstance(node, ast.ClassDef))
        head = ast.unparse(ast.Module([*imports, mock], []))
        made = []
        for kind, says in ((MutantKind.SAYS_NO, False), (MutantKind.SAYS_YES, True)):
            text = f"{head}\n{mock.name}._says = {says}\n{' = '.join(names)} = {mock.name}()\n"
            fragment_reason(text)
            made.append(Mutation(kind, f"it goes along with everything and says {says} to it", Snippet(text)))
    except (Unparsable, RecursionError, MemoryError):
        return ()
    return tuple(made)


def _names(tree: ast.Module) -> tuple[list[ast.stmt], list[str]]:
    """Return the imports of a snippet, and the other names that it binds where it stands."""
    imports: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in tree.body if node not in imports]
    return imports, [*dict.fromkeys(name for node in walk_scope(others) for name in bindings(node))]


def _dump(text: str) -> str | None:
    """Return what equal code has in common; None for what does not compile."""
    try:
        fragment_reason(text)
        return ast.dump(parse(text))
    except Unparsable:
        return None


def _write_mutants(tree: ast.Module, *, mutate: bool) -> Iterator[tuple[str, str, str]]:
    """Yield kind, change and source of every mutant, those that are surely wrong and the least alike first."""
    if functions := _find_functions(tree):
        for kind, change, body_of in _STAND_INS:
            bodies = [(node, body_of(node)) for node in functions]
            if any(body is not None for _, body in bodies):
                changes: list[tuple[ast.AST, str, object]] = [
                    (node, "body", [*_docstring(node), *(body or _statements("return", node))]) for node, body in bodies
                ]
                with _change(changes):
                    yield kind, change, ast.unparse(tree)
    else:
        imports, names = _names(tree)
        nothing = " = ".join([*names, "None"]) if names else "pass"
        for kind, change, statement in (
            (MutantKind.RETURNS_NOTHING, "it does nothing", nothing),
            (MutantKind.RAISES, "it raises", _RAISE),
        ):
            with _change([(tree, "body", [*imports, *ast.parse(statement).body])]):
                yield kind, change, ast.unparse(tree)
    for edit in _spread(edits(tree)) if mutate else ():
        before, line = _show(edit.about), edit.about.lineno
        with _change([(edit.node, edit.field, edit.value())]):
            after = edit.node if edit.about is edit.node else getattr(edit.node, edit.field)
            yield edit.kind, f"line {line}: {before} became {_show(after)}", ast.unparse(tree)


def _find_functions(tree: ast.Module) -> list[Function]:
    """Return the functions and methods whose bodies do the work: no constructors, unless there is nothing else."""
    functions = [node for node in walk_scope(tree.body, classes=True) if isinstance(node, Function)]
    return [node for node in functions if node.name not in _CONSTRUCTORS] or functions


@contextmanager
def _change(changes: Sequence[tuple[ast.AST, str, object]]) -> Iterator[None]:
    """Change fields of a tree for as long as it takes to write it out: a copy for each would cost more."""
    before = [(node, field, getattr(node, field)) for node, field, _ in changes]
    for node, field, value in changes:
        setattr(node, field, value)
    try:
        yield
    finally:
        for node, field, value in before:
            setattr(node, field, value)


def _docstring(node: Function) -> list[ast.stmt]:
    """Return a function's docstring: whether there is one is not what a test should notice."""
    return node.body[:1] if ast.get_docstring(node, clean=False) is not None else []


def _first_argument(node: Function) -> list[ast.stmt] | None:
    positional = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if positional and positional[0] in _RECEIVERS:
        del positional[0]
    values = positional + [each.arg for each in node.args.kwonlyargs]
    if node.args.vararg is not None:
        values.append(f"next(iter({node.args.vararg.arg}), None)")
    if not values:
        return None
    return ast.parse(f"yield {values[0]}" if yields(node) else f"return {values[0]}").body


def _statements(text: str, node: Function) -> list[ast.stmt]:
    """Return statements for a body; what was a generator stays one, so that it is iterated as before."""
    return ast.parse(f"{text}\nyield" if yields(node) else text).body


_STAND_INS = (
    (MutantKind.RETURNS_NOTHING, "it returns nothing", partial(_statements, "return")),
    (MutantKind.RETURNS_FIRST_ARGUMENT, "it returns its first argument", _first_argument),
    (MutantKind.RAISES, "it raises", partial(_statements, _RAISE)),
)


def _spread(every: list[Edit]) -> Iterator[Edit]:
    """Yield edits of different kinds in turn, so that the first few are as various as can be."""
    by_kind = [[edit for edit in every if edit.kind == kind] for kind in _KINDS]
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


def _show(node: object) -> str:
    text = f"`{ast.unparse(node)}`" if isinstance(node, ast.AST) else "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…`"
