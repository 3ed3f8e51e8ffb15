"""Chooses inputs for the function of a snippet, from its source alone. This file is the first part of `python_calls`.

An input is a text with an expression for each argument, one on each line.
"""

from __future__ import annotations

import ast
import builtins
import random
import re
import symtable
import sys
from contextlib import nullcontext, suppress
from functools import lru_cache, reduce
from itertools import product
from types import SimpleNamespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_CALLS = 1500
# values of each type, usual ones first, separated by " | "; no empty values and no None, for which few queries state
# a result
POOL = {
    "number": "3 | 0 | 1 | 2 | 10 | -3 | 2.5 | 7 | 5 | 100 | 0.5 | 12 | -1.5 | 16 | 25 | 60 | 97 | 255 | 1000 | 2023 "
    "| 3661 | 65536 | 1500000000 | 0.1 | 3.14159 | 1e6 | 98.6",
    "text": "'abc' | 'Hello World' | 'a' | 'a,b,c' | '12' | 'f.txt' | '2020-01-02' | '  x y ' | 'b' | ',' "
    "| 'key=value' | 'CamelCaseName' | 'snake_case_name' | 'hello hello world' | 'a b  c' | '3.14' | '-7' | '1010' "
    "| 'line1\\nline2\\n\\nline3' | 'http://www.example.com/path/page.html?x=1&y=2#frag' | '%Y-%m-%d' | '[a-c]+' "
    "| '1e3' | '0xff' | 'ff00aa' | '#ff0000' | '(1, 2)' | '[1, 2, 3]' | '01/02/2020' | '2020-01-02T03:04:05' "
    "| '2020-01-02 03:04:05' | '12:34:56' | '1:30' | '10MB' | '5 GB' | '{\"a\": 1}' | 'a=1&b=2' | 'a: 1\\nb: 2' "
    "| 'kebab-case' | 'HTTPServer' | 'racecar' | 'A man, a plan' | 'aabbbc' | 'user@example.com' | 'www.example.com' "
    "| '192.168.1.10' | '10.0.0.0/8' | '::1' | '00:1A:2B:3C:4D:5E' | 'd.json' | 't.csv' | '/no/such/dir/file.tar.gz' "
    "| 'file.py' | '1.2.3' | 'v2.0.1-beta' | 'ACGTACGT' | 'XIV' | 'true' | 'False' | 'yes' | 'no' | 'None' | 'null' "
    "| '<p>Hi <b>x</b></p>' | 'caf\\xe9 na\\xefve' | '\\u4f60\\u597d' | 'tab\\tsep' | 'it\\'s \"quoted\"' | '((a)(b))' "
    "| '(]' | 'a1b22c333' | 'x*y+2' | '%s and %d' | '{name} is {0}' | 'YWJj' | 'January' | 'Mon' | 'int' | 'str' "
    "| 'the quick brown fox jumps over the lazy dog' | '123-45-6789' | '(555) 123-4567' | 'os.path' | '*.py' | ' ' "
    "| '  indented\\n    more\\n\\ttabbed' | 'x' * 100 | 'word ' * 40 | '0' | '\\r\\n win' | '__dunder__' | 'ALLCAPS' "
    "| '$HOME/x/../y' | ',,a,,' | '.5' | '+3' | '1,234.5' | '/'",
    "list": "[3, 1, 2] | ['b', 'a'] | [1, 2, 3, 4] | ['a', 'b', 'a', 'c'] | [[1, 2], [3, 4]] | [1.0, 2.0, 4.0] "
    "| [1, 1, 2, 3, 3] | [{'a': 1}, {'a': 2, 'b': 3}] | [('a', 1), ('b', 2)] | [1] | [5, -2, 0, 7] | [0, 0, 1] "
    "| [1, 0, 1, 1] | [0.5, 1.5, 2.5] | ['abc', 'de', 'f', ''] | ['10', '9', '2'] | ['file10', 'file2', 'file1'] "
    "| [[1, 2], [3]] | [[1, 2, 3], [4, 5, 6], [7, 8, 9]] | [[3, 1], [1, 2]] | [[1, [2, [3]]], 4] | [(1, 2), (3, 4)] "
    "| [(0, 3), (2, 5), (8, 9)] | [('b', 2), ('a', 1), ('a', 3)] | [{'id': 1, 'name': 'x'}, {'id': 2, 'name': 'y'}] "
    "| [None, 1, None, 2] | [True, False, True] | ['1', 'x', None] | [1, 'a', 2.5] | [10, 20, 30, 40, 50, 60, 70] "
    "| ['a=1', 'b=2'] | ['apple', 'Banana', 'cherry'] | [[0, 1], [1, 0]] | [[0, 1, 0], [2, 0, 3]] | ['', None, 'a'] "
    "| [[], [1]] | [1, 2] * 10",
    "mapping": "{'a': 1, 'b': 2} | {'b': 3, 'a': 1, 'c': 2} | {'a': {'b': 2, 'c': {'d': 3}}} | {'a': 1} "
    "| {'a': [1, 2], 'b': [3]} | {1: 'x', 2: 'y'} | {'a': '1', 'b': None} | {'x': 'a', 'y': 'a'} "
    "| {'k': 'v', 'n': 0, 'e': ''} | {'a': {'x': 1}, 'b': {'x': 5}} | {'first_name': 'A', 'lastName': 'b'} "
    "| {'A': ['B', 'C'], 'B': ['D'], 'C': ['D'], 'D': []} | {'a': 0.5, 'b': 0.25} "
    "| {'name': 'x', 'value': 3, 'type': 'int'}",
    "other": "True | (1, 2) | b'abc' | {1, 2, 3} | datetime.datetime(2020, 1, 2, 3, 4, 5) | (lambda x: x + 1) "
    "| datetime.timedelta(days=1, seconds=3661) | datetime.date(2020, 2, 29) | False "
    "| ('a', 'b') | (3, 4, 5) | {'a', 'b'} | b'\\x00\\xff\\x10' | frozenset([1]) | 1+2j | range(5) "
    "| datetime.datetime(2021, 12, 31, 23, 59, 59) | datetime.timedelta(seconds=90.5) | datetime.time(1, 2, 3) "
    "| decimal.Decimal('1.50') | fractions.Fraction(3, 4) | io.StringIO('x y\\nz 1\\n') "
    "| (lambda x: x % 2 == 0) | (lambda x, y: x + y) | ValueError('bad') | Node(4, Node(2, Node(1), Node(3)), Node(6))",
    "array": "np.array([1., 2., 4.]) | np.array([[1, 2], [3, 4]]) | np.array([3, 1, 2]) | np.arange(12).reshape(3, 4) "
    "| np.array([[1., 0., 2.], [0., 3., 1.]]) | np.array([True, False, True]) | np.array([0., np.nan, 2.]) "
    "| np.zeros((4, 4, 3), dtype=np.uint8)",
}
WIDTHS = {1: (200, 200), 2: (24, 6), 3: (10, 3), 4: (6, 1), 5: (4, 1)}
"""Numbers of values of the likely type and of each other type, by the number of arguments."""
SHARES, MAX_SHARED, EMPTY = {1: 1.0, 2: 0.22, 3: 0.09}, 2500, ("''", "[]", "{}", "None")
"""Shares of the values that shared inputs combine, by the number of arguments, and additional values."""
HINTS = {
    "mapping": "d|dic|dict|dictionary|mapping|map|params|kwargs|options|config|obj|data|graph|tree|[a-z_]*(dict|map)",
    "list": "list|lst|array|arr|seq|sequence|iterable|items|values|elements|numbers|nums|words|lines|rows|matrix|l|xs"
    "|points|tuple|args|[a-z_]+(s|list)",
    "text": "s|c|char|pattern|prefix|suffix|sep|delimiter|fmt|format|title|content|html|xml|json|email|ip|hex|color|uri"
    "|msg|message|word|line|[a-z_]*(name|str|string|text|path|file|url|date|key)",
    "number": "[nkmijxyzabrv]|val|value|number|int|integer|float|year|month|day|seconds|minutes|lat|lon|degrees|angle"
    "|port|page|[a-z_]*(count|size|len|length|width|height|index|idx|num|limit|depth|level|max|min|bits|bytes|time)",
}
"""Patterns of the names of parameters. The first one that matches decides the likely type."""
TYPES = {"int": "number", "float": "number", "bool": "other", "str": "text", "list": "list", "tuple": "list",
         "dict": "mapping", "set": "other", "bytes": "other"}  # fmt: skip
