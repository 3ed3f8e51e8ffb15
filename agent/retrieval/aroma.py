"""The automatic judge of Neural Code Search: a result is right when it is similar enough to an answer.

Li et al. 2019 (arXiv 1908.09804, "NCS / UNIF score sheet"): Aroma gives a similarity score between a method and the
Stack Overflow answer; above a threshold, 0.25 in their case, it counts as success. For how 0.25 was chosen they refer
to Cambronero et al. 2019 (arXiv 1905.03813). Which of Aroma's scores it is, and with what settings, they do not say.

What follows is Aroma's (Luan et al. 2018, arXiv 1812.01158), its figures as in the authors' published implementation
(facebookresearch/aroma-paper-artifacts, `ConvertJava.java` and `similar.py`). A method's body is a *simplified parse
tree*: a node has as parts its identifiers and literals (*leaves*) and its subtrees, and as label its keywords, with `#`
for each part; a node with a single part and no keyword is that part. Local variables are written `#VAR`. Features F, a
multiset, are of each leaf n, with key k(n):

    token             k(n)
    parents           (k(n), i, L) for the nearest 3 nodes above n that are no block: n is in part i of one labelled L
    siblings          (k(m), k(n)) for the leaf m before it, counted for m and for n
    variable usage    (C(m), C(n)) for the 2 uses m of the same variable before it, counted for m and for n; C is the
                      name of the method or field that is taken of the variable, else (i, L) of the node above it

    similarity(a, b) = |F(a) ∩ F(b)| / |F(a) ∪ F(b)|      (∩ takes the least, ∪ the greatest count of each feature)

Ours: that this score is held against 0.25 (candidates are looked up by another, |F(a) ∩ F(b)| / |F(a)| over sets), and
that 0.25 itself is enough; the best of several answers counts. For Python the tree is made from `ast`: a label is the
kind of the node, its operators and the fields it has, so that brackets and layout play no part; docstrings are left
out; of a snippet that is one function, the body is taken; local is what is bound anywhere in the snippet other than by
`def`, `class` and `import`. For any other language there is no tree: features are tokens (words and literals, keywords
too) and siblings alone, and 0.25 was chosen by nobody for that.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.languages.python.source import Definition, Function, Unparsable, bindings, normalise, parse
from agent.retrieval.searchers.base import Progress
from agent.wording import plural

THRESHOLD = 0.25
PARENTS, USES = 3, 2
_BLOCK = "{}"
_TRANSPARENT = (list, ast.Module, ast.Expr, ast.Name, ast.arg, ast.arguments, ast.alias, ast.withitem, ast.MatchValue)
_NAMING = (ast.Name, ast.arg, ast.ExceptHandler, ast.MatchAs)
_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# comments first, so that what is in them is no token; a string that is not closed ends with its line, a comment never
_TOKENS = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\w+)""", re.DOTALL)

Features = Counter[tuple[Any, ...]]
# From the root to a leaf: of each node the index of the part that comes next, the label, and what it was made from.
_Ancestors = tuple[tuple[int, str, Any], ...]


class _Variable(str):
    """The name of a local variable."""


def extract_features(code: str, language: str) -> Features:
    """Return the features of a snippet, with how often it has each.

    Raises:
        Unparsable: there are none, as of Python that does not parse or is nothing but a docstring.
    """
    try:
        counts = _extract_python_features(code) if language == "python" else _extract_token_features(code)
    except RecursionError:
        raise Unparsable("it is nested too deeply") from None
    if not counts:
        raise Unparsable("it has no names and no literals")
    return counts


def compute_similarity(one: Features, other: Features) -> float:
    """Return the similarity of two snippets by their features, from 0 to 1."""
    shared = sum(min(count, other[key]) for key, count in one.items() if key in other)
    return shared / (one.total() + other.total() - shared)


def _extract_python_features(code: str) -> Features:
    tree = parse(normalise(code))
    nodes = (node for node in ast.walk(tree) if not isinstance(node, Definition | ast.alias))
    local = frozenset(name for node in nodes for name in bindings(node))
    one = tree.body[0] if len(tree.body) == 1 else None
    counts: Features = Counter()
    before: str | None = None
    uses = defaultdict[str, list[str]](list)
    for leaf, ancestors in _iterate_leaves(one.body if isinstance(one, Function) else tree.body, (), local):
        key = "#VAR" if isinstance(leaf, _Variable) else leaf
        counts["token", key] += 1
        above = [(index, label) for index, label, _ in reversed(ancestors) if label != _BLOCK]
        for index, label in above[:PARENTS]:
            counts["parent", key, index, label] += 1
        if isinstance(leaf, _Variable):
            index, label, node = ancestors[-1] if ancestors else (0, "", None)
            use = node.attr if isinstance(node, ast.Attribute) and index == 0 else f"{index} {label}"
            for earlier in uses[leaf][-USES:]:
                counts["use", earlier, use] += 2
            uses[leaf].append(use)
        if before is not None:
            counts["sibling", before, key] += 2
        before = key
    return counts


