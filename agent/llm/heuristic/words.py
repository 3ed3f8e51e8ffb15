"""Words of queries and of code, brought to a common form: split, stemmed, synonyms joined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_WORDS = 2000
"""Distinct words kept of one text; keeps hostile input from costing time."""

MAX_WORD = 40
"""Longer words are cut: no term of the field is longer."""

TYPO_LENGTH = 5
"""Shortest word in which one wrong letter is forgiven."""

STOP_WORDS = frozenset(
    """a about am an and any are as at be been being but by can code correctly could did do does doing doesn don done each
    easily every example for from given had has have having he help her how howto i implement implementation in inpython
    into is it its itself just like me method methods more most my need of off on one onto or our out over overflow own
    please program py python python2 python3 s script self should so some something stack stackoverflow such t than that
    the their them then there these they thing this those through to too under until up use used uses using via want was
    way ways we were what when where which while who why will with within would you your cls ve ll""".split()
)
"""Words that say nothing about what code does."""

GENERIC_WEIGHT = 0.4
"""Weight of verbs and nouns that fit nearly any code."""

TYPE_WEIGHT = 0.7
"""Weight of names of types: telling, yet shared by many."""

_GENERIC = "get set value function object create variable check give work class element convert find specific".split()
_TYPES = "list dict string int float file path folder tuple number bool data name array".split()

_GROUPS = """
remove delete del drop erase discard rid
strip trim rstrip lstrip
dict dictionary map mapping hashmap dicts
list array arr lst seq sequence ndarray nparray
string str text strings unicode txt
int integer integers
number num numeric nums
file filename fname files
path filepath pathname
folder directory dir dirs folders
create make build generate construct gen generator new
convert cast transform turn coerce conversion
change modify update alter
replace substitute sub
get fetch retrieve obtain extract
find search locate lookup
check test verify validate determine is has ensure assert see detect valid whether if
max maximum largest biggest highest greatest longest
min minimum smallest lowest shortest
len length size
count counter
print show display output printout
read load loads reading
write save dump store dumps
sum total
average mean avg
unique distinct uniq
duplicate duplicated dup dups dedup dedupe
random rand randomly
equal same identical equality eq equals equivalent
empty blank
none null nan
join concat concatenate merge combine
split tokenize
sort order sorted ordering
reverse invert inverse flip backward backwards
index position idx indices indexes
first start begin beginning
last end final latest
column col columns cols
image img picture photo
vector vec
dataframe df frame
date datetime
time timestamp
exist contain consist within
url link uri
regex regexp regular
argument arg param parameter args
thread threads threading
process proc subprocess
execute exec run call invoke
exit quit logout terminate kill killl
copy clone
upper uppercase capital capitalize
lower lowercase
whitespace space spaces whitespaces newline
character char letter symbol chars
word token
value val vals
config configuration
error exception exc err
object obj instance
format fmt
color colour colors
multiply mul multiplication
divide div division
difference diff
distance dist
traverse walk
decompress unzip uncompress
bool boolean
element item entry member
memory mem ram
current now
weekday week
matrix matrices
flatten flat flattened
round rounding rounded
normalize normalization normalise
decimal decimals digits digit
nested recursive recursion recursively recursivly
attribute attr property attributes
connection connect connecting
width wide
json jso
bin binary bits
hex hexadecimal
""".strip()

_IRREGULAR = {"children": "child", "axes": "axis", "men": "man", "people": "person", "ran": "run", "written": "write"}
_VOWEL = re.compile(r"[aeiouy]")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without its inflection: `removing`, `removed` and `removes` give the same."""
    word = _IRREGULAR.get(word, word)
    for suffix, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(suffix) and len(word) > len(suffix) + 1:
            return _without_e(word[: -len(suffix)] + replacement)
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        rest = word[: -len(suffix)]
        if word.endswith(suffix) and not word.endswith("string") and len(rest) >= 3 and _VOWEL.search(rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return _without_e(rest[:-1] if doubled else rest)
    return _without_e(word)


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _synonyms() -> dict[str, str]:
    table: dict[str, str] = {}
    for line in _GROUPS.splitlines():
        group = line.split()
        for word in group:
            table.setdefault(stem(word), group[0])
    return table


_SYNONYMS = _synonyms()
_WEIGHTS = {
    **{_SYNONYMS.get(stem(word), stem(word)): TYPE_WEIGHT for word in _TYPES},
    **{_SYNONYMS.get(stem(word), stem(word)): GENERIC_WEIGHT for word in _GENERIC},
}


@lru_cache(maxsize=65536)
def term(word: str) -> str:
    """Return the common form of a word: the first of its synonyms, or its stem."""
    stemmed = stem(word)
    return _SYNONYMS.get(stemmed, stemmed)


def weight(a_term: str) -> float:
    """Return how much a term tells: 1, or less for verbs and types that every other query has."""
    return _WEIGHTS.get(a_term, 1.0)


def raw_words(text: str) -> list[str]:
    """Return the words of prose in lower case, in order, stop words included."""
    text = text.lower().replace("data frame", "dataframe").replace("white space", "whitespace")
    return [word[:MAX_WORD] for word in _WORD.findall(text)][:MAX_WORDS]


def split_identifier(name: str) -> list[str]:
    """Return the words of `snake_case`, `camelCase` and `str2bool` names in lower case; `is_x` asks to check x."""
    words = [part.lower()[:MAX_WORD] for part in _CAMEL.findall(name[:400])]
    return ["check", *words[1:]] if len(words) > 1 and words[0] in ("is", "has", "are", "can") else words


def terms(words: Iterable[str]) -> list[str]:
    """Return the terms of the words that carry meaning, in order, each once."""
    found: dict[str, None] = {}
    for word in words:
        if word not in STOP_WORDS and len(word) > 1:
            found.setdefault(term(word))
            if len(found) >= MAX_WORDS:
                break
    return list(found)


def query_terms(query: str) -> list[str]:
    """Return the terms of a search query."""
    return terms(raw_words(query[:20_000]))


def near(one: str, other: str) -> bool:
    """Say whether two words differ by one letter: inserted, left out, changed or swapped with its neighbour."""
    if len(one) > len(other):
        one, other = other, one
    if len(one) < TYPO_LENGTH or len(other) - len(one) > 1 or one == other:
        return one == other
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
