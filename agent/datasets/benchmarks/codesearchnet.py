"""Read the CodeSearchNet challenge: human ratings for 99 queries, joined with the corpus by GitHub URL.

The challenge is published at github.com/github/CodeSearchNet. The ratings cover code in six programming languages.
`resources/annotationStore.csv` has the columns `Language,Query,GitHubUrl,Relevance,Notes`. Each row contains one
rating, from 0 to 3. A pair may have several ratings.

The corpus consists of JSON lines with `url`, `code`, `original_string` and `language` (README, "Schema & Format").
Some rated functions are missing from the corpus, because the raters searched `*_dedupe_definitions_v2.pkl`. This file
contains "a superset of all functions even those that do not have comments" (resources/README.md). It stores the text
in `function`. The copy on Hugging Face has `func_code_url` and `whole_func_string` instead of `url` and `code`.
"""

from __future__ import annotations

from operator import itemgetter

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import InputError
from agent.text import plural

# The rating for an exact match. Only this rating makes a pair relevant, in the same way as in CoSQA+. For Python, this
# yields 399 relevant pairs with 95 queries.
_EXACT = 3


def read_challenge(builder: BenchmarkBuilder) -> None:
    """Read the ratings for one programming language.

    A pair is relevant if at least one of its ratings is 3. All other rated pairs are judged not relevant. The id of a
    function is its URL. Queries are numbered across the whole file, so a query has the same id in every language.

    Raises:
        InputError: a file is malformed, there are no ratings for the language, or the corpus contains no rated code.
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
            f"has no ratings for {builder.language}. Choose another language with --language: {', '.join(languages)}",
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
        builder.notes.append(f"skipped {plural(duplicates, 'function')} with a duplicate URL in the corpus")


def _add_grades(builder: BenchmarkBuilder, ratings: dict[tuple[str, str], tuple[int, BenchmarkRow]]) -> None:
    missing, matches = [0, 0], [query for (query, _), (grade, _) in ratings.items() if grade]
    for (query, url), (grade, row) in ratings.items():
        if builder.has_code(url):
            builder.add_grade(query, url, grade, row)
        else:
            missing[grade] += 1
            builder.judgements.append((query, url, grade))
    queries = plural(len(set(matches)), "query", "queries")
    builder.notes.append(
        f"{plural(len(matches), 'relevant pair')} with {queries}; {len(ratings) - len(matches):,} judged not relevant; "
        f"skipped because their functions are not in the corpus: {missing[1]:,} relevant and {missing[0]:,} other pairs"
    )
