"""Declares the `agent corpus` commands and their options. Each command imports its implementation when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.declaring import Group, add_options
from agent.cli.options import (
    AnswerOptions,
    AsJson,
    Codes,
    FillOptions,
    Formats,
    Language,
    Map,
    RunFolder,
    SearcherOptions,
    Split,
)

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Turn queries and code into candidate pairs for `agent annotate`."
)

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
    field_map: Map = None,
    min_words: Annotated[int, typer.Option(min=1, help="Minimum number of words in a query.")] = 1,
    max_words: Annotated[int | None, typer.Option(min=1, help="Maximum number of words [default: no limit].")] = None,
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
    run(files, out, field_map, rules=rules, limits=limits, labelled=labelled, force=force, as_json=as_json)


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
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Files or folders to leave out of folders, such as docs. Repeatable."),
    ] = None,
    with_tests: Annotated[bool, typer.Option("--with-tests", help="Extract the functions of tests too.")] = False,
    clusters: Annotated[bool, typer.Option(help="Group codes that are nearly equal.")] = True,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes [default: all cores].")] = None,
    field_map: Map = None,
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
        field_map,
        filters=filter_names or [],
        language=language,
        exclude=exclude or [],
        with_tests=with_tests,
        clusters=clusters,
        jobs=jobs,
        force=force,
        as_json=as_json,
    )


@app.command()
def stackexchange(
    posts: Annotated[
        Path, typer.Argument(metavar="POSTS", help="File Posts.xml of a Stack Exchange dump, or - for standard input.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    languages: Annotated[
        str, typer.Option(metavar="NAME,…", help="Tags of the languages to keep [default: those of ProCQA].")
    ] = "c,c++,java,python,ruby,lisp,javascript,c#,go,rust,php",
    site: Annotated[
        str, typer.Option(metavar="HOST", help="Site of the dump, for links to posts and authors.")
    ] = "stackoverflow.com",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build triples (question, description, answer) from a Stack Exchange dump.

    Keeps questions with an accepted answer. Splits the triples of each language by date.
    """
    from agent.cli.corpus_stackexchange import run

    run(posts, out, languages=languages, site=site, force=force, as_json=as_json)


@app.command()
@add_options
def answer(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `agent corpus stackexchange`.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as answers.jsonl.")],
    *,
    options: AnswerOptions,
) -> None:
    """Ask a model for answers to questions. Repeat the command to resume after an interruption."""
    from agent.cli.corpus_answer import run

    run(folder, out, options)


@app.command()
@add_options
def candidates(
    queries: Annotated[
        Path, typer.Argument(metavar="QUERIES", help="File of queries, as written by `agent corpus queries`.")
    ],
    codes: Annotated[Path, typer.Argument(metavar="CODES", help="File of codes, as written by `agent corpus code`.")],
    searcher: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Searcher that proposes codes, such as model:FOLDER; see `agent retrieval run`. Repeatable.",
        ),
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
    pilot: Annotated[int | None, typer.Option(min=1, metavar="N", help="Draw N queries, and use only these.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for --pilot.")] = 0,
    field_map: Map = None,
    embeddings: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for vectors [default: the folder `embeddings` next to FILE]."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    *,
    options: SearcherOptions,
) -> None:
    """Propose codes for each query, as pairs for `agent annotate`.

    Repeat the command to resume after an interruption. Vectors are stored and reused.
    """
    from agent.cli.corpus_candidates import run
    from agent.corpus.candidates import CandidateRules
    from agent.retrieval.searchers.presets import EmbedderOptions

    rules = CandidateRules(
        combine=combine, top=top, min_similarity=min_similarity, max_uses=max_uses, pilot=pilot, seed=seed
    )
    embedder = EmbedderOptions(embeddings or out.with_name("embeddings"), **vars(options))
    run(queries, codes, searcher, out, field_map, rules=rules, options=embedder, force=force, as_json=as_json)


