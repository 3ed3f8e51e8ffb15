"""The built-in `heuristic` model: deterministic rules instead of a language model, without network access.

It is a baseline to compare models with, not an annotator to trust. It compares words, turns docstring examples into
test cases, and calls functions with arguments guessed from names, annotations and defaults.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import itertools
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import ModelError
from agent.llm.base import Call, Reply
from agent.types import CaseOutcome, Cause, Simulated, Status, TestReport, Usage

VERSION = 4
"""The version of the rules, which is part of the cache key. Increase it whenever a rule or a threshold changes."""

NON_MATCH_BELOW = 0.3
"""Overlap below which the screener answers `non_match`, because hardly any words of the query occur in the code."""
JUDGE_FROM = {"exact": 0.6, "half": 0.45}
"""Minimum overlap (see `compute_overlap`) for label 1 without test evidence, keyed by criterion."""
EXAMPLES_PASSED_FROM = 0.4
"""Minimum overlap (see `compute_overlap`) for label 1 when the docstring's examples pass."""
BROKEN_FROM = 0.8
"""Minimum overlap (see `compute_overlap`) for label 1 when the snippet failed or hung on guessed arguments."""
EXAMPLE, SMOKE = "test_example", "test_smoke"
MAX_CODE = 60_000
"""Maximum length of code to parse, in characters. Parsing longer code takes seconds."""
_MAX_CALLS, _MAX_EXAMPLES, _MAX_TERMS = 8, 6, 40
_HOLDER = "given_holder"

_AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
_NOISE = frozenset(
    re.findall(
        r"\w+",
        """a an and any are as at be by can code do does e example examples for from function g get given how i if in
        into is it its make me method my of on only or program py python should some that the their them there this to
        up use used using want way what when where which with without you your""",
    )
)
# conceptual queries in Table 8 of the CoSQA paper
_WITHOUT_INTENT = re.compile(
    r"\b(?:vs|versus|differences?|advantages?|benefits?|drawbacks?|why|what is|what are)\b", re.IGNORECASE
)
_PYTHON2 = {"unicode": "str", "basestring": "str", "xrange": "range", "long": "int", "unichr": "chr"}
_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "dt": "datetime", "tf": "tensorflow"}
_DISTRIBUTIONS = frozenset({"numpy", "pandas", "scipy", "requests", "yaml", "six", "matplotlib", "networkx"})
_VALUES = {
    "int": ("3", "0"),
    "float": ("2.5", "0.0"),
    "bool": ("True",),
    "str": ("'abc'", "'1'", "''"),
    "list": ("[3, 1, 2]", "['b', 'a']", "[[1, 2], [3, 4]]", "[]"),
    "dict": ("{'a': 1, 'b': 2}",),
    "callable": ("lambda *values: values[0] if values else None",),
    "path": ("__file__", "'/tmp'", "'/tmp/given.txt'"),
    "date": ("__import__('datetime').datetime(2020, 2, 29, 12, 30)",),
    "frame": ("__import__('pandas').DataFrame({'a': [1, 2], 'b': [3, 4]})",),
}
_BY_NAME = {
    "int": "n num number count size length width height index idx i j k x y z start stop end step limit depth year day",
    "str": "s string text str word name line sentence key char prefix suffix pattern sep url msg message value title",
    "list": "l lst list items values elements seq sequence data rows lines words numbers nums array arr iterable",
    "dict": "d dict dictionary mapping params kwargs options config obj json",
    "path": "path file filename fname filepath dir directory folder dirname fp",
    "callable": "f fn func function callback key_func predicate",
    "date": "date datetime dt day timestamp time",
    "frame": "df frame dataframe table",
    "float": "alpha beta ratio scale threshold weight seconds",
}
_BY_WORD = {word: kind for kind, words in reversed(_BY_NAME.items()) for word in words.split()}
_BY_ANNOTATION = {"sequence": "list", "iterable": "list", "mapping": "dict", "dataframe": "frame"}
_HELPERS = """\
def given_first(call, argument_lists):
    problem = None
    for given in argument_lists:
        arguments, keywords = given()
        try:
            return given_settled(call(*arguments, **keywords))
        except Exception as error:
            problem = problem or error
    raise problem


def given_settled(value):
    import inspect
    import itertools
    if inspect.isawaitable(value):
        import asyncio
        async def given_awaited():
            return await value
        return asyncio.run(given_awaited())
    return list(itertools.islice(value, 100)) if inspect.isgenerator(value) else value
"""