def _iterate_leaves(part: Any, ancestors: _Ancestors, local: frozenset[str]) -> Iterator[tuple[str, _Ancestors]]:
    if isinstance(part, list):
        parts = [each for each in part if not _is_string_statement(each)]
        label = _BLOCK if part and isinstance(part[0], ast.stmt) else ",".join("#" * len(parts))
    elif isinstance(part, ast.AST) and not isinstance(part, ast.Constant):
        label, parts = _describe_node(part, local)
    else:
        yield repr(part.value) if isinstance(part, ast.Constant) else part, ancestors
        return
    is_part = len(parts) == 1 and isinstance(part, _TRANSPARENT)
    for index, each in enumerate(parts):
        yield from _iterate_leaves(each, ancestors if is_part else (*ancestors, (index, label, part)), local)


def _is_string_statement(statement: Any) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _describe_node(node: ast.AST, local: frozenset[str]) -> tuple[str, list[Any]]:
    """Return the label and the parts of a node: nodes, lists of them, names."""
    label, parts = [type(node).__name__], list[Any]()
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED_FIELDS or value is None or value == []:
            continue
        if isinstance(value, ast.operator | ast.unaryop | ast.boolop | int):
            label.append(str(value) if isinstance(value, int) else type(value).__name__)
        elif name == "ops":
            label += [type(each).__name__ for each in value]
        else:
            # other names, of attributes, arguments and modules, are those of no variable
            is_variable = isinstance(node, _NAMING) and isinstance(value, str) and value in local
            label.append(name)
            parts.append(_Variable(value) if is_variable else value)
    return " ".join(label), parts


def _extract_token_features(code: str) -> Features:
    counts: Features = Counter()
    tokens = [match[1] for match in _TOKENS.finditer(code) if match[1]]
    counts.update(("token", token) for token in tokens)
    for pair in pairwise(tokens):
        counts["sibling", *pair] += 2
    return counts


class AromaJudge:
    """Compares codes with the answers of a benchmark's queries: its own, or else the codes labelled relevant."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._features = cache(self._extract)

    def judge(
        self, pooled: Mapping[str, Iterable[str]], progress: Progress = lambda *_: None
    ) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
        """Return the grades, 1 or 0, of these codes by query, and remarks: what was compared, and what could not be.

        Queries without an answer that can be read are not among the grades, nor are codes that cannot be.
        """
        codes, own = self._benchmark.codes, self._benchmark.answers
        grades: dict[str, dict[str, int]] = {}
        unread = 0
        for done, query in enumerate(self._benchmark.queries, 1):
            progress("comparing results with answers", done, len(self._benchmark.queries))
            labelled = self._benchmark.grades.get(query, {}).items()
            texts = [own[query]] if query in own else [codes[code] for code, grade in labelled if grade > 0 and not own]
            if answers := [counts for text in texts if (counts := self._features(text))]:
                results = {code: self._features(codes[code]) for code in pooled.get(query, ())}
                grades[query] = {
                    code: int(max(compute_similarity(answer, result) for answer in answers) >= THRESHOLD)
                    for code, result in results.items()
                    if result
                }
                unread += len(results) - len(grades[query])
        return grades, tuple(self._iterate_notes(sum(map(len, grades.values())), len(grades), unread))

    def _iterate_notes(self, pairs: int, answered: int, unread: int) -> Iterator[str]:
        whose = "the benchmark's answers" if self._benchmark.answers else "codes labelled relevant"
        yield (
            f"judged by Aroma's similarity to {whose}, at least {THRESHOLD} (Neural Code Search): "
            f"{plural(pairs, 'result')}; what no searcher found is not judged, so that recall is of what all found"
        )
        if self._benchmark.language != "python":
            yield f"{self._benchmark.language} is compared by its tokens alone, without Aroma's tree: our own stand-in"
        if left := len(self._benchmark.queries) - answered:
            yield f"left out: {plural(left, 'query', 'queries')} without an answer that can be read"
        if unread:
            yield f"not judged: {plural(unread, 'result')} that cannot be read, as of another version of Python"

    def _extract(self, code: str) -> Features | None:
        with suppress(Unparsable):
            return extract_features(code, self._benchmark.language)
        return None
