"""Judges search results automatically, in the same way as Neural Code Search.

A result is relevant if it is similar enough to an answer to the query.

Li et al. 2019 (arXiv 1908.09804, "NCS / UNIF score sheet") use Aroma to score the similarity between a method and the
Stack Overflow answer. A score above a threshold (0.25 in the paper) counts as success. For the choice of 0.25, they
cite Cambronero et al. 2019 (arXiv 1905.03813). They do not say which of Aroma's scores they use, or with which
settings.

This module implements Aroma (Luan et al. 2018, arXiv 1812.01158) with the parameters from the authors' published code
(facebookresearch/aroma-paper-artifacts, `ConvertJava.java` and `similar.py`). A method's body becomes a *simplified
parse tree*. The parts of a node are its identifiers and literals (*leaves*) and its subtrees. The label of a node
consists of its keywords and a `#` for each part. A node with a single part and no keyword is replaced by its part. The
key k(n) of a leaf n is its text, or `#VAR` for a local variable. The features F of a snippet form a multiset, to which
each leaf n adds the following features:

    token             k(n)
    parents           (k(n), i, L) for each of the 3 nearest non-block ancestors of n, where L is the label of the
                      ancestor and i is the index of its part that contains n
    siblings          (k(m), k(n)) for the preceding leaf m, counted once for m and once for n
    variable usage    (C(m), C(n)) for each of the 2 preceding uses m of the same variable, counted once for m and once
                      for n, where C is the method or field accessed on the variable, or (i, L) for the parent node if
                      there is none

    similarity(a, b) = |F(a) ∩ F(b)| / |F(a) ∪ F(b)|      (minimum and maximum count of each feature, respectively)

The following choices are ours. A result is relevant if its similarity to at least one answer is 0.25 or more. (To
retrieve candidates, Aroma uses another score, |F(a) ∩ F(b)| / |F(a)| over sets of features.) For Python, the tree is
built with `ast`. A label consists of the type, the operators and the non-empty fields of the node, so brackets and
layout have no effect. Docstrings and other statements that consist only of a string are skipped. If a snippet is a
single function, only its body is used. A variable is local if the snippet binds it anywhere, except with `def`,
`class` or `import`. For other languages, no tree is built. The only features are tokens (words, including keywords, and
literals) and siblings. The threshold of 0.25 has not been validated for these languages.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.languages.python.source import Definition, Function, Unparsable, iterate_bindings, normalise, parse
from agent.text import plural
from agent.types import Progress

THRESHOLD = 0.25
PARENTS, USES = 3, 2
_BLOCK = "{}"
_TRANSPARENT = (list, ast.Module, ast.Expr, ast.Name, ast.arg, ast.arguments, ast.alias, ast.withitem, ast.MatchValue)
_NAMING = (ast.Name, ast.arg, ast.ExceptHandler, ast.MatchAs)
_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# Comments are matched first, so that their content yields no tokens. An unclosed string ends at the end of its line,
# and an unclosed comment ends at the end of the text.
_TOKENS = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\w+)""", re.DOTALL)

Features = Counter[tuple[Any, ...]]
# The path from the root to a leaf. Each entry contains the index of the part that contains the leaf, the label of the
# node, and the AST node.
_Ancestors = tuple[tuple[int, str, Any], ...]


class _Variable(str):
    """The name of a local variable."""


def extract_features(code: str, language: str) -> Features:
    """Extract the features of a snippet, with their counts.

    Raises:
        Unparsable: the snippet has no features, for example because it does not parse or contains only a docstring.
    """
    try:
        counts = _extract_python_features(code) if language == "python" else _extract_token_features(code)
    except RecursionError:
        raise Unparsable("it is nested too deeply") from None
    if not counts:
        raise Unparsable("it contains no names or literals")
    return counts


def compute_similarity(a: Features, b: Features) -> float:
    """Compute the similarity of two snippets from their features. The result is between 0 and 1."""
    intersection = sum(min(count, b[key]) for key, count in a.items() if key in b)
    return intersection / (a.total() + b.total() - intersection)


