"""Read Neural Code Search: 287 questions about Android and a corpus of 4,716,814 methods.

The benchmark is published at github.com/facebookresearch/Neural-Code-Search-Evaluation-Dataset.
`data/287_android_questions.json` is an array of `{"stackoverflow_id", "question", "answer", "examples", ...}`.
`examples` contains ids of methods in the corpus.

The corpus consists of `search_corpus_1.jsonl` and `_2.jsonl`. Each line contains `{"id", "filepath", "method_name",
"start_line", "end_line", "url"}`. `url` is a "GitHub link to the method body", but the bodies are not included. Users
must add each body in a `code` field.
"""

from __future__ import annotations

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import InputError
from agent.text import plural

_MISSING_CODE = (
    "no method has a `code` field. The published corpus contains only links. In each record, add a `code` field that "
    "contains lines `start_line` through `end_line` of the file at `url`"
)


def read_questions(builder: BenchmarkBuilder) -> None:
    """Read the questions. The methods in `examples` are relevant, and all other methods are unjudged.

    The `answer` field becomes the benchmark's answer to the question. The id of a question is its row number, because
    one Stack Overflow id occurs twice.

    Raises:
        InputError: a file is malformed, or the corpus has no code.
    """
    builder.language = builder.request.language or "java"
    without_code = 0
    for file in builder.request.codes:
        for row in read_rows(file):
            if row.fields.get("code") is None:
                without_code += 1
            else:
                builder.add_code(row.get_id("id"), row.get_text("code"), row)
    if not builder.codes:
        raise InputError(_MISSING_CODE, path=builder.request.codes[0])
    missing = 0
    for number, row in enumerate(read_rows(builder.path), start=1):
        builder.add_query(str(number), row.get_text("question"), row)
        builder.answers[str(number)] = row.get_text("answer")
        for example in _read_examples(row):
            if builder.has_code(example):
                builder.add_grade(str(number), example, 1, row)
            else:
                missing += 1
                builder.judgements.append((str(number), example, 1))
    if without_code:
        builder.notes.append(f"skipped {plural(without_code, 'method')} without a `code` field")
    if missing:
        builder.notes.append(f"skipped {plural(missing, 'example')} not found in the corpus")


def _read_examples(row: BenchmarkRow) -> list[str]:
    examples = row.get_value("examples")
    if not isinstance(examples, list) or any(
        isinstance(example, bool) or not isinstance(example, int) for example in examples
    ):
        raise row.build_error("'examples' must be a list of whole numbers (ids in the corpus)")
    return [str(example) for example in examples]