class HeuristicModel:
    """Answers each call with the rule for its role. Rules read `call.variables`. Calls cost nothing."""

    def identity(self) -> Mapping[str, Any]:
        """Return the model's name and the version of its rules."""
        return {"model": "heuristic", "version": VERSION}

    async def reply(self, call: Call) -> Reply:
        """Reply to one call.

        Raises:
            ModelError: the role has no rule, or the call requests a test in a language other than Python.
        """
        rule = _RULES.get(call.role)
        if rule is None:
            raise ModelError(f"the heuristic model has no rule for the role {call.role!r}: choose another model")
        if rule is _generate_test and call.variables["language"] != "python":
            raise ModelError(
                f"the heuristic model writes tests only for Python, not for {call.variables['language']!r}: "
                f"choose another model or a variant without {call.role}"
            )
        return Reply(text=rule(call.variables), usage=Usage(), model="heuristic", finish_reason="stop")


def extract_terms(text: str) -> dict[str, None]:
    """Return the stemmed words of a text in order of appearance. Identifiers are split; stop words are dropped."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text[:MAX_CODE])
    return {_stem(word.lower()): None for word in words if word.lower() not in _NOISE}


def _stem(word: str) -> str:
    for suffix in ("ing", "ies", "es", "ed", "s", "e"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word.removesuffix(suffix)
    return word


def compute_overlap(query: str, code: str) -> float:
    """Return the share of a query's words that occur in the code, from 0 to 1.

    Words that occur in names of functions and classes have a higher weight.
    """
    query_terms = list(extract_terms(query))[:_MAX_TERMS]
    anywhere = extract_terms(code)
    names = extract_terms(" ".join(re.findall(r"(?:def|class)\s+(\w+)", code[:MAX_CODE])))
    if not query_terms:
        return 0.0
    return sum(1.0 if term in names else 0.8 if term in anywhere else 0.0 for term in query_terms) / len(query_terms)


def _measure(variables: Mapping[str, Any]) -> tuple[float, float]:
    """Return the pair's overlap and the overlap that its criterion requires."""
    return compute_overlap(variables["query"], variables["code"]), JUDGE_FROM[variables.get("criterion") or "exact"]


def _screen(variables: Mapping[str, Any]) -> str:
    score, _ = _measure(variables)
    verdict = "non_match" if score < NON_MATCH_BELOW else "unclear"
    reason = f"rule: word overlap {score:.2f}; values below {NON_MATCH_BELOW} are non-matches"
    return json.dumps({"reason": reason, "verdict": verdict})


def _judge(variables: Mapping[str, Any]) -> str:
    score, threshold = _measure(variables)
    reason = f"rule: word overlap {score:.2f}; label 1 requires {threshold}"
    return json.dumps({"reason": reason, "label": int(score >= threshold)})


def _judge_intent(variables: Mapping[str, Any]) -> str:
    word = _WITHOUT_INTENT.search(variables["query"])
    reason = "no word suggests another intent" if word is None else f"the query contains {word[0]!r}"
    return json.dumps({"reason": f"rule: {reason}", "intent": "yes" if word is None else "no"})


def _simulate(variables: Mapping[str, Any]) -> str:
    score, threshold = _measure(variables)
    status = "passed" if score >= threshold else "failed"
    return json.dumps({"reason": f"rule: word overlap {score:.2f}; a pass requires {threshold}", "status": status})


def _arbitrate(variables: Mapping[str, Any]) -> str:
    report: TestReport | None = variables.get("report")
    simulated: Simulated | None = variables.get("simulated")
    score, threshold = _measure(variables)
    evidence = report is not None and report.cause in (None, Cause.SNIPPET)
    if report is not None and evidence and report.status is Status.FAILED:
        threshold, basis = 2.0, "a case failed"
    elif report is not None and evidence and report.status is Status.PASSED:
        passed_names = [case.name for case in report.cases if case.outcome is CaseOutcome.PASSED]
        weak = all(name.startswith(SMOKE) for name in passed_names)
        threshold, basis = (threshold, "it runs") if weak else (EXAMPLES_PASSED_FROM, "its examples or cases pass")
    elif simulated is not None and simulated.status != "passed":
        threshold, basis = 2.0, f"the predicted outcome is {simulated.status}"
    elif evidence:
        threshold, basis = BROKEN_FROM, "the snippet failed on guessed arguments"
    else:
        basis = "there is no test evidence"
    reason = f"{basis}; word overlap {score:.2f}" + (f"; label 1 requires {threshold}" if threshold <= 1 else "")
    return json.dumps({"reason": f"rule: {reason}", "label": int(score >= threshold)})


