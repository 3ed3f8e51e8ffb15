"""Implements `agent retrieval audit`, which lists facts about a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agent.cli.progress import Steps
from agent.cli.running import print_input_notes, stoppable
from agent.cli.text import Console, one_line, print_figures, print_json, print_text
from agent.corpus.audit import audit_benchmark
from agent.datasets.formats import expand_patterns
from agent.datasets.groups import read_groups
from agent.datasets.reading import read_dataset
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.folder import AUDIT, BenchmarkSource, is_retrieval_folder, open_for_writing
from agent.runs.store.files import write_document
from agent.views.audit import build_audit_figures


def run(source: BenchmarkSource, against: Sequence[str], equivalents: Path | None, *, as_json: bool) -> None:
    """Audit a benchmark, or the benchmark of a retrieval folder, and print the facts.

    Raises:
        UsageError: an input cannot be read, or options for the benchmark were passed with a retrieval folder.
        StorageError: the audit cannot be written to the folder.
        typer.Exit: the command stopped early, and wrote no file.
    """
    notes, path, options = Console(stderr=True), Path(source.path), source.model_dump(exclude={"path", "codes"})
    with stoppable(notes, "No output was written."), ExitStack() as stack:
        folder = stack.enter_context(open_for_writing(path)) if is_retrieval_folder(path) else None
        if folder is not None and (source.codes or {*options.values()} - {None, "skip"}):
            raise UsageError(f"{path} records its benchmark. Remove the options for the benchmark.")
        with notes.status(f"reading {one_line(str(path))}"):
            benchmark = open_benchmark(path, source.codes, **options) if folder is None else folder.reopen_benchmark()
            training = read_dataset(expand_patterns(against), codes_alone=True) if against else None
            groups = None if equivalents is None else list(read_groups(equivalents))
            texts = set(benchmark.codes.values())
            if groups is not None and not any(member.code in texts for group in groups for member in group.members):
                raise UsageError(f"{equivalents}: contains no function of the benchmark. Pass its own groups.")
        with Steps(notes) as steps:
            audit = audit_benchmark(benchmark, training, groups, folder, progress=steps)
        if folder is not None:
            write_document(folder.path / AUDIT, audit)
    if as_json:
        print_json(audit.model_dump(mode="json"))
    else:
        print_figures(Console(), build_audit_figures(audit))
    if training is not None:
        print_input_notes(training, notes)
    for note in audit.notes:
        print_text(notes, f"note: {note}")
    if folder is not None:
        print_text(notes, f"audit: {folder.path / AUDIT}")
