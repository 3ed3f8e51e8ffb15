"""CodeSearchNet's challenge: human ratings of 99 queries in six languages, joined with the corpus by GitHub URL.

github.com/github/CodeSearchNet: `resources/annotationStore.csv` has the columns `Language,Query,GitHubUrl,Relevance,
Notes`, a row per rating from 0 to 3, and a pair may have several. The corpus (README, "Schema & Format") is JSON lines
with `url`, `code`, `original_string` and `language`. Not all rated functions are in it: what was searched for ratings
are the `*_dedupe_definitions_v2.pkl`, "a superset of all functions even those that do not have comments"
(resources/README.md), with the text in `function`. The copy on Hugging Face calls url and code `func_code_url` and
`whole_func_string`.
"""

from __future__ import annotations

from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.building import Building, Row, Wanted, named, rows
from agent.errors import InputError
from agent.wording import counted

_MOST = 3
"""The rating "exact match"; a pair with one is relevant, as CoSQA+ counts them (399 for Python, over 95 queries)."""


def challenge(path: Path, wanted: Wanted) -> Benchmark:
    """Read the ratings in a language, Python unless another is wanted: any of 3 is relevant, another was judged.

    Codes have their URLs as ids, queries their numbers in the whole file, so that they are the same in each language.

    Raises:
        UsageError: no codes are given.
        InputError: a file is malformed, there are no ratings in the language, or none of its codes is in the corpus.
    """
    language = wanted.language or "python"
    wanted.check_codes(path, "the corpus, as 'python/final/jsonl/**/*.jsonl.gz'")
    building, judged = Building(), dict[tuple[str, str], tuple[int, Row]]()
    numbers, languages = dict[str, str](), dict[str, None]()
    for row in rows(path):
        query, found = row.text("Query"), row.text("Language").lower()
        number, rating = numbers.setdefault(query, str(len(numbers) + 1)), row.grade("Relevance")
        if not 0 <= rating <= _MOST:
            raise row.error(f"'Relevance' is {rating}; a rating from 0 to {_MOST} expected")
        languages[found] = None
        if found == language:
            building.queries[number] = query
            key = (number, row.text("GitHubUrl").strip())
            judged[key] = max(judged.get(key, (0, row)), (int(rating == _MOST), row), key=lambda each: each[0])
    if not building.queries:
        raise InputError(f"has no ratings in {language}; there are {', '.join(languages)}", path=path)
    _add_corpus(building, wanted, language)
    _add_grades(building, judged)
    return building.done(f"{named(path)}-{language}", path, language)


def _add_corpus(building: Building, wanted: Wanted, language: str) -> None:
    repeated = 0
    for file in wanted.codes:
        for row in rows(file):
            if str(row.fields.get("language", language)).lower() != language:
                continue
            url = row.text("url", "func_code_url").strip()
            if building.has_code(url):
                repeated += 1
            else:
                building.add_code(url, row.text("code", "original_string", "whole_func_string", "function"), row)
    if repeated:
        building.notes.append(f"{counted(repeated, 'function')} of the corpus with the URL of an earlier one left out")


def _add_grades(building: Building, judged: dict[tuple[str, str], tuple[int, Row]]) -> None:
    missing, matches = [0, 0], [query for (query, _), (grade, _) in judged.items() if grade]
    for (query, url), (grade, row) in judged.items():
        if building.has_code(url):
            building.add_grade(query, url, grade, row)
        else:
            missing[grade] += 1
    over = counted(len(set(matches)), "query", "queries")
    building.notes.append(
        f"{counted(len(matches), 'relevant pair')} over {over}, {len(judged) - len(matches):,} judged not relevant; "
        f"{missing[1]:,} and {missing[0]:,} of these left out, as the corpus lacks the function"
    )