def _extract_python_features(code: str) -> Features:
    tree = parse(normalise(code))
    nodes = (node for node in ast.walk(tree) if not isinstance(node, Definition | ast.alias))
    local = frozenset(name for node in nodes for name in iterate_bindings(node))
    statement = tree.body[0] if len(tree.body) == 1 else None
    body = statement.body if isinstance(statement, Function) else tree.body
    counts: Features = Counter()
    previous: str | None = None
    uses = defaultdict[str, list[str]](list)
    for leaf, ancestors in _iterate_leaves(body, (), local):
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
        if previous is not None:
            counts["sibling", previous, key] += 2
        previous = key
    return counts


def _iterate_leaves(part: Any, ancestors: _Ancestors, local: frozenset[str]) -> Iterator[tuple[str, _Ancestors]]:
    if isinstance(part, list):
        parts = [item for item in part if not _is_string_statement(item)]
        label = _BLOCK if part and isinstance(part[0], ast.stmt) else ",".join("#" * len(parts))
    elif isinstance(part, ast.AST) and not isinstance(part, ast.Constant):
        label, parts = _describe_node(part, local)
    else:
        yield repr(part.value) if isinstance(part, ast.Constant) else part, ancestors
        return
    is_replaced = len(parts) == 1 and isinstance(part, _TRANSPARENT)
    for index, child in enumerate(parts):
        yield from _iterate_leaves(child, ancestors if is_replaced else (*ancestors, (index, label, part)), local)


def _is_string_statement(statement: Any) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _describe_node(node: ast.AST, local: frozenset[str]) -> tuple[str, list[Any]]:
    """Return the label of a node and its parts. A part is a node, a list of nodes, or a name."""
    label, parts = [type(node).__name__], list[Any]()
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED_FIELDS or value is None or value == []:
            continue
        if isinstance(value, ast.operator | ast.unaryop | ast.boolop | int):
            label.append(str(value) if isinstance(value, int) else type(value).__name__)
        elif name == "ops":
            label += [type(operator).__name__ for operator in value]
        else:
            # names of attributes, keyword arguments and modules are not variables
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
    """Judges snippets by their similarity to the benchmark's answers.

    If the benchmark has no answers, the snippets labelled relevant are used as answers.
    """

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._features = cache(self._extract)

    def judge(
        self, retrieved: Mapping[str, Iterable[str]], progress: Progress = lambda *_: None
    ) -> tuple[dict[str, dict[str, int]], tuple[str, ...]]:
        """Grade each query's retrieved snippets as 1 or 0. Returns grades, keyed by query id, and notes for the user.

        Queries without a parsable answer and snippets that do not parse are skipped.
        """
        codes = self._benchmark.codes
        grades: dict[str, dict[str, int]] = {}
        unparsable = 0
        for done, query in enumerate(self._benchmark.queries, 1):
            progress("comparing results with answers", done, len(self._benchmark.queries))
            if answers := [counts for text in self._get_answers(query) if (counts := self._features(text))]:
                results = {code: self._features(codes[code]) for code in retrieved.get(query, ())}
                grades[query] = {
                    code: int(max(compute_similarity(answer, result) for answer in answers) >= THRESHOLD)
                    for code, result in results.items()
                    if result
                }
                unparsable += len(results) - len(grades[query])
        return grades, tuple(self._iterate_notes(sum(map(len, grades.values())), len(grades), unparsable))

    def _get_answers(self, query: str) -> Sequence[str]:
        if answers := self._benchmark.answers:
            return [answers[query]] if query in answers else []
        grades = self._benchmark.grades.get(query, {})
        return [self._benchmark.codes[code] for code, grade in grades.items() if grade > 0]

    def _iterate_notes(self, pairs: int, answered: int, unparsable: int) -> Iterator[str]:
        reference = "the benchmark's answers" if self._benchmark.answers else "snippets labelled relevant"
        yield (
            f"{plural(pairs, 'result')} judged by Aroma similarity to {reference}, with a threshold of {THRESHOLD} "
            "(as in Neural Code Search). Snippets that no searcher retrieved do not affect recall"
        )
        if self._benchmark.language != "python":
            language = self._benchmark.language
            yield f"{language} code is compared by tokens only, without Aroma's parse tree (our own variant)"
        if skipped := len(self._benchmark.queries) - answered:
            yield f"skipped: {plural(skipped, 'query', 'queries')} without a parsable answer"
        if unparsable:
            results = plural(unparsable, "result")
            yield f"not judged: {results} that cannot be parsed (possibly written for another Python version)"

    def _extract(self, code: str) -> Features | None:
        with suppress(Unparsable):
            return extract_features(code, self._benchmark.language)
        return None
