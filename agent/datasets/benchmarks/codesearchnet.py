"""Read the CodeSearchNet challenge: human ratings of 99 queries in six languages, joined with the corpus by GitHub URL.

github.com/github/CodeSearchNet: `resources/annotationStore.csv` has the columns `Language,Query,GitHubUrl,Relevance,
Notes`, with one row per rating from 0 to 3; a pair may have several. The corpus (README, "Schema & Format") is JSON
lines with `url`, `code`, `original_string` and `language`. Some rated functions are missing from the corpus, because
the raters searched `*_dedupe_definitions_v2.pkl`. That is "a superset of all functions even those that do not have
comments" (resources/README.md), with the text in `function`. The copy on Hugging Face has `func_code_url` and
`whole_func_string` instead of `url` and `code`.
"""

from __future__ import annotations

from operator import itemgetter

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import InputError
from agent.wording import plural

# The rating "exact match" makes a pair relevant, as in CoSQA+ (399 pairs over 95 queries for Python).
_EXACT = 3


def read_challenge(builder: BenchmarkBuilder) -> None:
    """Read the ratings in one language. A pair with any rating of 3 is relevant; any other pair is judged not relevant.

    The ids of codes are their URLs. The ids of queries are their numbers in the whole file, the same in each language.

    Raises:
        InputError: a file is malformed, the language has no ratings, or none of the rated codes is in the corpus.
    """
    ratings = dict[tuple[str, str], tuple[int, BenchmarkRow]]()
    numbers, languages = dict[str, str](), dict[str, None]()
    for row in read_rows(builder.path):
        query, language = row.get_text("Query"), row.get_text("Language").lower()
        number, rating = numbers.setdefault(query, str(len(numbers) + 1)), row.get_grade("Relevance")
        if not 0 <= rating <= _EXACT:
            raise row.build_error(f"'Relevance' is {rating}; expected a rating from 0 to {_EXACT}")
        languages[language] = None
        if language == builder.language:
            builder.queries[number] = query
            key = (number, row.get_text("GitHubUrl").strip())
            ratings[key] = max(ratings.get(key, (0, row)), (int(rating == _EXACT), row), key=itemgetter(0))
    if not builder.queries:
        raise InputError(
            f"has no ratings for {builder.language}. Choose one with --language: {', '.join(languages)}",
            path=builder.path,
        )
    builder.name += f"-{builder.language}"
    _add_corpus(builder)
    _add_grades(builder, ratings)


def _add_corpus(builder: BenchmarkBuilder) -> None:
    duplicates = 0
    for file in builder.request.codes:
        for row in read_rows(file):
            if str(row.fields.get("language", builder.language)).lower() != builder.language:
                continue
            url = row.get_text("url", "func_code_url").strip()
            if builder.has_code(url):
                duplicates += 1
            else:
                builder.add_code(url, row.get_text("code", "original_string", "whole_func_string", "function"), row)
    if duplicates:
        builder.notes.append(f"skipped {plural(duplicates, 'function')} of the corpus with a duplicate URL")


def _add_grades(builder: BenchmarkBuilder, ratings: dict[tuple[str, str], tuple[int, BenchmarkRow]]) -> None:
    missing, matches = [0, 0], [query for (query, _), (grade, _) in ratings.items() if grade]
    for (query, url), (grade, row) in ratings.items():
        if builder.has_code(url):
            builder.add_grade(query, url, grade, row)
        else:
            missing[grade] += 1
    queries = plural(len(set(matches)), "query", "queries")
    builder.notes.append(
        f"{plural(len(matches), 'relevant pair')} over {queries}, {len(ratings) - len(matches):,} judged not relevant; "
        f"skipped {missing[1]:,} relevant and {missing[0]:,} other pairs, because the corpus lacks their functions"
    )