@app.command()
@add_options
def fill(
    run_folder: RunFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as filled.jsonl.")],
    variant: Annotated[str, typer.Option(metavar="NAME|FILE", help="Variant that tests every code.")] = "no_screen",
    snippets_per_query: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number to write.")] = 3,
    force: Force = False,
    *,
    options: FillOptions,
) -> None:
    """Ask a model for code for each query of a run that has no match, and keep the code that passes a test."""
    from agent.cli.corpus_fill import run

    run(run_folder, out, variant, snippets_per_query, force=force, options=options)


@app.command()
def decontaminate(
    pairs: Annotated[
        str, typer.Argument(metavar="PAIRS", help="File of pairs or of codes, or a pattern such as 'pairs/*.jsonl'.")
    ],
    benchmark: Annotated[
        list[str],
        typer.Option(metavar="BENCHMARK", help="Benchmark to compare with, as in `agent retrieval run`. Repeatable."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write, such as clean.jsonl.")],
    field_map: Map = None,
    codes: Codes = None,
    language: Language = None,
    split: Split = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Remove pairs, or codes, whose query or code is also in a benchmark.

    A pair is removed if its query contains a whole query of the benchmark (of three or more words), or if its code
    equals a code of the benchmark or is nearly equal. A second file, such as clean.removed.jsonl, lists these pairs.
    """
    from agent.cli.corpus_decontaminate import run

    run(
        pairs,
        benchmark,
        out,
        field_map,
        codes=codes or [],
        force=force,
        as_json=as_json,
        language=language,
        split=split,
    )


@app.command()
def split(
    path: Annotated[
        Path, typer.Argument(metavar="RUN|PAIRS", help="Run folder, or file of pairs with a `label` field.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    by: Annotated[
        Literal["query", "code", "repository", "time", "pair"],
        typer.Option(
            help="What the parts do not share: queries (query); queries and codes (code); queries and repositories "
            "(repository); time: the latest pairs are test. With pair, parts share queries and codes."
        ),
    ] = "query",
    ratios: Annotated[
        str | None, typer.Option(metavar="A:B:C", help="Shares of train, validation and test [default: 8:1:1].")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="B,C", help="Numbers of pairs in validation and test, instead of --ratios.")
    ] = None,
    positives_only: Annotated[
        str | None,
        typer.Option(
            metavar="PART,…",
            help="Parts (validation, test) that keep only pairs with label 1. Their other pairs are dropped. Requires "
            "--sizes, which count the kept pairs.",
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Field for --by repository or time [default: repository or created]."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    field_map: Map = None,
    to: Annotated[
        Formats,
        typer.Option(help="Output format (hf: for load_dataset). `describe` reads all but beir and cosqa-plus."),
    ] = "hf",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing split.")] = False,
    as_json: AsJson = False,
) -> None:
    """Split labelled pairs into train, validation and test.

    Queries stay together with their near duplicates. Dropped pairs are listed in DIR/removed.jsonl, and DIR/split.json
    records the split.
    """
    from agent.cli.corpus_split import run
    from agent.corpus.split import FIELDS, SplitRules
    from agent.errors import UsageError

    if ratios and sizes:
        raise UsageError("--ratios cannot be combined with --sizes. Pass one of them.")
    if field and by not in FIELDS:
        raise UsageError(f"--field has no effect with --by {by}. Remove it, or pass --by repository or --by time.")
    try:
        shares = tuple(map(float, (ratios or "8:1:1").split(":")))
        counts = tuple(map(int, sizes.split(","))) if sizes else None
    except ValueError:
        raise UsageError("pass numbers, such as --ratios 8:1:1 or --sizes 500,500.") from None
    positives = frozenset(positives_only.split(",") if positives_only else ())
    rules = SplitRules(by, shares, counts, positives, seed, field or FIELDS.get(by, ""))
    run(path, out, field_map, rules=rules, to=to, force=force, as_json=as_json)


@app.command()
def describe(
    dataset: Annotated[
        Path,
        typer.Argument(metavar="RUN|PAIRS|DIR", help="Run folder, file of pairs, or folder with splits."),
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
