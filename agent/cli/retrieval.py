"""Declares `agent retrieval` and its options. Each command imports its implementation when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.declaring import SettingsCommand, add_options
from agent.cli.options import AsJson, PoolOptions, Without

app = typer.Typer(no_args_is_help=True, help="Measure how well code searchers answer queries.")

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder written by `agent retrieval run`, such as RUN/retrieval.")
]
_METRIC = "Metric such as nDCG@10, RR, AP or R@100. Repeatable"
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help=f"{_METRIC} [default: nDCG@10, RR, AP, R@10 and others]."),
]
ComparedMetrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help=f"{_METRIC} [default: those of the last `agent retrieval score`]."),
]


@app.command()
def run(
    benchmark: Annotated[
        Path, typer.Argument(metavar="BENCHMARK", help="Folder of a run, or file or folder of a published benchmark.")
    ],
    searcher: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="bow, tfidf, bm25, bm25-lucene, lsa, ncs, ncs-word2vec, ncs-postrank, hf:NAME or openai:MODEL. "
            "Repeatable.",
        ),
    ],
    codes: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="File of the codes to search, if separate from the benchmark. Repeatable."),
    ] = None,
    code_view: Annotated[
        Literal["full", "no-docstring", "signature", "body"], typer.Option(help="Part of each code to search.")
    ] = "full",
    depth: Annotated[int, typer.Option(min=1, help="Maximum number of codes in each ranking.")] = 1000,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write [default: RUN/retrieval or runs/retrieval-NAME]."),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Language of the codes, if the benchmark has several languages.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of a BEIR folder [default: test].")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="URL of the server of openai:MODEL [default: OPENAI_BASE_URL].")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that an hf:NAME model contains.")
    ] = False,
    pooling: Annotated[
        Literal["cls", "mean", "last", "own"] | None, typer.Option(help="Pooling of an hf:NAME model without a recipe.")
    ] = None,
    query_prefix: Annotated[
        str | None, typer.Option(help="Text before each query for an hf:NAME model without a recipe.")
    ] = None,
    code_prefix: Annotated[
        str | None, typer.Option(help="Text before each code for an hf:NAME model without a recipe.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank a benchmark's codes for each query with searchers.

    Run the same command again to resume.
    """
    from agent.cli.retrieval_run import run
    from agent.retrieval.folder import BenchmarkSource
    from agent.retrieval.searchers.recipes import EmbedderOptions

    source = BenchmarkSource(path=str(benchmark), codes=codes or [], language=language, split=split)
    options = EmbedderOptions(
        base_url=base_url,
        trust_remote_code=trust_remote_code,
        pooling=pooling,
        query_prefix=query_prefix,
        code_prefix=code_prefix,
    )
    run(source, searcher, out, code_view=code_view, depth=depth, options=options, as_json=as_json)


@app.command()
def score(
    folder: Folder,
    ranking: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="TREC run file of another searcher. Repeatable.")
    ] = None,
    metric: Metrics = None,
    queries: Annotated[
        Literal["with-positives", "all"] | None,
        typer.Option(
            help="Whether to count queries without a relevant code, with a score of 0 [default: with-positives; for "
            "aroma, all]."
        ),
    ] = None,
    judge: Annotated[
        Literal["labels", "benchmark", "aroma"],
        typer.Option(
            help="Source of relevance: benchmark and annotator (labels), benchmark only, or similarity to the answers "
            "(aroma)."
        ),
    ] = "labels",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples of the queries.")] = 2000,
    alpha: Annotated[
        bool,
        typer.Option("--alpha", help="Also report the stability of each metric over test sets (Cronbach's alpha)."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score rankings, with confidence intervals.

    Writes scores.json, and per-query scores to scores.csv and scores.jsonl.
    """
    from agent.cli.retrieval_score import score
    from agent.evaluation.statistics import BootstrapSettings

    score(
        folder,
        ranking or [],
        metric or [],
        judge=judge,
        which=queries,
        settings=BootstrapSettings(seed=seed, resamples=resamples),
        alpha=alpha,
        as_json=as_json,
    )


@app.command()
def compare(
    folder: Folder,
    metric: ComparedMetrics = None,
    searcher: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Compare only these searchers [default: all]. Repeatable.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare all others with this one [default: all pairs of searchers]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test the differences between searchers for significance.

    Uses a paired bootstrap and a randomisation test on the same queries, with Holm-adjusted p-values. Judge, queries
    and seed are those of the last `agent retrieval score`.
    """
    from agent.cli.retrieval_score import compare

    compare(folder, metric or [], searcher or [], against, as_json=as_json)


@app.command(cls=SettingsCommand)
@add_options
def judge(
    folder: Folder,
    depth: Annotated[int, typer.Option(min=1, help="Number of top results to judge in each ranking, plus ties.")] = 10,
    without: Without = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the size of the pool and the cost of judging it, without judging."),
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="With --dry-run: base the estimate on this run of the same variant."),
    ] = None,
    *,
    options: PoolOptions,
) -> None:
    """Judge unjudged search results with the annotator.

    Prints how the judgements change every metric. Run the same command again to resume, or to judge new
    search results.
    """
    from agent.cli.retrieval_judge import run

    run(folder, depth, tuple(without or ()), options, dry_run=dry_run, like=like)