PROVIDED = """
collections Counter OrderedDict defaultdict deque namedtuple
collections.abc Callable Iterable Iterator Mapping Sequence
copy deepcopy
datetime date timedelta
decimal Decimal
fractions Fraction
functools partial reduce wraps
io BytesIO StringIO
itertools chain combinations count cycle groupby islice permutations product repeat starmap takewhile tee zip_longest
math ceil cos exp floor log pi sin sqrt
operator attrgetter itemgetter
random choice randint sample shuffle
textwrap dedent
urllib.parse urlparse quote urlencode unquote
typing Any Dict List Optional Set Tuple Union
"""
"""Names that snippets use without importing them, each after its module."""
PROVIDERS = {name: line.split()[0] for line in PROVIDED.splitlines() for name in line.split()[1:]}
OLD = {"unicode": str, "basestring": str, "xrange": range, "long": int, "unichr": chr, "izip": zip, "imap": map,
       "ifilter": filter, "text_type": str, "string_types": (str,), "PY2": False, "PY3": True,
       "iteritems": lambda items: iter(items.items())}  # fmt: skip
"""Names of Python 2 and of libraries that bridge both versions."""
_LOGS = dict.fromkeys(("debug", "info", "warning", "warn", "error", "exception"), lambda *_, **__: None)
_MOVES = SimpleNamespace(range=range, zip=zip, map=map, filter=filter, reduce=reduce)
STAND_INS = {
    "six": SimpleNamespace(**OLD, moves=_MOVES, binary_type=bytes, integer_types=(int,), iterkeys=iter,
                           itervalues=lambda items: iter(items.values())),
    **dict.fromkeys(("log", "logger", "_logger", "LOG", "LOGGER"), SimpleNamespace(**_LOGS)),
}  # fmt: skip
"""Names that snippets use without defining them, for functions that are not `strict`."""
MODULES = frozenset(getattr(sys, "stdlib_module_names", ()))
NUMPY = "np", "numpy"


