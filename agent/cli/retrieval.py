"""Declares `agent retrieval` and its options; what the commands do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.declaring import SettingsCommand, add_options
from agent.cli.options import AsJson, PoolOptions, Without

app = typer.Typer(no_args_is_help=True, help="Measure how well code searchers find the codes that answer queries.")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="What `agent retrieval run` wrote: RUN/retrieval.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="As in nDCG@10, RR, AP, R@100. Repeatable [default: a selection]."),
]


@app.command()
def run(
    benchmark: Annotated[
        Path, typer.Argument(metavar="BENCHMARK", help="A run's folder, or a published benchmark: file or folder.")
    ],
    searcher: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="bow, tfidf, bm25, bm25-lucene, lsa, ncs, ncs-word2vec, ncs-postrank, hf:NAME, openai:MODEL. "
            "Repeatable.",
        ),
    ],
    codes: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Codes to search, where they lie apart. Repeatable.")
    ] = None,
    code_view: Annotated[
        Literal["full", "no-docstring", "signature", "body"], typer.Option(help="What of each code is searched.")
    ] = "full",
    depth: Annotated[int, typer.Option(min=1, help="How many codes are kept of each query.")] = 1000,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The folder [default: RUN/retrieval, runs/retrieval-NAME].")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Of the codes, where the benchmark has several.")] = None,
    split: Annotated[str | None, typer.Option(help="Of a BEIR folder [default: test].")] = None,
    base_url: Annotated[str | None, typer.Option(help="Where openai:MODEL is [default: OPENAI_BASE_URL].")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with an hf:MODEL.")
    ] = False,
    pooling: Annotated[
        Literal["cls", "mean", "last", "own"] | None, typer.Option(help="Of an hf:MODEL without a recipe.")
    ] = None,
    query_prefix: Annotated[str | None, typer.Option(help="What such a model wants before a query.")] = None,
    code_prefix: Annotated[str | None, typer.Option(help="What such a model wants before a code.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have searchers rank a benchmark's codes for each of its queries. The same command again goes on."""
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
        list[str] | None, typer.Option(metavar="NAME=FILE", help="A TREC run file of your own searcher. Repeatable.")
    ] = None,
    metric: Metrics = None,
    queries: Annotated[
        Literal["with-positives", "all"] | None,
        typer.Option(
            help="Whether queries without a relevant code count, as 0 [default: with-positives; by aroma all]."
        ),
    ] = None,
    judge: Annotated[
        Literal["labels", "benchmark", "aroma"],
        typer.Option(
            help="Who says what is relevant: the benchmark's and the annotator's labels, the benchmark's alone, or "
            "similarity to the answers."
        ),
    ] = "labels",
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="How often the bootstrap draws queries.")] = 2000,
    alpha: Annotated[
        bool, typer.Option("--alpha", help="Add each metric's stability over test sets, with Cronbach's alpha.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score rankings by labels, with intervals: scores.json, and per query scores.csv, scores.jsonl."""
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
    metric: Metrics = None,
    searcher: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Compare only these searchers [default: all]. Repeatable.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Test all others against this one [default: all pairs]."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test the differences between searchers on the same queries: paired bootstrap and randomisation, Holm's p-values.

    Judge, queries and seed are those of the last `score`, and so are the metrics unless some are named.
    """
    from agent.cli.retrieval_score import compare

    compare(folder, metric or [], searcher or [], against, as_json=as_json)


@app.command(cls=SettingsCommand)
@add_options
def judge(
    folder: Folder,
    depth: Annotated[int, typer.Option(min=1, help="How far down each ranking, with all that tie there.")] = 10,
    without: Without = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only print the size of the pool and the cost of judging it."),
    ] = False,
    like: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --dry-run: estimate by this run's annotations.")
    ] = None,
    *,
    options: PoolOptions,
) -> None:
    """Have the annotator judge what searchers found and nobody judged, and show what that changes in every metric.

    The same command resumes where it stopped, and adds what searchers found since.
    """
    from agent.cli.retrieval_judge import run

    run(folder, depth, tuple(without or ()), options, dry_run=dry_run, like=like)
