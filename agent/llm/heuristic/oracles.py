"""Simple queries whose answer is known: what to call the code with, and what to expect, worked out without the code.

An oracle is used when a query's terms are all among those it knows, so that a query which asks for more is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.llm.heuristic.words import query_terms, raw_words, term, terms

Accept = Literal["equal", "any", "truth", "unordered", "holds"]
"""How a result is compared with what was expected."""


@dataclass(frozen=True)
class Oracle:
    """What a kind of query expects.

    `needs`: of each group one term must be in the query; `also`: further terms that change nothing. `expected`: source
    of a function of the arguments; `cases`: source of argument tuples. `accept`: `equal`, `any` (one of several),
    `truth` (a yes or no), `unordered`, or `holds` (the expected value is a predicate).
    """

    name: str
    reading: str
    needs: tuple[frozenset[str], ...]
    also: frozenset[str]
    expected: str
    cases: tuple[str, ...]
    accept: Accept = "equal"

    @property
    def arity(self) -> int:
        """Return how many arguments a case gives."""
        return len(self.cases[0].removesuffix(",").split(";"))


_COMMON = frozenset("function value get return create element given code class 2 two number".split())
"""Terms that change nothing about what a simple query asks for."""


def _oracle(name: str, needs: str, also: str, expected: str, cases: str, accept: Accept = "equal") -> Oracle:
    groups = tuple(frozenset(terms(raw_words(group))) for group in needs.split("+"))
    return Oracle(
        name=name,
        reading=name.replace("_", " "),
        needs=groups,
        also=frozenset(terms(raw_words(also))),
        expected=expected,
        cases=tuple(case.strip() for case in cases.split("|")),
        accept=accept,
    )


_TEXTS = "'abc' | 'hello world' | 'x'"
_NUMBERS = "[3, 1, 2] | [5, -1, 4, 4] | [7]"
_REPEATED = "[3, 1, 3, 2, 1] | ['a', 'b', 'a'] | [1, 2]"

ORACLES: tuple[Oracle, ...] = (
    _oracle("reverse_a_string", "reverse+string word", "character", "lambda text: text[::-1]", _TEXTS),
    _oracle("reverse_a_list", "reverse+list", "", "lambda items: list(reversed(items))", _NUMBERS),
    _oracle("sort_a_list", "sort+list", "number integer ascending", "lambda items: sorted(items)", _NUMBERS),
    _oracle("indexes_that_sort_a_list", "sort+index+list", "",
            "lambda items: sorted(range(len(items)), key=lambda at: items[at])", "[30, 10, 20] | [1, 2] | [5]"),
    _oracle("remove_duplicates", "duplicate+remove+list array", "", "lambda items: set(items)", _REPEATED, "unordered"),
    _oracle("count_unique_elements", "unique+number count+list array", "in",
            "lambda items: len(set(items))", _REPEATED),
    _oracle("unique_elements", "unique+list array", "find", "lambda items: set(items)", _REPEATED, "unordered"),
    _oracle("flatten_a_list", "flatten+list", "nested list",
            "lambda lists: [item for inner in lists for item in inner]", "[[1, 2], [3]] | [['a'], ['b', 'c'], []]"),
    _oracle("largest_of_a_list", "max+list array", "find number integer", "lambda items: max(items)", _NUMBERS),
    _oracle("smallest_of_a_list", "min+list array", "find number integer", "lambda items: min(items)", _NUMBERS),
    _oracle("sum_of_a_list", "sum+list array number", "all calculate compute number",
            "lambda items: sum(items)", _NUMBERS),
    _oracle("average_of_a_list", "average+list array number", "calculate compute find number",
            "lambda items: sum(items) / len(items)", _NUMBERS),
    _oracle("median_of_a_list", "median", "list calculate compute find number",
            "lambda items: __import__('statistics').median(items)", "[3, 1, 2] | [4, 1, 3, 2]"),
    _oracle("average_word_length", "average+length+word string", "set list words",
            "lambda words: sum(map(len, words)) / len(words)", "['ab', 'abcd'] | ['abc']"),
    _oracle("palindrome", "palindrome", "check string word number",
            "lambda text: text == text[::-1]", "'level' | 'python' | 'abba'", "truth"),
    _oracle("prime", "prime+check", "number integer", "lambda n: n > 1 and all(n % d for d in range(2, n))",
            "7 | 9 | 2 | 15", "truth"),
    _oracle("even", "even+check", "number integer", "lambda n: n % 2 == 0", "4 | 7", "truth"),
    _oracle("odd", "odd+check", "number integer", "lambda n: n % 2 == 1", "4 | 7", "truth"),
    _oracle("factorial", "factorial", "calculate compute number find", "lambda n: __import__('math').factorial(n)",
            "5 | 1 | 6"),
    _oracle("greatest_common_divisor", "gcd divisor", "greatest common max calculate compute find number",
            "lambda a, b: __import__('math').gcd(a, b)", "12; 18 | 7; 5"),
    _oracle("leap_year", "leap+year", "check", "lambda year: year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
            "2020 | 2019 | 1900 | 2000", "truth"),
    _oracle("all_upper_case", "upper+string text", "case convert change character all make",
            "lambda text: text.upper()", _TEXTS),
    _oracle("all_lower_case", "lower+string text", "case convert change character all make",
            "lambda text: text.lower()", "'ABC' | 'Hello World'"),
    _oracle("lower_every_string", "lower+list", "all element case string convert word make",
            "lambda texts: [text.lower() for text in texts]", "['AB', 'c'] | ['X Y']"),
    _oracle("upper_every_string", "upper+list", "all element case string convert word make",
            "lambda texts: [text.upper() for text in texts]", "['ab', 'C'] | ['x y']"),
    _oracle("remove_whitespace", "whitespace+remove strip+string", "all extra character",
            "lambda text: (text.strip(), ''.join(text.split()), ' '.join(text.split()))", "'  a  b ' | ' abc  '", "any"),
    _oracle("all_elements_equal", "equal+all+list", "check element item",
            "lambda items: len(set(items)) == 1", "[1, 1, 1] | [1, 2, 1] | ['a', 'a']", "truth"),
    _oracle("equal", "equal+string list array dict object input", "check two 2 test compare are",
            "lambda one, other: one == other", "'abc'; 'abc' | 'abc'; 'abd'", "truth"),
    _oracle("empty_list", "empty+list+check", "is", "lambda items: not items", "[] | [1]", "truth"),
    _oracle("empty_string", "empty+string+check", "is", "lambda text: not text", "'' | 'a'", "truth"),
    _oracle("key_in_dictionary", "exist+key+dict", "check in test", "lambda key, mapping: key in mapping",
            "'a'; {'a': 1} | 'b'; {'a': 1}", "truth"),
    _oracle("element_in_list", "exist+list", "check in test element item",
            "lambda item, items: item in items", "2; [1, 2] | 5; [1, 2]", "truth"),
    _oracle("dot_product", "dot inner+product", "vector compute calculate",
            "lambda v, w: sum(a * b for a, b in zip(v, w))", "[1, 2, 3]; [4, 5, 6] | [0, 1, 2]; [3, 1, 1]"),
    _oracle("euclidean_distance", "euclidean eucliedan euclidian+distance", "vector point between calculate compute",
            "lambda v, w: sum((a - b) ** 2 for a, b in zip(v, w)) ** 0.5", "(0, 0); (3, 4) | (1, 1); (4, 5)"),
    _oracle("manhattan_distance", "manhattan+distance", "vector point between calculate compute",
            "lambda v, w: sum(abs(a - b) for a, b in zip(v, w))", "(0, 0); (3, 4) | (1, 1); (4, 5)"),
    _oracle("count_in_list", "count+list+occurrence", "element item in find",
            "lambda item, items: items.count(item)", "1; [1, 2, 1] | 'a'; ['b', 'a']"),
    _oracle("index_in_list", "index+list", "item element find something in",
            "lambda item, items: items.index(item)", "20; [10, 20, 30] | 'a'; ['a', 'b']"),
    _oracle("intersection_of_lists", "intersection common+list set", "find element between",
            "lambda one, other: set(one) & set(other)", "[1, 2, 3]; [2, 3, 4] | [1]; [1]", "unordered"),
    _oracle("union_of_lists", "union+list set", "find element between",
            "lambda one, other: set(one) | set(other)", "[1, 2]; [2, 3] | [1]; [1]", "unordered"),
    _oracle("merge_dictionaries", "join+dict", "into in one", "lambda one, other: {**one, **other}",
            "{'a': 1}; {'b': 2} | {'x': 0}; {'y': 1, 'z': 2}"),
    _oracle("invert_a_dictionary", "reverse+dict", "key value",
            "lambda mapping: {value: key for key, value in mapping.items()}", "{'a': 1, 'b': 2} | {'x': 'y'}"),
    _oracle("transpose", "transpose+list matrix", "list nested",
            "lambda rows: [list(column) for column in zip(*rows)]", "[[1, 2], [3, 4]] | [[1, 2, 3], [4, 5, 6]]"),
    _oracle("cumulative_sum", "cumulative+sum", "list calculate compute number",
            "lambda items: list(__import__('itertools').accumulate(items))", "[1, 2, 3] | [5]"),
    _oracle("chunks_of_a_list", "chunk+list", "split equal size sized into even",
            "lambda items, size: [items[at:at + size] for at in range(0, len(items), size)]",
            "[1, 2, 3, 4, 5]; 2 | ['a', 'b']; 1"),
    _oracle("text_is_a_number", "check+string+number numeric integer float", "a",
            "lambda text: text.isdigit()", "'12' | 'abc'", "truth"),
    _oracle("type_is_string", "check+type+string", "variable",
            "lambda value: isinstance(value, str)", "'abc' | 5", "truth"),
    _oracle("count_words", "count number+word", "string in text", "lambda text: len(text.split())",
            "'a b c' | 'hello'"),
    _oracle("capitalize", "first+upper", "letter string word character",
            "lambda text: text[:1].upper() + text[1:]", "'abc' | 'hello'"),
    _oracle("read_lines", "reading+file+line", "all list into string to",
            "lambda path: (open(path).readlines(), open(path).read().splitlines())",
            "_given_file()", "any"),
    _oracle("read_json_file", "reading+json+file", "dict python", "lambda path: __import__('json').load(open(path))",
            "_given_file('.json')"),
    _oracle("file_exists", "exist+file+check", "path folder in present",
            "lambda path: __import__('os').path.isfile(path)", "_given_file() | _given_new_path()", "truth"),
    _oracle("folder_exists", "exist+folder+check", "path",
            "lambda path: __import__('os').path.isdir(path)", "_given_folder() | _given_new_path()", "truth"),
    _oracle("name_without_extension", "extension ext+without remove strip+file filename basename name", "basename path",
            "lambda path: (__import__('os').path.splitext(path)[0],"
            " __import__('os').path.splitext(__import__('os').path.basename(path))[0])",
            "'/tmp/one.txt' | '/tmp/two.csv'", "any"),
    _oracle("file_extension", "extension ext+file filename", "find name path",
            "lambda path: (__import__('os').path.splitext(path)[1], __import__('os').path.splitext(path)[1][1:])",
            "'/tmp/one.txt' | 'two.csv'", "any"),
    _oracle("random_text_of_length", "random+string id", "length character unique generate",
            "lambda length: lambda text: isinstance(text, str) and len(text) == length", "17 | 5", "holds"),
    _oracle("rounded", "rounding+decimal place digits", "number float places",
            "lambda number, digits: round(number, digits)", "2.34567; 2 | 1.5; 0"),
    _oracle("domain_of_url", "domain+url", "extract urllib name from",
            "lambda url: (__import__('urllib.parse').parse.urlparse(url).netloc,)",
            "'http://example.com/a?b=1' | 'https://docs.example.org/x'", "any"),
    _oracle("snake_case", "camel+snake", "case convert string camelcase to",
            "lambda text: __import__('re').sub('(?<!^)(?=[A-Z])', '_', text).lower()", "'camelCase' | 'twoWordsHere'"),
)  # fmt: skip
"""Oracles by query; the first that fits is used, so the narrower ones stand first."""

_CONVERSIONS: dict[tuple[str, str], tuple[str, str, Accept]] = {
    ("int", "bin"): ("lambda n: (bin(n), bin(n)[2:], format(n, '08b'), int(bin(n)[2:]))", "5 | 12", "any"),
    ("int", "hex"): ("lambda n: (hex(n), hex(n)[2:], hex(n)[2:].upper())", "26 | 255", "any"),
    ("hex", "int"): ("lambda text: int(text, 16)", "'1f' | 'ff'", "equal"),
    ("bin", "int"): ("lambda text: int(text, 2)", "'101' | '11'", "equal"),
    ("string", "int"): ("lambda text: int(text)", "'12' | '-3'", "equal"),
    ("string", "float"): ("lambda text: float(text)", "'1.5' | '-3.25'", "equal"),
    ("string", "bool"): ("lambda text: text == 'true'", "'true' | 'false'", "truth"),
    ("string", "list"): ("lambda text: (list(text), text.split(), text.split(','))", "'a' | 'b'", "any"),
    ("int", "string"): ("lambda n: str(n)", "5 | 12", "equal"),
    ("string", "byte"): ("lambda text: text.encode()", "'abc' | 'x'", "equal"),
    ("string", "bytestring"): ("lambda text: text.encode()", "'abc' | 'x'", "equal"),
    ("byte", "string"): ("lambda raw: raw.decode()", "b'abc' | b'x'", "equal"),
    ("json", "dict"): ("lambda text: __import__('json').loads(text)", "'{\"a\": 1}' | '{\"b\": [1, 2]}'", "equal"),
    ("dict", "json"): ("lambda mapping: __import__('json').dumps(mapping)", "{'a': 1} | {'b': 2}", "equal"),
    ("list", "string"): ("lambda items: (str(items), ''.join(items), ' '.join(items), ','.join(items),"
                         " ', '.join(items), '\\n'.join(items))", "['a', 'b'] | ['x']", "any"),
    ("list", "tuple"): ("lambda items: tuple(items)", "[1, 2] | ['a']", "equal"),
    ("tuple", "list"): ("lambda items: list(items)", "(1, 2) | ('a',)", "equal"),
    ("list", "dict"): ("lambda pairs: dict(pairs)", "[['a', 1], ['b', 2]] | [['x', 0]]", "equal"),
    ("list", "set"): ("lambda items: set(items)", "[1, 2, 1] | ['a']", "unordered"),
}  # fmt: skip

_CONVERSION = re.compile(r"\b(\w+) (?:to|into|as|2) (?:a |an )?(\w+)\b")
_LEADING = frozenset({"convert", "change", "create", "transform", "cast", "get", "string", "function", "two"})


def find_oracle(query: str) -> Oracle | None:
    """Return the oracle whose terms the query fits, or None."""
    asked = set(query_terms(query))
    conversion = _conversion(query, asked)
    if conversion is not None:
        return conversion
    for oracle in ORACLES:
        covered = _COMMON | oracle.also | frozenset().union(*oracle.needs)
        if asked <= covered and all(asked & group for group in oracle.needs):
            return oracle
    return None


def _conversion(query: str, asked: set[str]) -> Oracle | None:
    match = _CONVERSION.search(" ".join(raw_words(query[:2000])))
    if match is None:
        return None
    source, target = term(match[1]), term(match[2])
    known = _CONVERSIONS.get((source, target))
    if known is None or not asked <= {source, target} | _LEADING | _COMMON:
        return None
    expected, cases, accept = known
    return Oracle(
        name=f"{source}_to_{target}",
        reading=f"convert {source} to {target}",
        needs=(frozenset({source}), frozenset({target})),
        also=frozenset(),
        expected=expected,
        cases=tuple(case.strip() for case in cases.split("|")),
        accept=accept,
    )
