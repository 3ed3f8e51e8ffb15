"""Neural Code Search: 287 questions about Android, and a corpus of 4,716,814 methods.

github.com/facebookresearch/Neural-Code-Search-Evaluation-Dataset: `data/287_android_questions.json` is an array of
`{"stackoverflow_id", "question", "answer", "examples", ...}`; `examples` are ids of the corpus. The corpus,
`search_corpus_1.jsonl` and `_2.jsonl`, has `{"id", "filepath", "method_name", "start_line", "end_line", "url"}` per
line, "GitHub link to the method body", and no bodies: whoever reads it has joined them as `code`.
"""

from __future__ import annotations

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import InputError
from agent.wording import plural

_JOIN = (
    "no method has its source: the published corpus has links alone; add to each line, as `code`, the lines "
    "`start_line` to `end_line` of the file at its `url`"
)


def read_questions(builder: BenchmarkBuilder) -> None:
    """Read the questions. `examples` are relevant, `answer` is an answer, and no other method was judged.

    Questions have the numbers of their rows as ids, since one Stack Overflow id occurs twice.

    Raises:
        InputError: a file is malformed, or the corpus has no code.
    """
    builder.language = builder.request.language or "java"
    without = 0
    for file in builder.request.codes:
        for row in read_rows(file):
            if row.fields.get("code") is None:
                without += 1
            else:
                builder.add_code(row.identifier("id"), row.text("code"), row)
    if not builder.codes:
        raise InputError(_JOIN, path=builder.request.codes[0])
    missing = 0
    for number, row in enumerate(read_rows(builder.path), start=1):
        builder.add_query(str(number), row.text("question"), row)
        builder.answers[str(number)] = row.text("answer")
        for example in _examples(row):
            if builder.has_code(example):
                builder.add_grade(str(number), example, 1, row)
            else:
                missing += 1
    if without:
        builder.notes.append(f"{plural(without, 'method')} without `code` left out")
    if missing:
        builder.notes.append(f"{plural(missing, 'example')} not in the corpus left out")


def _examples(row: BenchmarkRow) -> list[str]:
    examples = row.value("examples")
    if not isinstance(examples, list) or any(isinstance(one, bool) or not isinstance(one, int) for one in examples):
        raise row.error("'examples' is no list of ids of the corpus")
    return [str(example) for example in examples]
