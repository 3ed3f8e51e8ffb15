"""Options of the `agent corpus` commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli.options import (
    AsJson,
    CallOptions,
    Codes,
    Formats,
    Language,
    Map,
    ReplayOptions,
    RunOptions,
    SearcherOptions,
    Split,
)

Force = Annotated[bool, typer.Option("--force", help="Replace existing output.")]


@dataclass(frozen=True)
class QueriesOptions:
    """Options for `agent corpus queries`."""

    rules: Annotated[str, typer.Option(metavar="NAME|FILE", help="Rules: cosqa, none, or a YAML file.")] = "cosqa"
    field_map: Map = None
    min_words: Annotated[int, typer.Option(min=1, help="Minimum number of words in a query.")] = 1
    max_words: Annotated[int | None, typer.Option(min=1, help="Maximum number of words [default: no limit].")] = None
    labelled: Annotated[Path | None, typer.Option(metavar="FILE", help="Labelled queries to test the rules.")] = None
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class CodeOptions:
    """Options for `agent corpus code`."""

    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="NAME",
            help="Rules that functions must meet: cosqa-plus (has a parameter and returns a value) or cosqa "
            "(is documented in English). Repeatable.",
        ),
    ] = None
    language: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep only code that parses as this language, such as python or javascript."),
    ] = None
    exclude: Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Paths to leave out. Repeatable.")] = None
    with_tests: Annotated[bool, typer.Option("--with-tests", help="Extract the functions of tests too.")] = False
    clusters: Annotated[bool, typer.Option(help="Group functions that are nearly equal.")] = True
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes [default: all cores].")] = None
    field_map: Map = None
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class MutateOptions(ReplayOptions):
    """Options for `agent corpus mutate`."""

    mutants: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of mutants per snippet.")] = 20
    field_map: Map = None
    force: Force = False


@dataclass(frozen=True)
class EquivalentsOptions(ReplayOptions):
    """Options for `agent corpus equivalents`."""

    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write queries with functions that are equivalent to relevant ones (.jsonl)."
        ),
    ] = None
    codes: Codes = None
    split: Split = None
    field_map: Map = None
    force: Force = False


@dataclass(frozen=True)
class StackExchangeOptions:
    """Options for `agent corpus stackexchange`."""

    languages: Annotated[
        str, typer.Option(metavar="NAME,…", help="Tags of the languages to keep [default: those of ProCQA].")
    ] = "c,c++,java,python,ruby,lisp,javascript,c#,go,rust,php"
    site: Annotated[str, typer.Option(metavar="HOST", help="Site of the dump, for links to posts and authors.")] = (
        "stackoverflow.com"
    )
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class CandidatesOptions(SearcherOptions):
    """Options for `agent corpus candidates`."""

    combine: Annotated[
        Literal["mean", "repository", "rrf"],
        typer.Option(
            help="How to combine searchers: mean of cosines (mean), sum of scores scaled per query (repository), or "
            "reciprocal rank fusion (rrf). Searchers without vectors, such as bm25, require rrf."
        ),
    ] = "mean"
    top: Annotated[int, typer.Option(min=1, help="Number of candidates for each query.")] = 20
    min_similarity: Annotated[float | None, typer.Option(min=-1, max=1, help="Minimum cosine. Requires mean.")] = None
    max_uses: Annotated[int | None, typer.Option(min=1, help="Maximum number of pairs for each snippet.")] = None
    pilot: Annotated[int | None, typer.Option(min=1, metavar="N", help="Draw N queries, and use only these.")] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed for --pilot.")] = 0
    field_map: Map = None
    embeddings: Annotated[Path | None, typer.Option(help="Folder for vectors [default: next to FILE].")] = None
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class DecontaminateOptions:
    """Options for `agent corpus decontaminate`."""

    field_map: Map = None
    codes: Codes = None
    language: Language = None
    split: Split = None
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class SplitOptions:
    """Options for `agent corpus split`."""

    by: Annotated[
        Literal["query", "code", "repository", "time", "pair"],
        typer.Option(
            help="What the parts do not share: queries (query); queries and code (code); queries and repositories "
            "(repository); time: the latest pairs are test. With pair, parts share queries and code."
        ),
    ] = "query"
    ratios: Annotated[str | None, typer.Option(metavar="A:B:C", help="Shares of the parts [default: 8:1:1].")] = None
    sizes: Annotated[str | None, typer.Option(metavar="B,C", help="Numbers of validation and test pairs.")] = None
    positives_only: Annotated[
        str | None,
        typer.Option(metavar="PART,…", help="Parts (validation, test) with label 1 only. Requires --sizes."),
    ] = None
    field: Annotated[str | None, typer.Option(help="Field for --by [default: repository or created].")] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0
    field_map: Map = None
    to: Annotated[
        Formats,
        typer.Option(help="Output format (hf: for load_dataset). `describe` reads all but beir and cosqa-plus."),
    ] = "hf"
    force: Force = False
    as_json: AsJson = False


@dataclass(frozen=True)
class AnswerOptions(CallOptions):
    """Options for `agent corpus answer`."""

    language: Annotated[str | None, typer.Option(help="Language of the questions [default: all].")] = None
    split: Annotated[str, typer.Option(help="Split with the questions.")] = "test"
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Ask only the first N questions.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output file.")] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class FillOptions(RunOptions):
    """Options for `agent corpus fill`, which tests each snippet once."""

    engine: Literal["local", "ray"] | None = None
    address: str | None = None
    rounds: int | None = None
    context: Literal["none", "module"] | None = None
    out: Path | None = None
    limit: Annotated[int | None, typer.Option(min=1, help="Fill only the first N queries without a match.")] = None
    field_map: str | None = None
    on_bad_line: Literal["fail", "skip"] = "fail"
    unsupported: Literal["fail", "judge", "skip"] = "fail"
