"""Adds rankings to a retrieval folder, from a searcher or from another tool's run file."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TextIO

from agent.datasets.benchmark import Benchmark
from agent.errors import InputError, UsageError
from agent.retrieval.folder import RankingRecord, RetrievalFolder
from agent.retrieval.rankings import format_trec, read_trec
from agent.retrieval.searchers.base import Searcher
from agent.runs.store.manifest import as_json
from agent.types import Progress

_LIBRARIES = ("bm25s", "faiss", "gensim", "numpy", "openai", "scipy", "sentence_transformers", "sklearn", "torch")


def has_ranking(folder: RetrievalFolder, searcher: Searcher) -> bool:
    """Return whether the folder has a ranking computed by this searcher with its current settings."""
    record = folder.rankings.get(searcher.name)
    return record is not None and record.kind == "searched" and record.settings == as_json(searcher.settings)


def search(
    folder: RetrievalFolder,
    benchmark: Benchmark,
    texts: Sequence[str],
    searcher: Searcher,
    progress: Progress,
    notes: Sequence[str] = (),
) -> RankingRecord:
    """Run a searcher on all queries and add its ranking to the folder.

    `texts` contains the snippets in the selected view. `notes` on these texts are stored in the manifest.

    Peak memory is the maximum resident set size of this process during indexing and search, including the benchmark.
    Only Linux can reset this maximum. On other systems, it covers the lifetime of the process.

    Raises:
        ExtraMissing, UsageError, RunStopped: see `Searcher.index` and `Searcher.search`.
        RunFolderError, StorageError: see `RetrievalFolder.add_ranking`.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    start = time.perf_counter()
    searcher.index(texts, progress)
    search_start = time.perf_counter()
    codes, depth = list(benchmark.codes), folder.identity["depth"]

    def write(file: TextIO) -> RankingRecord:
        lines = 0
        results = searcher.search(list(benchmark.queries.values()), depth, progress)
        for done, (query, result) in enumerate(zip(benchmark.queries, results, strict=True), 1):
            hits = zip(result.positions, result.scores.tolist(), strict=True)
            scores = {codes[position]: score for position, score in hits}
            file.writelines(format_trec(query, scores, searcher.name))
            lines += len(scores)
            progress("searching", done, len(benchmark.queries))
        return RankingRecord(
            kind="searched",
            about=searcher.about,
            notes=[*notes, *getattr(searcher, "notes", ())],
            settings=as_json(searcher.settings),
            training=getattr(searcher, "training", None),
            seconds={"index": search_start - start, "search": time.perf_counter() - search_start},
            peak_memory_mb=_measure_peak_memory_mb(),
            libraries=_get_library_versions(),
            found=lines,
            depth=min(depth, len(codes)),
        )

    return folder.add_ranking(searcher.name, write)


def import_ranking(folder: RetrievalFolder, benchmark: Benchmark, name: str, path: Path) -> RankingRecord:
    """Import another tool's run file. A snippet that replaces merged duplicates gets the best score of the duplicates.

    Raises:
        UsageError: the folder already has a ranking computed by a searcher with this name.
        InputError: the file cannot be read, is malformed, or contains a query or snippet that is not in the benchmark.
        RunFolderError, StorageError: see `RetrievalFolder.add_ranking`.
    """
    if name in folder.rankings and folder.rankings[name].kind == "searched":
        raise UsageError(
            f"--ranking {name}={path}: the folder already has a searcher named {name}. Choose another name."
        )

    def check(query: str, code: str) -> None:
        if query not in benchmark.queries:
            raise ValueError(
                f"query {query[:80]!r} is not one of the {len(benchmark.queries):,} queries in {folder.path}"
            )
        if code not in benchmark.codes and code not in benchmark.duplicates:
            raise ValueError(
                f"snippet {code[:80]!r} is not one of the {len(benchmark.codes):,} snippets in {folder.path}"
            )

    def write(file: TextIO) -> RankingRecord:
        sizes = []
        for query, scores in read_trec(path, check):
            items: dict[str, float] = {}
            for code, score in scores.items():
                item = benchmark.duplicates.get(code, code)
                items[item] = max(score, items.get(item, score))
            file.writelines(format_trec(query, items, name))
            sizes.append(len(items))
        if not sizes:
            raise InputError("contains no rankings", path=path)
        # A cut gives most queries the same number of snippets. Otherwise, the tool returned the snippets that it found.
        is_cut = 2 * sizes.count(max(sizes)) > len(benchmark.queries)
        depth = min(max(sizes), folder.identity["depth"]) if is_cut else None
        return RankingRecord(kind="taken", about=f"imported from {path.name}", found=sum(sizes), depth=depth)

    return folder.add_ranking(name, write)


def _measure_peak_memory_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _get_library_versions() -> dict[str, str]:
    distributions, imported = packages_distributions(), [module for module in _LIBRARIES if module in sys.modules]
    return {name: version(name) for module in imported for name in distributions.get(module, ())[:1]}
