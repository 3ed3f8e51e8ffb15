"""Plausible arguments for a function's parameters."""

from __future__ import annotations

import ast
import datetime
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agent.llm.heuristic.kinds import BY_ANNOTATION, BY_ATTRIBUTE, BY_CALL, BY_NAME, BY_WORD, IN_QUERY, VALUES
from agent.llm.heuristic.snippets import Function, Parameter
from agent.llm.heuristic.words import query_terms, split_identifier

MAX_ATTEMPTS = 16
"""Argument lists that a test tries before it gives up."""

MAX_VALUES = 8
"""Values tried for one parameter."""

_GUESSES = ("text", "numbers", "int", "dict", "object")
"""Kinds tried where nothing is known of a parameter."""

_WEAK = ("numbers", "pairs", "unknown_object")
"""Kinds that a loop over a parameter, or an attribute of no well-known type, suggests; its name tells more."""

_ON_DISK = frozenset({"path", "file", "folder", "new_path"})
"""Kinds in whose place no whole number may be tried: opened, it would be a descriptor of the process."""

_KNOWN_ATTRIBUTES = frozenset(
    name
    for kind in (str, list, dict, set, bytes, int, float, datetime.datetime, io.TextIOWrapper)
    for name in dir(kind)
)

_NARROWER = {
    ("path", "json"): "json_path",
    ("path", "csv"): "csv_path",
    ("path", "yaml"): "yaml_path",
    ("path", "xml"): "xml_path",
    ("path", "zip"): "zip_path",
    ("path", "image"): "image_path",
    ("text", "json"): "json_text",
    ("text", "date"): "date_text",
    ("text", "hex"): "hex_text",
    ("text", "url"): "url",
    ("text", "html"): "html_text",
    ("text", "bool"): "bool_text",
    ("text", "int"): "number_text",
    ("text", "float"): "number_text",
}
"""A kind is narrowed by a term of the query; the wider one is tried after it."""

_DOC_TYPE = re.compile(
    r"""[:@](?:type|param|parameter)\s+(?P<a>[\w.]+)\s+(?P<b>\w+):      # :param str name:
    | [:@]type\s+(?P<c>\w+):[ \t]*[`~:\w]*?(?P<d>\w+)`?[ \t]*$          # :type name: str
    | ^\s*(?P<e>\w+)\s*\(`?(?P<f>[\w.]+)[^)\n]{0,80}\)\s*:              # name (str): ...
    | ^\s*(?P<g>\w+)\s*:\s*`?(?P<h>[\w.]+)(?:`|,|\s|$)                  # name : str""",
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True)
class ArgumentList:
    """Source of the arguments of one call."""

    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()

    def source(self) -> str:
        """Return a lambda that makes fresh arguments: `lambda: ((1, 'a'), {'key': 2})`."""
        positional = "".join(f"{value}, " for value in self.positional)
        keywords = ", ".join(f"{name!a}: {value}" for name, value in self.keywords)
        return f"lambda: (({positional}), {{{keywords}}})"


def plausible_arguments(function: Function, query: str) -> tuple[ArgumentList, ...]:
    """Return argument lists to try for a function, the best guess first; at least one."""
    hints = query_terms(query)
    facts = _facts(function)
    wanted = function.required
    if not wanted and function.starred:
        return (ArgumentList(), ArgumentList(("1", "2")), ArgumentList(("'abc'",)))
    choices = [_values(parameter, facts.get(parameter.name, ()), hints) for parameter in wanted]
    lists = (_argument_list(wanted, values) for values in _combinations(choices))
    return tuple(islice(dict.fromkeys(lists), MAX_ATTEMPTS))


