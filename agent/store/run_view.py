"""A run for reading: while it goes on, after it ended, on a read-only disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agent.checks import check_type
from agent.datasets import iter_normalised
from agent.errors import RunFolderError
from agent.history import History
from agent.notebook import Annotations, render_table
from agent.store import files
from agent.store.annotations import AnnotationIndex
from agent.store.evidence import EvidenceStore, Price
from agent.store.manifest import count_replies_elsewhere, read_manifest
from agent.types import Annotation, Pair
from agent.wording import render_html_table

if TYPE_CHECKING:
    import pandas

# Runs that a message names; more would hide the rest of it.
_NAMED = 20


def get_criterion(manifest: Mapping[str, Any]) -> str:
    """Return the criterion by which a run's pairs were labelled, `exact` where its manifest names none."""
    pipeline = manifest["identity"].get("pipeline")
    return str(pipeline.get("criterion", "exact")) if isinstance(pipeline, dict) else "exact"


def get_variant_and_model(manifest: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the name of a run's variant, and those of its models as they are requested, joined by `+`."""
    variant, model = (manifest["identity"].get(name) for name in ("variant", "model"))
    models: list[Any] = []
    if isinstance(model, Mapping):
        roles = model.get("roles")
        models = [model.get("default"), *(roles.values() if isinstance(roles, Mapping) else ())]
    names = (str(each.get("model") or each.get("kind")) for each in models if isinstance(each, Mapping))
    return str(variant.get("name")) if isinstance(variant, Mapping) else None, "+".join(dict.fromkeys(names)) or None


def load_run(path: Path | str) -> RunView:
    """Return a view of a run as it is now.

    Raises:
        UsageError: the path is none.
        RunFolderError: the folder is missing, is no run, or is damaged.
    """
    check_type("path", path, (str, Path), "a run's folder")
    path = Path(path)
    if not path.is_dir():
        raise RunFolderError(f"{path}: no such folder")
    if not (path / files.MANIFEST).is_file():
        raise RunFolderError(f"{path}: {_describe_folder(path)}")
    return RunView(path, read_manifest(path / files.MANIFEST))


def _describe_folder(path: Path) -> str:
    runs = [str(each.parent) for each in sorted(path.glob(f"*/{files.MANIFEST}"))]
    if not runs:
        return f"is not the folder of a run (no {files.MANIFEST} in it)"
    listed = ", ".join(runs[:_NAMED]) + (f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else "")
    if (path / files.ABLATION).is_file():
        return f"is the folder of an ablation; give one of its runs: {listed}"
    return f"holds runs, and is none itself; give one of them: {listed}"


class RunView:
    """What a run's folder holds; takes no lock and writes nothing."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.manifest = document

    @cached_property
    def _store(self) -> EvidenceStore:
        return EvidenceStore(self.path / files.EVIDENCE, read_only=True)

    @cached_property
    def index(self) -> AnnotationIndex:
        """Where each annotation is, as of the first use."""
        return AnnotationIndex(self.path / files.ANNOTATIONS)

    def annotations(self) -> Iterator[Annotation]:
        """Yield the last annotation of each pair and round."""
        return iter(self.index)

    def annotation(self, pair_id: str, round: int = 0) -> Annotation | None:
        """Return the last annotation of a pair and round, None when there is none."""
        return self.index.get((pair_id, round))

    def spent_usd(self, price: Price | None = None) -> float | None:
        """Return what was paid for the run so far, in dollars; None when that is not known.

        `price` gives the cost of tokens for which no price was known when they were paid.

        Raises:
            RunFolderError: the file of evidence is damaged.
        """
        return self._store.spent_usd(price) if self.has_evidence else None

    def spent_tokens(self) -> int | None:
        """Return the tokens, in and out, that were paid for the run so far; None when that is not known.

        Raises:
            RunFolderError: the file of evidence is damaged.
        """
        return self._store.spent_tokens() if self.has_evidence else None

    @property
    def replies_elsewhere(self) -> dict[str, int]:
        """How many replies came from servers that the last start did not ask, by their address."""
        return count_replies_elsewhere(self.manifest)

    @property
    def has_evidence(self) -> bool:
        """Whether the file of evidence is there: somebody may have left it out when passing on the run."""
        return (self.path / files.EVIDENCE).exists()

    def evidence(self, pair_id: str, round: int = 0) -> History | None:
        """Return the evidence of a pair and round, None when there is none.

        Raises:
            RunFolderError: the file is missing or damaged.
        """
        return self._store.get(pair_id, round)

    def pairs(self) -> Iterator[Pair]:
        """Yield the run's input, in its order."""
        return iter_normalised(self.path / files.INPUT)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each annotation.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        return Annotations(self.annotations()).to_pandas()

    def __repr__(self) -> str:
        variant, model = get_variant_and_model(self.manifest)
        return f"<{type(self).__name__} of {str(self.path)!r}: {variant=}, {model=}>"

    def _repr_html_(self) -> str:
        variant, model = get_variant_and_model(self.manifest)
        values = [("run", self.path), ("variant", variant), ("model", model), ("annotations", len(self.index))]
        return render_html_table(values) + render_table(self.annotations())

    def close(self) -> None:
        """Close the files; closing twice does nothing."""
        if "_store" in vars(self):
            self._store.close()
            del self._store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