@dataclass(frozen=True)
class _Outline:
    """A snippet's syntax tree, the function to test (or None), and the expression to call.

    `method` is true if the function is a method.
    """

    tree: ast.Module | None
    target: _AnyFunction | None = None
    call: str = ""
    method: bool = False


def _outline(query: str, code: str) -> _Outline:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code[:MAX_CODE].removeprefix("\ufeff"))
    except _UNREADABLE:
        return _Outline(None)
    functions = [node for node in tree.body if isinstance(node, _AnyFunction)]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if not functions:
        constructors = {node.name: _find_constructor(node) for node in classes}
        name = next((name for name, node in constructors.items() if node is not None), None)
        return _Outline(tree) if name is None else _Outline(tree, constructors[name], name)
    query_terms = extract_terms(query)
    target = max(functions, key=lambda node: (len(query_terms.keys() & extract_terms(node.name)), node.lineno))
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in target.decorator_list}
    method = _is_bound(target) or bool(decorators & {"staticmethod", "classmethod", "property"})
    if not method:
        return _Outline(tree, target, target.name)
    bound = f"{_HOLDER}().{target.name}"
    is_property = any("property" in decorator for decorator in decorators)
    return _Outline(tree, target, f"(lambda: {bound})" if is_property else bound, method=True)


def _find_constructor(node: ast.ClassDef) -> _AnyFunction | None:
    return next((child for child in node.body if isinstance(child, _AnyFunction) and child.name == "__init__"), None)


def _is_bound(function: _AnyFunction) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args]
    return bool(arguments) and arguments[0].arg in ("self", "cls", "mcs")


def _build_surroundings(outline: _Outline, marker: str) -> tuple[list[str], str]:
    """Return the names of the stand-ins, and the source of the imports, the stand-ins and the marker."""
    imports, stand_ins = [], {}
    for name, kind in _find_undefined(outline.tree).items() if outline.tree is not None else ():
        module = _ALIASES.get(name, name)
        if name in _PYTHON2:
            stand_ins[name] = f"{name} = {_PYTHON2[name]}"
        elif module.partition(".")[0] in _DISTRIBUTIONS | sys.stdlib_module_names | set(_ALIASES.values()):
            imports.append(f"import {module}" + (f" as {name}" if name != module else ""))
        elif kind == "class":
            base = "Exception" if name.endswith(("Error", "Exception")) else "object"
            stand_ins[name] = f"class {name}({base}): pass"
        elif kind == "decorator":
            stand_ins[name] = f"def {name}(given, *given_more, **given_options):\n    return given"
        else:
            stand_ins[name] = f"{name} = given_mock.MagicMock(name={name!r})"
    mocks = any("given_mock" in source for source in stand_ins.values()) or outline.method
    head = [*imports, *(["import unittest.mock as given_mock"] if mocks else ()), *stand_ins.values()]
    if outline.method:
        holder = f"class {_HOLDER}:\n    def __getattr__(self, name):\n        return given_mock.MagicMock(name=name)"
        return [*stand_ins, _HOLDER], "\n".join([*head, holder, "", f"    {marker}"])
    return list(stand_ins), "\n".join([*head, marker])


def _find_undefined(tree: ast.Module) -> dict[str, str]:
    """Return the names that code reads but never binds, each with its use: class, decorator or value."""
    bound = {*dir(builtins), "__file__", "__name__"}
    uses: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                uses.setdefault(name, "value")
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
        if isinstance(node, _AnyFunction | ast.ClassDef):
            bound.add(node.name)
            uses |= {name: "decorator" for decorator in node.decorator_list for name in _iterate_heads(decorator)}
        if isinstance(node, ast.ClassDef):
            uses |= {name: "class" for base in node.bases for name in _iterate_heads(base)}
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            uses |= dict.fromkeys(_iterate_heads(node.type), "class")
    return {name: kind for name, kind in uses.items() if name not in bound and name.isascii()}


def _iterate_heads(node: ast.expr) -> Iterator[str]:
    nodes = node.elts if isinstance(node, ast.Tuple) else [node.func if isinstance(node, ast.Call) else node]
    return (head.id for head in nodes if isinstance(head, ast.Name))


