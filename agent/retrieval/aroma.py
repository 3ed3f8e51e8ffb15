"""The automatic judge of Neural Code Search: a result is right when it is similar enough to an answer.

Li et al. 2019 (arXiv 1908.09804, "NCS / UNIF score sheet"): Aroma gives a similarity score between a method and the
Stack Overflow answer, and above a threshold, 0.25 in their case, it counts as success; for how 0.25 was chosen they
refer to Cambronero et al. 2019 (arXiv 1905.03813). Neither gives Aroma's settings there or their judge's code.

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

Ours: that this is the score that is held against 0.25 (the implementation computes another, |F(a) ∩ F(b)| / |F(a)| over
sets, to look candidates up), and that 0.25 itself is enough; the best of several answers counts. For Python the tree is
made from `ast`: a label is the kind of the node, its operators and the fields it has, so that brackets and layout play
no part; docstrings are left out; of a snippet that is one function, the body is taken; local is what is bound anywhere
in the snippet other than by `def`, `class` and `import`. For any other language there is no tree: features are tokens
(words and literals, keywords too) and siblings alone, and 0.25 was chosen by nobody for that.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.languages.python.source import Definition, Function, Unparsable, bindings, normalise, parse
from agent.wording import counted

THRESHOLD = 0.25
PARENTS, USES = 3, 2
_VARIABLE = "#VAR"
_BLOCK = "{}"
_ATTRIBUTE = "Attribute value attr"
_TRANSPARENT = (ast.Module, ast.Expr, ast.Name, ast.arg, ast.arguments, ast.alias, ast.withitem, ast.MatchValue)
_PASSED_OVER = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# comments first, so that what is in them is no token; a string that is not closed ends with its line
_TOKENS = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\w+)""", re.DOTALL)

Features = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Leaf:
    key: str
    variable: str = ""


@dataclass(frozen=True, slots=True)
class _Branch:
    label: str
    parts: tuple[_Leaf | _Branch, ...]


_Tree = _Leaf | _Branch
_Way = tuple[tuple[int, _Branch], ...]
"""From the root to a leaf: each node and the index of its part that comes next."""


def features(code: str, language: str) -> Features:
    """Return the features of a snippet, with how often it has each.

    Raises:
        Unparsable: there are none, as of Python that does not parse or is nothing but a docstring.
    """
    try:
        found = _of_tree(_of_python(code)) if language == "python" else _of_tokens(code)
    except RecursionError:
        raise Unparsable("it is nested too deeply") from None
    if not found:
        raise Unparsable("it has no names and no literals")
    return found


def similarity(one: Features, other: Features) -> float:
    """Return the similarity of two snippets by their features, from 0 to 1."""
    if len(other) < len(one):
        one, other = other, one
    shared = sum(min(count, other[key]) for key, count in one.items() if key in other)
    return shared / (one.total() + other.total() - shared)


def _of_python(code: str) -> _Tree:
    tree = parse(normalise(code))
    nodes = (node for node in ast.walk(tree) if not isinstance(node, Definition | ast.alias))
    local = frozenset(name for node in nodes for name in bindings(node))
    one = tree.body[0] if len(tree.body) == 1 else None
    return _list(one.body if isinstance(one, Function) else tree.body, local)


def _tree(node: ast.AST, local: frozenset[str]) -> _Tree:
    if isinstance(node, ast.Constant):
        return _Leaf(repr(node.value))
    parts = list[_Tree]()
    label = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _PASSED_OVER or value is None or value == []:
            continue
        if isinstance(value, ast.operator | ast.unaryop | ast.boolop):
            label.append(type(value).__name__)
        elif isinstance(value, int):
            label.append(str(value))
        elif name == "ops":
            label += [type(each).__name__ for each in value]
        else:
            label.append(name)
            parts.append(_part(node, value, local))
    if len(parts) == 1 and isinstance(node, _TRANSPARENT):
        return parts[0]
    return _Branch(" ".join(label), tuple(parts))


def _part(node: ast.AST, value: Any, local: frozenset[str]) -> _Tree:
    if isinstance(value, list):
        return _list(value, local)
    if isinstance(value, ast.AST):
        return _tree(value, local)
    # a name that is bound by the node or read there; those of attributes, arguments and modules are no variables
    is_variable = isinstance(node, ast.Name | ast.arg | ast.ExceptHandler | ast.MatchAs) and value in local
    return _Leaf(_VARIABLE, value) if is_variable else _Leaf(str(value))


def _list(values: list[Any], local: frozenset[str]) -> _Tree:
    parts = tuple(
        _tree(each, local) if isinstance(each, ast.AST) else _Leaf(str(each))
        for each in values
        if not (
            isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        )
    )
    if len(parts) == 1:
        return parts[0]
    is_block = bool(values) and isinstance(values[0], ast.stmt)
    return _Branch(_BLOCK if is_block else ",".join("#" * len(parts)), parts)


