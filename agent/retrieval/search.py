"""One searcher over one benchmark, and rankings of others taken in: what a retrieval folder is filled with."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import packages_distributions, version
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.errors import InputError, UsageError
from agent.retrieval.folder import Ranked, RetrievalFolder
from agent.retrieval.rankings import read_trec, trec_lines
from agent.retrieval.searchers.base import Progress, Searcher
from agent.store.manifest import as_json

_LIBRARIES = ("bm25s", "faiss", "gensim", "numpy", "openai", "scipy", "sentence_transformers", "sklearn", "torch")


def is_done(folder: RetrievalFolder, searcher: Searcher) -> bool:
    """Say whether a searcher's ranking is there, made with the same settings."""
    found = folder.rankings.get(searcher.name)
    return found is not None and found.kind == "searched" and found.settings == as_json(searcher.settings)


def search(
    folder: RetrievalFolder,
    benchmark: Benchmark,
    texts: Sequence[str],
    searcher: Searcher,
    progress: Progress,
    notes: Sequence[str] = (),
) -> Ranked:
    """Search all queries and keep the ranking, which is there once it is whole.

    `texts` are the codes as searched, `notes` what a reader must know of them.

    Peak memory is the highest resident size of this process while it indexed and searched, the benchmark itself
    included; where the system cannot set the mark back (anywhere but on Linux), it is that since the process began.

    Raises:
        ExtraMissing, UsageError, RunStopped: as the searcher's methods.
        StorageError: the ranking cannot be written.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    started = time.perf_counter()
    searcher.index(texts, progress)
    indexed, lines = time.perf_counter(), 0
    codes = list(benchmark.codes)
    with folder.adding(searcher.name) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        results = searcher.search(list(benchmark.queries.values()), folder.identity["depth"], progress)
        for done, (query, found) in enumerate(zip(benchmark.queries, results, strict=True), 1):
            scores = {codes[at]: score for at, score in zip(found.positions, found.scores.tolist(), strict=True)}
            file.writelines(trec_lines(query, scores, searcher.name))
            lines += len(scores)
            progress("searching", done, len(benchmark.queries))
    ranked = Ranked(
        kind="searched",
        about=searcher.about,
        notes=[*notes, *getattr(searcher, "notes", ())],
        settings=as_json(searcher.settings),
        seconds={"index": indexed - started, "search": time.perf_counter() - indexed},
        peak_memory_mb=_peak_memory_mb(),
        libraries=_versions(),
        found=lines,
    )
    folder.added(searcher.name, ranked)
    return ranked


def take(folder: RetrievalFolder, benchmark: Benchmark, name: str, path: Path) -> Ranked:
    """Copy somebody else's run file into the folder; of codes that are one item here, the best score counts.

    Raises:
        UsageError: the name is that of a searcher that was run here.
        InputError: the file cannot be read, is malformed, or names a query or a code that the benchmark does not have.
        StorageError: it cannot be written.
    """
    if name in folder.rankings and folder.rankings[name].kind == "searched":
        raise UsageError(f"--ranking {name}={path}: {name} is a searcher that was run here; choose another name")

    def check(query: str, code: str) -> None:
        if query not in benchmark.queries:
            raise ValueError(f"the query {query[:80]!r} is not among the {len(benchmark.queries):,} of {folder.path}")
        if code not in benchmark.codes and code not in benchmark.same:
            raise ValueError(f"the code {code[:80]!r} is not among the {len(benchmark.codes):,} of {folder.path}")

    lines = 0
    with folder.adding(name) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        for query, found in read_trec(path, check):
            scores: dict[str, float] = {}
            for code, score in found.items():
                item = benchmark.same.get(code, code)
                scores[item] = max(score, scores.get(item, score))
            file.writelines(trec_lines(query, scores, name))
            lines += len(scores)
        if not lines:
            raise InputError("holds no ranking", path=path)
    ranked = Ranked(kind="taken", about=f"taken from the file {path.name}", found=lines)
    folder.added(name, ranked)
    return ranked


def _peak_memory_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that are loaded, by distribution."""
    known = packages_distributions()
    return {name: version(name) for each in _LIBRARIES if each in sys.modules for name in known.get(each, ())[:1]}