def _generate_test(variables: Mapping[str, Any]) -> str:
    outline = _outline(variables["query"], variables["code"])
    if "outline" in variables:  # in the snippet's module: the first line of the outline imports the function or class
        stand_ins, surroundings = list[str](), variables["outline"].partition("\n")[0]
        outline = replace(outline, call=outline.call.replace(_HOLDER, surroundings.rpartition(" ")[2]))
    else:
        stand_ins, surroundings = _build_surroundings(outline, variables["marker"])
    head = {"reading": "the code does what its name and its docstring say", "stand_ins": stand_ins}
    source = "\n\n\n".join([surroundings, _HELPERS, *_extract_examples(outline), *_generate_smoke_cases(outline)])
    return f"```json\n{json.dumps(head)}\n```\n\n```{variables['fence']}\n{source}\n```\n"


def _generate_smoke_cases(outline: _Outline) -> Iterator[str]:
    if outline.target is None:
        yield f"def {SMOKE}_loads():\n    assert True"
    else:
        calls = ", ".join(_iterate_argument_lists(outline.target))
        yield f"def {SMOKE}_takes_plausible_arguments():\n    assert [given_first({outline.call}, [{calls}])]"


def _iterate_argument_lists(function: _AnyFunction) -> Iterator[str]:
    """Iterate over the source of lambdas, each of which returns one set of arguments for the function.

    Combinations of equally plausible values come first.
    """
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][int(_is_bound(function)) :]
    positional = positional[: max(0, len(positional) - len(arguments.defaults))]
    keywords = [
        argument for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default
    ]
    choices = [_guess_values(argument) for argument in (*positional, *keywords)]
    by_rank = (tuple(values[min(rank, len(values) - 1)] for values in choices) for rank in range(_MAX_CALLS))
    lists = dict.fromkeys(itertools.islice(itertools.chain(by_rank, itertools.product(*choices)), 4 * _MAX_CALLS))
    for values in itertools.islice(lists, _MAX_CALLS):
        positional_values = "".join(f"{value}, " for value in values[: len(positional)])
        keyword_values = ", ".join(
            f"{argument.arg!r}: {v}" for argument, v in zip(keywords, values[len(positional) :], strict=True)
        )
        yield f"lambda: (({positional_values}), {{{keyword_values}}})"


def _guess_values(argument: ast.arg) -> list[str]:
    annotation = re.findall(r"\w+", ast.unparse(argument.annotation).lower()) if argument.annotation else []
    words = [argument.arg.lower().strip("_"), *reversed(re.findall(r"[a-z]+", argument.arg.lower()))]
    kinds = [_BY_ANNOTATION.get(word, word) for word in annotation]
    kinds += [_BY_WORD[word] for word in words if word in _BY_WORD]
    kinds = [kind for kind in dict.fromkeys([*kinds, "str", "list", "int", "dict"]) if kind in _VALUES]
    firsts, more = [_VALUES[kind][0] for kind in kinds], [value for kind in kinds for value in _VALUES[kind][1:]]
    return [firsts[0], *more[:1], *firsts[1:], *more[1:]][:_MAX_CALLS]


def _extract_examples(outline: _Outline) -> Iterator[str]:
    """Iterate over test cases, one for each docstring example (`>>> f(2)`) that calls the function and has a result."""
    if outline.target is None or outline.method:
        return
    doc = ast.get_docstring(outline.target) or ""
    try:
        examples = doctest.DocTestParser().get_examples(doc)
    except ValueError:
        return
    numbers = itertools.count(1)
    for example in examples[:_MAX_EXAMPLES]:
        try:
            expression = ast.parse(example.source.strip(), mode="eval")
            expected = ast.literal_eval(example.want.strip())
        except _UNREADABLE:
            continue
        names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
        if (
            "`" not in example.source + example.want
            and outline.target.name in names
            and names <= {outline.target.name, *dir(builtins)}
        ):
            yield f"def {EXAMPLE}_{next(numbers)}():\n    assert {ast.unparse(expression)} == {expected!a}"


_RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "judge_intent": _judge_intent,
    "screen": _screen,
    "judge": _judge,
    "arbitrate": _arbitrate,
    "simulate": _simulate,
    "generate_test": _generate_test,
    "repair": lambda _variables: "```bash\n```\n",
}