def _combinations(choices: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Yield one value for each parameter: all of one rank, then all best but one."""
    yield tuple(values[0] for values in choices)
    for rank in range(1, max(map(len, choices), default=1)):
        yield tuple(values[min(rank, len(values) - 1)] for values in choices)
    for rank in range(1, MAX_VALUES):
        for changed, values in enumerate(choices):
            if rank < len(values):
                yield tuple(values[rank] if at == changed else other[0] for at, other in enumerate(choices))


def _argument_list(parameters: Sequence[Parameter], values: Sequence[str]) -> ArgumentList:
    given = tuple(zip(parameters, values, strict=True))
    return ArgumentList(
        tuple(value for parameter, value in given if not parameter.keyword_only),
        tuple((parameter.name, value) for parameter, value in given if parameter.keyword_only),
    )


def _values(parameter: Parameter, known: Sequence[str], hints: Sequence[str]) -> list[str]:
    kinds = _kinds(parameter, known, hints)
    narrowed: dict[str, None] = {}
    for kind in kinds:
        for hint in hints:
            if (kind, hint) in _NARROWER:
                narrowed.setdefault(_NARROWER[kind, hint])
        narrowed.setdefault(kind)
    # The first value of every kind comes before the second of any: kinds differ more than values do.
    firsts = [VALUES[kind][0] for kind in narrowed]
    seconds = [value for kind in narrowed for value in VALUES[kind][1:]]
    return [*firsts, *seconds][:MAX_VALUES]


def _kinds(parameter: Parameter, known: Sequence[str], hints: Sequence[str]) -> list[str]:
    """Return the kinds a parameter may have, the likeliest first."""
    kinds = dict.fromkeys(_annotated(parameter.annotation))
    sure = bool(kinds)
    kinds |= dict.fromkeys(kind for kind in known if kind not in _WEAK)
    kinds |= dict.fromkeys(named_kinds(parameter.name))
    kinds |= dict.fromkeys(kind for kind in known if kind != "unknown_object")
    kinds |= dict.fromkeys(IN_QUERY[hint] for hint in hints if hint in IN_QUERY)
    if not sure:
        kinds |= dict.fromkeys(known)
        kinds |= dict.fromkeys(_GUESSES)
    if _ON_DISK & set(kinds):
        kinds.pop("int", None)
    return list(kinds)


def _annotated(annotation: str | None) -> Iterator[str]:
    if annotation is None:
        return
    names = re.findall(r"[\w.]+", annotation[:200])
    simple = [name.rpartition(".")[2].lower() for name in names]
    inner = simple[1:]
    if simple[:1] and simple[0] in ("list", "sequence", "iterable", "iterator", "collection"):
        if "str" in inner:
            yield "texts"
        elif {"list", "sequence"} & set(inner):
            yield "nested"
        elif "tuple" in inner:
            yield "pairs"
    skipped = {"optional", "union", "none"}
    first = next((name for name in simple if name not in skipped), None)
    if first in BY_ANNOTATION:
        yield BY_ANNOTATION[first]


def named_kinds(name: str) -> Iterator[str]:
    """Yield the kind that a name suggests, if any."""
    bare = name.strip("_").lower()
    for candidate in (name.lower(), bare, f"{bare}_"):
        if candidate in BY_NAME:
            yield BY_NAME[candidate]
            return
    for word in reversed(split_identifier(name)):
        if word in BY_WORD:
            yield BY_WORD[word]
            return


def _facts(function: Function) -> dict[str, list[str]]:
    """Return what body and docstring show of parameters: name to kinds, the surest first."""
    found: dict[str, list[str]] = {parameter.name: [] for parameter in function.parameters}
    for name, kind in (*_uses(function.node), *_documented(function.doc)):
        if name in found and kind not in found[name]:
            found[name].append(kind)
    return found


def _documented(doc: str) -> Iterator[tuple[str, str]]:
    for match in _DOC_TYPE.finditer(doc[:5000]):
        parts = match.groupdict()
        name = parts["b"] or parts["c"] or parts["e"] or parts["g"]
        kind = parts["a"] or parts["d"] or parts["f"] or parts["h"]
        simple = kind.rpartition(".")[2].lower()
        if simple in BY_ANNOTATION:
            yield name, BY_ANNOTATION[simple]


def _uses(node: ast.AST) -> Iterator[tuple[str, str]]:
    loops: list[tuple[str, str]] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            if inner.attr in BY_ATTRIBUTE:
                yield inner.value.id, BY_ATTRIBUTE[inner.attr]
            elif inner.attr not in _KNOWN_ATTRIBUTES:
                yield inner.value.id, "unknown_object"
        elif isinstance(inner, ast.Call):
            yield from _called(inner)
        elif isinstance(inner, ast.For | ast.comprehension) and isinstance(inner.iter, ast.Name):
            pairs = isinstance(inner.target, ast.Tuple) and len(inner.target.elts) == 2
            loops.append((inner.iter.id, "pairs" if pairs else "numbers"))
        elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Name):
            yield from _unpacked(inner.targets, inner.value.id)
    yield from loops


def _called(call: ast.Call) -> Iterator[tuple[str, str]]:
    if isinstance(call.func, ast.Name):
        yield call.func.id, "callable"
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "join" and call.args:
        yield from ((name, "texts") for name in _name_of(call.args[0]))
    if call.args:
        called = BY_CALL.get(_dotted(call.func))
        if called is not None:
            yield from ((name, called) for name in _name_of(call.args[0]))


def _unpacked(targets: Iterable[ast.expr], name: str) -> Iterator[tuple[str, str]]:
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield name, "point" if len(target.elts) == 2 else "tuple"


def _name_of(node: ast.expr) -> tuple[str, ...]:
    return (node.id,) if isinstance(node, ast.Name) else ()


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
