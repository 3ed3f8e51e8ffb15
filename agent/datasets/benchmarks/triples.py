"""Read folders of `agent corpus stackexchange`, which contain triples like those of ProCQA.

`train.jsonl`, `validation.jsonl` and `test.jsonl` have `id`, `question`, `description`, `query` (question and
description), `answer_id`, `code` (the answer) and `language`. `stackexchange.json` contains counts.
"""

from __future__ import annotations

from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, read_rows
from agent.datasets.benchmarks.pairs import TRIPLES_SUMMARY, find_part_files
from agent.errors import UsageError
from agent.types import normalise_language


def is_triples(folder: Path) -> bool:
    """Return whether `agent corpus stackexchange` wrote a folder."""
    return (folder / TRIPLES_SUMMARY).is_file()


def read_triples(builder: BenchmarkBuilder) -> None:
    """Read the questions of one part in a language, and the answers of all parts (section 3.7 of the ProCQA paper).

    Only the accepted answer of a question is relevant.

    Raises:
        UsageError: the folder has no file for the part, has no triples in the language, or has several languages and
            none is requested.
        InputError: a file is malformed.
    """
    folder, split, language = builder.path, builder.request.split or "test", builder.request.language
    paths, languages = find_part_files(folder), set[str]()
    if split not in paths:
        raise UsageError(f"{folder}: has no file for the split {split!r}. Choose another one with --split.")
    for part, path in paths.items():
        for row in read_rows(path):
            languages.add(own := normalise_language(row.get_text("language")))
            if language is None and len(languages) > 1:
                known = " and ".join(sorted(languages))
                raise UsageError(f"{folder}: contains several languages, such as {known}. Choose one with --language.")
            if language in (None, own):
                answer = row.get_id("answer_id")
                builder.add_code(answer, row.get_text("code"), row)
                if part == split:
                    builder.add_query(query := row.get_id("id"), row.get_text("query"), row)
                    builder.add_grade(query, answer, 1, row)
    if language is not None and language not in languages:
        choices = f": {', '.join(sorted(languages))}" if languages else ""
        raise UsageError(f"{folder}: has no triples in {language!r}. Choose another --language{choices}")
    builder.language = language or next(iter(languages), builder.language)
    builder.name += f"-{builder.language}-{split}"