def _of_tree(tree: _Tree) -> Features:
    found: Features = Counter()
    before: str | None = None
    uses = defaultdict[str, list[str]](list)
    for leaf, way in _leaves(tree, ()):
        found["token", leaf.key] += 1
        above = [(index, node.label) for index, node in reversed(way) if node.label != _BLOCK]
        for index, label in above[:PARENTS]:
            found["parent", leaf.key, index, label] += 1
        if leaf.variable:
            use = _use(way)
            for earlier in uses[leaf.variable][-USES:]:
                found["use", earlier, use] += 2
            uses[leaf.variable].append(use)
        if before is not None:
            found["sibling", before, leaf.key] += 2
        before = leaf.key
    return found


def _leaves(tree: _Tree, way: _Way) -> Iterator[tuple[_Leaf, _Way]]:
    if isinstance(tree, _Leaf):
        yield tree, way
        return
    for index, part in enumerate(tree.parts):
        yield from _leaves(part, (*way, (index, tree)))


def _use(way: _Way) -> str:
    index, node = way[-1] if way else (0, _Branch("", ()))
    last = node.parts[-1] if node.label == _ATTRIBUTE and index == 0 else None
    return last.key if isinstance(last, _Leaf) else f"{index} {node.label}"


def _of_tokens(code: str) -> Features:
    found: Features = Counter()
    tokens = [match[1] for match in _TOKENS.finditer(code) if match[1]]
    found.update(("token", token) for token in tokens)
    for pair in pairwise(tokens):
        found["sibling", *pair] += 2
    return found


@dataclass(frozen=True)
class Judged:
    """What the judge says of results: `grades` (1 or 0) by query and code, and of what it says nothing.

    `unread_answers` are queries without an answer that can be read (none of their results is judged), `unread_results`
    pairs of a query with an answer and a result that cannot be. `notes` say so in words, for whoever reads figures.
    """

    grades: Mapping[str, Mapping[str, int]]
    pairs: int
    unread_answers: int
    unread_results: int
    notes: tuple[str, ...]


class Judge:
    """Compares results with the answers of a benchmark's queries: its own, or else the codes labelled relevant."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark
        self._kept: dict[str, Features | None] = {}

    def similarity(self, query: str, code: str) -> float | None:
        """Return that of a code to the most similar answer of a query; None where it or all answers cannot be read."""
        result = self._of_code(code)
        answers = self.answers(query)
        if result is None or not answers:
            return None
        return max(similarity(answer, result) for answer in answers)

    def answers(self, query: str) -> list[Features]:
        """Return the features of the query's answers that can be read."""
        own = self._benchmark.answers.get(query)
        if own is not None:
            found = [self._features(f"answer {query}", own)]
        else:
            grades = self._benchmark.grades.get(query, {})
            found = [self._of_code(code) for code, grade in grades.items() if grade > 0]
        return [each for each in found if each is not None]

    def judge(self, pooled: Mapping[str, Iterable[str]]) -> Judged:
        """Return the grades of these codes, by query."""
        answered = [query for query in self._benchmark.queries if self.answers(query)]
        unanswered = len(self._benchmark.queries) - len(answered)
        grades: dict[str, dict[str, int]] = {}
        pairs = unread = 0
        for query in answered:
            found = {code: self.similarity(query, code) for code in pooled.get(query, ())}
            grades[query] = {code: int(value >= THRESHOLD) for code, value in found.items() if value is not None}
            pairs += len(grades[query])
            unread += len(found) - len(grades[query])
        return Judged(grades, pairs, unanswered, unread, tuple(self._notes(pairs, unanswered, unread)))

    def _notes(self, pairs: int, unanswered: int, unread: int) -> Iterator[str]:
        whose = "the benchmark's answers" if self._benchmark.answers else "codes labelled relevant"
        yield (
            f"judged by Aroma's similarity to {whose}, at least {THRESHOLD} (Neural Code Search): "
            f"{counted(pairs, 'result')}; what no searcher found is not judged, so that recall is of what all found"
        )
        if self._benchmark.language != "python":
            yield f"{self._benchmark.language} is compared by its tokens alone, without Aroma's tree: our own stand-in"
        if unanswered:
            yield f"{counted(unanswered, 'query', 'queries')} without an answer that can be read: no result is judged"
        if unread:
            yield f"{counted(unread, 'result')} that cannot be read, as of another version of Python: not judged"

    def _of_code(self, code: str) -> Features | None:
        return self._features(f"code {code}", self._benchmark.codes.get(code, ""))

    def _features(self, key: str, code: str) -> Features | None:
        if key not in self._kept:
            try:
                self._kept[key] = features(code, self._benchmark.language)
            except Unparsable:
                self._kept[key] = None
        return self._kept[key]