class Unfit(Exception):
    """Raised if a function cannot be called with inputs. The message is the reason."""


class Signature:
    """The only function of a snippet.

    `arguments` are the attributes that a method reads from its receiver (`attributes`), and the parameters without
    defaults. `optional` are the parameters with defaults. `names` maps the global names that the snippet does not
    define to their modules and attributes. Without `strict`, `names` lacks unknown names, and a call that needs one
    raises an exception.

    Raises:
        Unfit: the function cannot be called with inputs.
    """

    def __init__(self, code: str, strict: bool = True) -> None:
        self.strict = strict
        try:
            tree = ast.parse(code)
            self.names = dict(find_names(code, strict))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise Unfit("does not parse") from None
        self.uses_numpy = not self.names.keys().isdisjoint(NUMPY)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        if len(functions) != 1:
            raise Unfit("not one function")
        self.function = functions[0]
        own = self.function.args
        positional = [*own.posonlyargs, *own.args]
        required = len(positional) - len(own.defaults)
        self.is_method = bool(positional) and positional[0].arg in ("self", "cls")
        self.attributes = find_attributes(self.function, positional[0].arg) if self.is_method else []
        if not self.attributes and required <= self.is_method < len(positional):
            required = self.is_method + 1
        parameters = [*self.attributes, *positional[self.is_method : required]]
        self.arguments = [(getattr(item, "arg", item), guess_type(item)) for item in parameters]
        keywords = [item for item, default in zip(own.kwonlyargs, own.kw_defaults) if default is not None]
        defaults = [*own.defaults[len(own.defaults) - len(positional) + required :], *filter(None, own.kw_defaults)]
        self.optional = list(zip([*positional[required:], *keywords], defaults))
        if len(self.arguments) not in WIDTHS or None in own.kw_defaults:
            raise Unfit("arguments")

    def choose_inputs(self) -> Iterator[str]:
        """Iterate over the examples of the docstring, and over combinations of values, likely ones first."""
        likely, others = WIDTHS[len(self.arguments)]
        literals = find_literals(self.function)
        columns = []
        for _, kind in self.arguments:
            costs = {text: rank for rank, text in enumerate(split_pool(kind, likely))}
            kinds = [name for name in POOL if name != "array" or self.uses_numpy]
            for texts in [literals[: 2 * others], *[split_pool(name, others) for name in kinds]]:
                for rank, text in enumerate(texts):
                    costs.setdefault(text, 4 + 2 * rank)
            columns.append([*costs.items()])
        yield from find_examples(self.function, len(columns))
        rows = sorted(product(*columns), key=lambda row: sum(cost for _, cost in row))
        for row in rows[:MAX_CALLS]:
            yield "\n".join([text for text, _ in row])

    def choose_options(self) -> Iterator[str]:
        """Iterate over keyword arguments for the optional parameters."""
        for parameter, default in self.optional:
            value = getattr(default, "value", None)
            kind = {bool: "other", int: "number", float: "number", str: "text"}.get(type(value), guess_type(parameter))
            for text in [repr(not value)] if isinstance(value, bool) else split_pool(kind, 4):
                yield "%s=%s" % (parameter.arg, text)


