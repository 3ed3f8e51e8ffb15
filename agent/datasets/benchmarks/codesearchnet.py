"""CodeSearchNet's challenge: human ratings of 99 queries in six languages, joined with the corpus by GitHub URL.

github.com/github/CodeSearchNet: `resources/annotationStore.csv` has the columns `Language,Query,GitHubUrl,Relevance,
Notes`, a row per rating from 0 to 3, and a pair may have several. The corpus (README, "Schema & Format") is JSON lines
with `url`, `code`, `original_string` and `language`. Not all rated functions are in it: what was searched for ratings
are the `*_dedupe_definitions_v2.pkl`, "a superset of all functions even those that do not have comments"
(resources/README.md), with the text in `function`. The copy on Hugging Face calls url and code `func_code_url` and
`whole_func_string`.
"""

from __future__ import annotations

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import InputError
from agent.wording import plural

# The rating "exact match"; a pair with one is relevant, as CoSQA+ counts them (399 for Python, over 95 queries).
_MOST = 3


def read_challenge(builder: BenchmarkBuilder) -> None:
    """Read the ratings in one language. A pair with any rating of 3 is relevant; another pair is judged not relevant.

    Codes have their URLs as ids, queries their numbers in the whole file, so that they are the same in each language.

    Raises:
        InputError: a file is malformed, there are no ratings in the language, or none of its codes is in the corpus.
    """
    judged = dict[tuple[str, str], tuple[int, BenchmarkRow]]()
    numbers, languages = dict[str, str](), dict[str, None]()
    for row in read_rows(builder.path):
        query, language = row.text("Query"), row.text("Language").lower()
        number, rating = numbers.setdefault(query, str(len(numbers) + 1)), row.grade("Relevance")
        if not 0 <= rating <= _MOST:
            raise row.error(f"'Relevance' is {rating}; a rating from 0 to {_MOST} expected")
        languages[language] = None
        if language == builder.language:
            builder.queries[number] = query
            key = (number, row.text("GitHubUrl").strip())
            judged[key] = max(judged.get(key, (0, row)), (int(rating == _MOST), row), key=lambda each: each[0])
    if not builder.queries:
        raise InputError(f"has no ratings in {builder.language}; there are {', '.join(languages)}", path=builder.path)
    builder.name += f"-{builder.language}"
    _add_corpus(builder)
    _add_grades(builder, judged)


def _add_corpus(builder: BenchmarkBuilder) -> None:
    repeated = 0
    for file in builder.request.codes:
        for row in read_rows(file):
            if str(row.fields.get("language", builder.language)).lower() != builder.language:
                continue
            url = row.text("url", "func_code_url").strip()
            if builder.has_code(url):
                repeated += 1
            else:
                builder.add_code(url, row.text("code", "original_string", "whole_func_string", "function"), row)
    if repeated:
        builder.notes.append(f"{plural(repeated, 'function')} of the corpus with the URL of an earlier one left out")


def _add_grades(builder: BenchmarkBuilder, judged: dict[tuple[str, str], tuple[int, BenchmarkRow]]) -> None:
    missing, matches = [0, 0], [query for (query, _), (grade, _) in judged.items() if grade]
    for (query, url), (grade, row) in judged.items():
        if builder.has_code(url):
            builder.add_grade(query, url, grade, row)
        else:
            missing[grade] += 1
    over = plural(len(set(matches)), "query", "queries")
    builder.notes.append(
        f"{plural(len(matches), 'relevant pair')} over {over}, {len(judged) - len(matches):,} judged not relevant; "
        f"{missing[1]:,} and {missing[0]:,} of these left out, as the corpus lacks the function"
    )
