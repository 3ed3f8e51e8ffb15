"""Declares the `agent retrieval` commands and their options. Each command imports its implementation when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agent.cli.declaring import Group, add_options
from agent.cli.options import (
    AccessOptions,
    AsJson,
    Codes,
    Language,
    LocalModelOptions,
    Map,
    OnUnknownId,
    PoolOptions,
    Split,
    Without,
)
from agent.errors import UsageError

app = typer.Typer(cls=Group, no_args_is_help=True, help="Measure how well code searchers answer queries.")

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder written by `agent retrieval run`, such as RUN/retrieval.")
]
WithGenerated = Annotated[bool, typer.Option("--with-generated", help="Use unreviewed generated code.")]
_METRIC = "Metric to compute, such as nDCG@10, RR, AP or R@100. Repeatable"
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help=f"{_METRIC} [default: nDCG@10, RR, AP, R@10 and others]."),
]
ComparedMetrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", metavar="NAME", help=f"{_METRIC} [default: the metrics of the last `agent retrieval score`]."
    ),
]


@app.command()
@add_options
def run(
    benchmark: Annotated[
        Path, typer.Argument(metavar="BENCHMARK", help="Run folder, or the file or folder of a published benchmark.")
    ],
    searcher: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Searcher to run: bow, tfidf, bm25, bm25-lucene, lsa, ncs, ncs-word2vec, ncs-postrank, "
            "minilm, hf:NAME, openai:MODEL or model:FOLDER (a folder written by `agent train`). Repeatable.",
        ),
    ],
    codes: Codes = None,
    code_view: Annotated[
        Literal["full", "no-docstring", "signature", "body"], typer.Option(help="Part of each snippet to search.")
    ] = "full",
    depth: Annotated[int, typer.Option(min=1, help="Maximum number of snippets to retrieve per query.")] = 1000,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Output folder [default: RUN/retrieval or runs/retrieval-NAME]."),
    ] = None,
    language: Language = None,
    split: Split = None,
    field_map: Map = None,
    with_generated: WithGenerated = False,
    on_unknown_id: OnUnknownId = "fail",
    as_json: AsJson = False,
    *,
    options: LocalModelOptions,
) -> None:
    """Run searchers that rank a benchmark's snippets for each query.

    Run the same command again to resume.
    """
    from agent.cli.retrieval_run import run
    from agent.retrieval.folder import BenchmarkSource
    from agent.retrieval.searchers.presets import EmbedderOptions

    arguments: dict[str, Any] = {"path": str(benchmark), "codes": codes or [], "language": language, "split": split}
    arguments |= {"with_generated": with_generated, "mapping": field_map, "on_unknown_id": on_unknown_id}
    source = BenchmarkSource.model_validate(arguments)
    embedder = EmbedderOptions(**vars(options))
    run(source, searcher, out, code_view=code_view, depth=depth, options=embedder, as_json=as_json)


@app.command()
@add_options
def score(
    folder: Folder,
    ranking: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="TREC run file to import as searcher NAME. Repeatable."),
    ] = None,
    metric: Metrics = None,
    queries: Annotated[
        Literal["with-positives", "all"] | None,
        typer.Option(
            help="Queries to average over. With `all`, queries without a relevant snippet score 0 [default: "
            "with-positives, or all with --judge aroma]."
        ),
    ] = None,
    judge: Annotated[
        Literal["labels", "benchmark", "aroma"],
        typer.Option(
            help="Source of relevance judgements: benchmark and annotator (labels), benchmark only (benchmark), or "
            "similarity to the answers (aroma)."
        ),
    ] = "labels",
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples of the queries.")] = 2000,
    stability: Annotated[
        bool,
        typer.Option(
            "--stability", help="Also report the stability of each metric across test sets (Cronbach's alpha)."
        ),
    ] = False,
    mutants: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File written by `agent corpus mutate`. Measure how often the searchers prefer right code to mutants, "
            "instead of scoring the rankings.",
        ),
    ] = None,
    reviews: Annotated[
        bool,
        typer.Option(
            "--reviews", help="Correct P@k and DCG@k by the queries that you reviewed with `agent review --queries`."
        ),
    ] = False,
    searcher: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --mutants or --reviews: searcher to measure. The others are compared with the first "
            "[default: all]. Repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    options: AccessOptions,
) -> None:
    """Score the rankings in a folder and compute confidence intervals.

    Writes the mean scores to scores.json, and the scores for each query to scores.csv and scores.jsonl. With --mutants,
    runs the searchers again on the file and writes blindness.json. With --reviews, writes no file.
    """
    from agent.cli.retrieval_score import score, score_blindness, score_reviewed
    from agent.evaluation.statistics import BootstrapSettings
    from agent.retrieval.searchers.presets import EmbedderOptions

    settings = BootstrapSettings(seed=seed, resamples=resamples)
    if reviews:
        if ranking or queries or stability or mutants is not None or judge != "labels":
            raise UsageError("--reviews cannot be combined with options for other scores. Run the command twice.")
        score_reviewed(folder, metric or [], searcher or [], settings=settings, as_json=as_json)
    elif mutants is not None:
        if ranking or metric or queries or stability or judge != "labels":
            raise UsageError("--mutants cannot be combined with options for scores. Run the command twice.")
        access = EmbedderOptions(**vars(options))
        score_blindness(folder, mutants, searcher or [], options=access, settings=settings, as_json=as_json)
    elif searcher:
        raise UsageError(
            "--searcher needs --mutants FILE or --reviews. To compare some searchers only, use: agent retrieval compare"
        )
    else:
        score(
            folder,
            ranking or [],
            metric or [],
            judge=judge,
            which=queries,
            settings=settings,
            alpha=stability,
            as_json=as_json,
        )


@app.command()
def compare(
    folder: Folder,
    metric: ComparedMetrics = None,
    searcher: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Searcher to compare [default: all searchers]. Repeatable.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Baseline to compare all other searchers with [default: compare all pairs]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test the differences between searchers for significance.

    Runs a paired bootstrap test and a randomisation test on the same queries. The p-values are Holm-adjusted. The
    judge, queries and seed are taken from the last `agent retrieval score`.
    """
    from agent.cli.retrieval_score import compare

    compare(folder, metric or [], searcher or [], against, as_json=as_json)


