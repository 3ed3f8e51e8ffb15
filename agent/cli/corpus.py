"""Declares the `agent corpus` commands and their options. Each command imports its implementation when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Turn queries and code into candidate pairs for `agent annotate`.")

Force = Annotated[bool, typer.Option("--force", help="Replace an existing output file.")]


@app.command()
def queries(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Files of queries: one query per line (.txt), or a field with the query."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as queries.jsonl.")],
    rules: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Rules that remove queries: cosqa, none, or a YAML file.")
    ] = "cosqa",
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Field with the query [default: query, doc, text or question].")
    ] = None,
    min_words: Annotated[int, typer.Option(min=1, help="Minimum number of words in a query.")] = 1,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of words in a query [default: no limit].")
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Queries with a `label` field (1: asks for code). Prints how well the rules agree."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Keep the queries that ask for code, and remove duplicates.

    Removed queries are listed in FILE.removed.jsonl with the rule that removed them.
    """
    from agent.cli.corpus_queries import run

    limits = (min_words, max_words)
    run(files, out, rules=rules, field=field, limits=limits, labelled=labelled, force=force, as_json=as_json)


@app.command()
def code(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH…", help="Folders, .py and .ipynb files, or dataset files with a `code` field."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as codes.jsonl.")],
    filter_names: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="NAME",
            help="Rules that codes must meet: cosqa-plus (has a parameter and returns a value) or cosqa "
            "(is documented in English). Repeatable.",
        ),
    ] = None,
    language: Annotated[
        Literal["python"] | None, typer.Option(help="Keep only code that parses as this language.")
    ] = None,
    clusters: Annotated[bool, typer.Option(help="Group codes that are nearly equal.")] = True,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of processes [default: all cores].")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Extract functions and methods from folders, notebooks and datasets.

    Equal codes are merged. Removed codes and damaged files are listed in FILE.removed.jsonl.
    """
    from agent.cli.corpus_code import run

    run(
        paths,
        out,
        filters=filter_names or [],
        language=language,
        clusters=clusters,
        jobs=jobs,
        force=force,
        as_json=as_json,
    )


@app.command()
def candidates(
    queries: Annotated[
        Path, typer.Argument(metavar="QUERIES", help="File of queries, as written by `agent corpus queries`.")
    ],
    codes: Annotated[Path, typer.Argument(metavar="CODES", help="File of codes, as written by `agent corpus code`.")],
    searcher: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Searcher that proposes codes, as in `agent retrieval run`. Repeatable."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as pairs.jsonl.")],
    combine: Annotated[
        Literal["mean", "repository", "rrf"],
        typer.Option(
            help="How to combine searchers: mean of cosines (mean), sum of scores scaled per query (repository), or "
            "reciprocal rank fusion (rrf). Searchers without vectors, such as bm25, require rrf."
        ),
    ] = "mean",
    top: Annotated[int, typer.Option(min=1, help="Number of candidates for each query.")] = 20,
    min_similarity: Annotated[
        float | None,
        typer.Option(min=-1, max=1, metavar="X", help="Minimum mean cosine of a candidate. Requires mean."),
    ] = None,
    max_uses: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum number of queries for each code; the best pairs are kept."),
    ] = None,
    pilot: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Propose pairs for N randomly drawn queries only.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for --pilot.")] = 0,
    embeddings: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for vectors [default: the folder `embeddings` next to FILE]."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="URL of the server for openai:MODEL [default: OPENAI_BASE_URL].")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that an hf:NAME model contains.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Propose codes for each query, as pairs for `agent annotate`.

    Repeat the command to resume after an interruption. Vectors are stored and reused.
    """
    from agent.cli.corpus_candidates import run
    from agent.corpus.candidates import CandidateRules
    from agent.retrieval.searchers.recipes import EmbedderOptions

    run(
        queries,
        codes,
        searcher,
        out,
        rules=CandidateRules(combine=combine, top=top, min_similarity=min_similarity, max_uses=max_uses),
        pilot=pilot,
        seed=seed,
        options=EmbedderOptions(
            embeddings=embeddings or out.with_name("embeddings"),
            base_url=base_url,
            trust_remote_code=trust_remote_code,
        ),
        force=force,
        as_json=as_json,
    )


@app.command()
def describe(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PAIRS|DIR", help="Run folder, file of pairs with labels, or folder of `agent corpus split`."
        ),
    ],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the statistics of a dataset: sizes, texts, matches, parts, sources and licences.

    Matches by candidate rank require pairs of `agent corpus candidates`.
    """
    from agent.cli.corpus_describe import run

    run(dataset, markdown=markdown, as_json=as_json)
