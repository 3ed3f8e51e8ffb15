"""BEIR: `corpus.jsonl`, `queries.jsonl`, and qrels both as BEIR's table and in the form of TREC."""

from __future__ import annotations

from pathlib import Path

from agent.datasets.encoding import dumps
from agent.exports.rows import Export, TextNumbers
from agent.wording import counted


def write(export: Export, folder: Path) -> None:
    """Write the labelled pairs of an export: equal code is one document, equal query one query.

    Pairs without a label are left out, as are those of one query and one code that have different labels. Qrels are of
    queries with a match alone: on the others every ranking is as bad, and a mean over them says nothing.

    Raises:
        OSError: a file cannot be written.
    """
    queries, documents = TextNumbers(), TextNumbers()
    judged: dict[tuple[int, int], int | None] = {}
    repeated = 0
    with (folder / "queries.jsonl").open("wb") as query_file, (folder / "corpus.jsonl").open("wb") as corpus:
        for row in export.rows(labelled=True):
            label = row["label"]
            query, is_new = queries.of(row["query"])
            if is_new:
                query_file.write(dumps({"_id": f"q{query}", "text": row["query"]}) + b"\n")
            document, is_new = documents.of(row["code"])
            if is_new:
                corpus.write(dumps({"_id": f"d{document}", "title": "", "text": row["code"]}) + b"\n")
            repeated += (query, document) in judged
            if judged.setdefault((query, document), label) != label:
                judged[query, document] = None
    matched = {query for (query, _), label in judged.items() if label == 1}
    _write_qrels(folder / "qrels", {key: label for key, label in judged.items() if key[0] in matched})
    sizes = f"{counted(len(queries), 'query', 'queries')} · {counted(len(documents), 'document')}"
    export.notes.append(f"{sizes} · qrels of the {len(matched):,} with a match")
    if repeated:
        differing = list(judged.values()).count(None)
        export.notes.append(
            f"{counted(repeated, 'pair')} with the query and code of an earlier one; {differing:,} of these judgements "
            "left out, as their labels differ"
        )


def _write_qrels(folder: Path, judged: dict[tuple[int, int], int | None]) -> None:
    folder.mkdir()
    with (folder / "test.tsv").open("w") as beir, (folder / "test.trec").open("w") as trec:
        beir.write("query-id\tcorpus-id\tscore\n")
        for (query, document), label in judged.items():
            if label is not None:
                beir.write(f"q{query}\td{document}\t{label}\n")
                trec.write(f"q{query} 0 d{document} {label}\n")
