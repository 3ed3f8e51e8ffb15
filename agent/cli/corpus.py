"""Declares the `agent corpus` commands and their options. Each command imports its implementation when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.corpus_options import (
    AnswerOptions,
    CandidatesOptions,
    CodeOptions,
    DecontaminateOptions,
    EquivalentsOptions,
    FillOptions,
    Force,
    MutateOptions,
    QueriesOptions,
    SplitOptions,
    StackExchangeOptions,
)
from agent.cli.declaring import Group, add_options
from agent.cli.options import AsJson, Map, RunFolder

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Turn queries and code into candidate pairs for `agent annotate`."
)
OutFile = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="JSON Lines file to write (.jsonl).")]
OutFolder = Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")]


@app.command()
@add_options
def queries(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Text files, or files with a query field.")],
    out: OutFile,
    *,
    options: QueriesOptions,
) -> None:
    """Keep the queries that ask for code, and remove duplicates.

    Removed queries are listed in FILE.removed.jsonl with the rule that removed them.
    """
    from agent.cli.corpus_queries import run

    run(files, out, options)


@app.command()
@add_options
def code(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Folders, Python, notebook and dataset files.")],
    out: OutFile,
    *,
    options: CodeOptions,
) -> None:
    """Extract functions and methods from folders, notebooks and datasets.

    Equal functions are merged. Removed functions and damaged files are listed in FILE.removed.jsonl.
    """
    from agent.cli.corpus_code import run

    run(paths, out, options)


@app.command()
@add_options
def stackexchange(
    posts: Annotated[Path, typer.Argument(metavar="POSTS", help="Posts.xml of a dump, or - for standard input.")],
    out: OutFolder,
    *,
    options: StackExchangeOptions,
) -> None:
    """Build triples (question, description, answer) from a Stack Exchange dump.

    Keeps questions with an accepted answer. Splits the triples of each language by date.
    """
    from agent.cli.corpus_stackexchange import run

    run(posts, out, options)


@app.command()
@add_options
def answer(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `agent corpus stackexchange`.")],
    out: OutFile,
    *,
    options: AnswerOptions,
) -> None:
    """Ask a model for answers to questions. Repeat the command to resume after an interruption."""
    from agent.cli.corpus_answer import run

    run(folder, out, options)


@app.command()
@add_options
def candidates(
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help="File of `agent corpus queries`.")],
    codes: Annotated[Path, typer.Argument(metavar="CODES", help="File of `agent corpus code`.")],
    searcher: Annotated[
        list[str], typer.Option(metavar="NAME", help="Searcher, as in `agent retrieval run`. Repeatable.")
    ],
    out: OutFile,
    *,
    options: CandidatesOptions,
) -> None:
    """Propose snippets for each query, as pairs for `agent annotate`.

    Repeat the command to resume after an interruption. Vectors are stored and reused.
    """
    from agent.cli.corpus_candidates import run

    run(queries, codes, searcher, out, options)


@app.command()
@add_options
def fill(
    run_folder: RunFolder,
    out: OutFile,
    variant: Annotated[str, typer.Option(metavar="NAME|FILE", help="Variant that tests every snippet.")] = "no_screen",
    snippets_per_query: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number to write.")] = 3,
    force: Force = False,
    *,
    options: FillOptions,
) -> None:
    """Ask a model for code for each query of a run that has no match, and keep the code that passes a test."""
    from agent.cli.corpus_fill import run

    run(run_folder, out, variant, snippets_per_query, force=force, options=options)


@app.command()
@add_options
def mutate(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|CODES", help="Run folder, or file of `agent corpus code` or of labelled pairs."),
    ],
    out: OutFile,
    *,
    options: MutateOptions,
) -> None:
    """Make small changes to right code, and keep those that a check proves wrong.

    For a run, the check of a match is its recorded test program. For Python functions, inputs are the check. Mutants
    that survive are listed in FILE.removed.jsonl.
    """
    from agent.cli.corpus_mutate import run

    run(source, out, options)


@app.command()
@add_options
def equivalents(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CODES|BENCHMARK", help="File of snippets, or a benchmark or run as in `agent retrieval run`."
        ),
    ],
    out: OutFile,
    *,
    options: EquivalentsOptions,
) -> None:
    """Group Python functions that return the same results for the same inputs.

    Nothing is labelled: `agent retrieval judge` or a person decides about the proposed pairs. Functions without a group
    are listed in FILE.removed.jsonl with the reason.
    """
    from agent.cli.corpus_equivalents import run

    run(source, out, options)


@app.command()
@add_options
def decontaminate(
    pairs: Annotated[
        str, typer.Argument(metavar="PAIRS", help="File of pairs or of snippets, or a pattern such as 'x/*.jsonl'.")
    ],
    benchmark: Annotated[
        list[str],
        typer.Option(metavar="BENCHMARK", help="Benchmark to compare with, as in `agent retrieval run`. Repeatable."),
    ],
    out: OutFile,
    *,
    options: DecontaminateOptions,
) -> None:
    """Remove pairs, or snippets, whose query or code is also in a benchmark.

    A pair is removed if its query contains a whole query of the benchmark (of three or more words), or if its code
    equals a snippet of the benchmark, or nearly. A second file, such as clean.removed.jsonl, lists these pairs.
    """
    from agent.cli.corpus_decontaminate import run

    run(pairs, benchmark, out, options)


@app.command()
@add_options
def split(
    path: Annotated[
        Path, typer.Argument(metavar="RUN|PAIRS", help="Run folder, or file of pairs with a `label` field.")
    ],
    out: OutFolder,
    *,
    options: SplitOptions,
) -> None:
    """Split labelled pairs into train, validation and test.

    Queries stay together with their near duplicates. Dropped pairs are listed in DIR/removed.jsonl, and DIR/split.json
    records the split.
    """
    from agent.cli.corpus_split import run

    run(path, out, options)


@app.command()
def describe(
    dataset: Annotated[
        Path, typer.Argument(metavar="RUN|PAIRS|DIR", help="Run folder, file of pairs, or folder with splits.")
    ],
    field_map: Map = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the statistics of a dataset: sizes, texts, matches, parts, sources and licences.

    Matches by rank require a field `rank`, which `agent corpus candidates` writes.
    """
    from agent.cli.corpus_describe import run

    run(dataset, field_map, markdown=markdown, as_json=as_json)
