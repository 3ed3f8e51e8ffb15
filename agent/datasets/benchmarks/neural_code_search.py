"""Neural Code Search: 287 questions about Android, and a corpus of 4,716,814 methods.

github.com/facebookresearch/Neural-Code-Search-Evaluation-Dataset: `data/287_android_questions.json` is an array of
`{"stackoverflow_id", "question", "answer", "examples", ...}`; `examples` are ids of the corpus. The corpus,
`search_corpus_1.jsonl` and `_2.jsonl`, has `{"id", "filepath", "method_name", "start_line", "end_line", "url"}` per
line, "GitHub link to the method body", and no bodies: whoever reads it has joined them as `code`.
"""

from __future__ import annotations

from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.building import Building, Row, Wanted, named, rows
from agent.errors import InputError
from agent.wording import counted

_JOIN = (
    "no method has its source: the published corpus has links alone; add to each line, as `code`, the lines "
    "`start_line` to `end_line` of the file at its `url`"
)


def questions(path: Path, wanted: Wanted) -> Benchmark:
    """Read the questions: `examples` are relevant, `answer` is an answer; no other method was judged.

    Questions have the numbers of their rows as ids, since one Stack Overflow id occurs twice.

    Raises:
        UsageError: no codes are given.
        InputError: a file is malformed, or the corpus has no code.
    """
    wanted.check_codes(path, "search_corpus_*.jsonl with the field code")
    building, without = Building(), 0
    for file in wanted.codes:
        for row in rows(file):
            if row.fields.get("code") is None:
                without += 1
            else:
                building.add_code(row.identifier("id"), row.text("code"), row)
    if not building.codes:
        raise InputError(_JOIN, path=wanted.codes[0])
    missing = 0
    for number, row in enumerate(rows(path), start=1):
        building.add_query(str(number), row.text("question"), row)
        building.answers[str(number)] = row.text("answer")
        for example in _examples(row):
            if building.has_code(example):
                building.add_grade(str(number), example, 1, row)
            else:
                missing += 1
    if without:
        building.notes.append(f"{counted(without, 'method')} without `code` left out")
    if missing:
        building.notes.append(f"{counted(missing, 'example')} not in the corpus left out")
    return building.done(named(path), path, wanted.language or "java")


def _examples(row: Row) -> list[str]:
    examples = row.value("examples")
    if not isinstance(examples, list) or any(isinstance(one, bool) or not isinstance(one, int) for one in examples):
        raise row.error("'examples' is no list of ids of the corpus")
    return [str(example) for example in examples]