def split_pool(kind: str, count: int) -> list[str]:
    return POOL[kind].split(" | ")[:count]


@lru_cache
def list_shared_inputs(count: int) -> list[str]:
    """Return the inputs for all functions with this number of arguments."""
    values = [*EMPTY]
    for texts in POOL.values():
        column = texts.split(" | ")
        values += column[: round(len(column) * SHARES[count])]
    rows = ["\n".join(row) for row in product(values, repeat=count)]
    return rows if len(rows) <= MAX_SHARED else random.Random(1).sample(rows, MAX_SHARED)


def find_attributes(function: ast.FunctionDef, receiver: str) -> list[str]:
    """Return the attributes that a method reads. A method that uses its receiver in any other way is unfit."""
    nodes = list(ast.walk(function))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    owners = {id(node.value): node for node in nodes if isinstance(node, ast.Attribute)}
    changed = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    names: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id == receiver:
            owner = owners.get(id(node))
            if owner is None or id(owner) in called:
                raise Unfit("uses self")
            if not isinstance(owner.ctx, ast.Store) or id(owner) in changed:
                names[owner.attr] = None
    return list(names)


def find_names(code: str, strict: bool) -> Iterator[tuple[str, tuple[str, str]]]:
    """Iterate over the global names that a snippet reads but does not define, with their modules and attributes.

    Unless `strict` is set, unknown names are skipped.
    """
    tables = [symtable.symtable(code, "snippet", "exec")]
    defined = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    for table in tables:
        tables += table.get_children()
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_global() and symbol.is_referenced() and name not in defined and not hasattr(builtins, name):
                with nullcontext() if strict else suppress(Unfit):
                    yield name, find_provider(code, name)


def find_provider(code: str, name: str) -> tuple[str, str]:
    if name == "datetime":
        is_module = re.search(r"datetime\.(datetime|timedelta|date|time)\b", code)
        return "datetime", "" if is_module else "datetime"
    if name in OLD:
        return "", name
    if name in PROVIDERS and not (name in MODULES and name + "." in code):
        return PROVIDERS[name], name
    if name in MODULES or name in NUMPY:
        return ("numpy" if name in NUMPY else name), ""
    raise Unfit("unknown names")


def guess_type(parameter: Any) -> str:
    """Return the likely type of a parameter or an attribute, from its annotation or its name."""
    annotation = getattr(getattr(parameter, "annotation", None), "id", "").lower()
    name = getattr(parameter, "arg", parameter).lower().strip("_")
    likely = (kind for kind, pattern in HINTS.items() if re.fullmatch(pattern, name))
    return TYPES.get(annotation) or next(likely, "text")


def find_literals(function: ast.FunctionDef) -> list[str]:
    """Return the constants of a function that may be useful arguments."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Constant)]
    texts = [repr(value) for value in values if type(value) in (int, float, str)]
    return [*dict.fromkeys(text for text in texts if len(text) < 30 and text != "inf")]


def find_examples(function: ast.FunctionDef, count: int) -> Iterator[str]:
    """Iterate over the inputs in the examples (`>>> f(1)`) of a docstring whose arguments are constants."""
    pattern = r">>> .*?\b%s(\(.*\))" % re.escape(function.name)
    for text in re.findall(pattern, ast.get_docstring(function) or ""):
        with suppress(AttributeError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
            call: Any = ast.parse("f" + text, mode="eval").body
            for item in call.args:
                ast.literal_eval(item)
            if len(call.args) == count and not call.keywords:
                yield "\n".join([str(ast.get_source_segment("f" + text, item)) for item in call.args])
