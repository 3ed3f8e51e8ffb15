"""Implements `agent retrieval run`, which runs searchers on a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.cli.progress import Steps
from agent.cli.retrieval_score import print_notes
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.datasets.benchmark import Benchmark
from agent.errors import UsageError
from agent.retrieval.benchmark import open_benchmark
from agent.retrieval.code_views import apply_code_view
from agent.retrieval.folder import (
    EMBEDDINGS,
    JUDGEMENTS,
    RETRIEVAL_FOLDER,
    BenchmarkSource,
    RankingRecord,
    RetrievalFolder,
    encode_file_name,
    prepare_folder,
)
from agent.retrieval.search import has_ranking, search
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.runs.store import files
from agent.text import plural
from agent.views.searchers import build_search_table


def run(
    source: BenchmarkSource,
    names: Sequence[str],
    out: Path | None,
    *,
    code_view: str,
    depth: int,
    options: EmbedderOptions,
    as_json: bool,
) -> None:
    """Run the searchers that have no ranking yet, and print the time and peak memory of each searcher.

    Raises:
        UsageError: the benchmark cannot be read, a searcher is not available, or the folder belongs to another
            benchmark.
        typer.Exit: the command stopped early. To resume, run the same command again.
    """
    notes, path, named = Console(stderr=True), Path(source.path), out is not None
    out = out or choose_folder(path)
    if len(set(names)) < len(names):
        raise UsageError(f"--searcher: {', '.join(names)}. Pass each searcher only once.")
    with notes.status(f"reading {one_line(str(path))}"):
        benchmark = open_benchmark(path, source.codes, **source.model_dump(exclude={"path", "codes"}))
    searchers = [make_searcher(name, replace(options, embeddings=out / EMBEDDINGS)) for name in names]
    check_writable(out, None, named=named)
    sizes = f"{plural(len(benchmark.queries), 'query', 'queries')}, {plural(len(benchmark.codes), 'snippet')}"
    print_text(notes, f"{benchmark.name}: {sizes}")
    for note in benchmark.notes:
        print_text(notes, f"note: {note}")
    with prepare_folder(out, benchmark, source, code_view=code_view, depth=depth) as folder:
        _search(folder, benchmark, searchers, code_view, notes)
        records = {searcher.name: folder.rankings[searcher.name] for searcher in searchers}
    if as_json:
        print_json(
            {
                "folder": str(out),
                **folder.identity,
                "searchers": {name: record.model_dump() for name, record in records.items()},
            }
        )
    else:
        _print(out, records, has_labels=bool(benchmark.grades) or (out / JUDGEMENTS).exists())
    print_notes(folder)


def choose_folder(benchmark: Path) -> Path:
    """Return the default folder for rankings: in the run folder if the benchmark is a run, otherwise in `runs/`."""
    if (benchmark / files.ANNOTATIONS).is_file():
        return benchmark / RETRIEVAL_FOLDER
    return Path("runs") / f"retrieval-{encode_file_name(benchmark.resolve().name.split('.')[0]) or 'benchmark'}"


def _search(
    folder: RetrievalFolder, benchmark: Benchmark, searchers: Sequence[Searcher], code_view: str, notes: Console
) -> None:
    unfinished = [searcher for searcher in searchers if not has_ranking(folder, searcher)]
    for searcher in searchers:
        if searcher not in unfinished:
            print_text(notes, f"{searcher.name}: finished earlier")
    if not unfinished:
        return

    def describe_complete() -> str:
        done = [searcher.name for searcher in searchers if has_ranking(folder, searcher)]
        return f"Complete rankings in {folder.path}: {', '.join(done)}." if done else ""

    with stoppable(notes, describe_complete), Steps(notes) as steps:
        texts, view_notes = apply_code_view(benchmark, code_view, steps)
        for note in view_notes:
            print_text(notes, f"note: {note}")
        for searcher in unfinished:
            steps.prefix = f"{searcher.name}: "
            record = search(folder, benchmark, texts, searcher, steps, view_notes)
            for note in record.notes[len(view_notes) :]:
                print_text(notes, f"note: {searcher.name}: {note}")


def _print(out: Path, records: Mapping[str, RankingRecord], *, has_labels: bool) -> None:
    console = Console()
    print_table(console, build_search_table(records))
    step = "score" if has_labels else "judge"
    print_text(console, f"rankings: {out / 'rankings'}\nNext: agent retrieval {step} {out}")