@app.command()
@add_options
def judge(
    folder: Folder,
    depth: Annotated[
        int,
        typer.Option(
            min=1, help="Number of top results to judge for each query and searcher. Ties with the last are included."
        ),
    ] = 10,
    pairs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of `agent corpus equivalents --pairs` with more pairs to judge."),
    ] = None,
    without: Without = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the number of results to judge and the estimated cost, then exit."),
    ] = False,
    *,
    options: PoolOptions,
) -> None:
    """Use the annotator to judge search results that have no judgement yet.

    Prints each metric before and after judging. Run the same command again to resume, or to judge new search results.
    """
    from agent.cli.retrieval_judge import run

    run(folder, depth, pairs, tuple(without or ()), options, dry_run=dry_run)


@app.command()
def audit(
    benchmark: Annotated[
        Path, typer.Argument(metavar="BENCHMARK", help="Benchmark, or folder written by `agent retrieval run`.")
    ],
    codes: Codes = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="TRAIN", help="File of training pairs or snippets to search for leaks. Repeatable."),
    ] = None,
    equivalents: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File written by `agent corpus equivalents`.")
    ] = None,
    language: Language = None,
    split: Split = None,
    field_map: Map = None,
    with_generated: WithGenerated = False,
    as_json: AsJson = False,
) -> None:
    """Report duplicates, contradictory grades, leaks and missing equivalents in a benchmark.

    In a folder of rankings, writes audit.json, which `agent report` shows.
    """
    from agent.cli.retrieval_audit import run
    from agent.retrieval.folder import BenchmarkSource

    arguments: dict[str, Any] = {"path": str(benchmark), "codes": codes or [], "language": language, "split": split}
    arguments |= {"with_generated": with_generated, "mapping": field_map, "on_unknown_id": "skip"}
    run(BenchmarkSource.model_validate(arguments), against or [], equivalents, as_json=as_json)
