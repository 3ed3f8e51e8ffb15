"""Read access to a run: during the run, afterwards, or on a read-only disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agent.datasets.pair_store import iter_normalised
from agent.errors import RunFolderError
from agent.pipeline.history import History
from agent.runs.notebook import Annotations, render_table
from agent.runs.store import files
from agent.runs.store.annotations import AnnotationIndex
from agent.runs.store.evidence import EvidenceStore, Price
from agent.runs.store.manifest import count_replies_elsewhere, read_manifest
from agent.text import render_html_table
from agent.types import Annotation, Pair, check_type

if TYPE_CHECKING:
    import pandas

# Maximum number of runs listed in a message.
_MAX_LISTED = 20


def get_criterion(manifest: Mapping[str, Any]) -> str:
    """Return the labelling criterion of a run (`exact` if the manifest contains none)."""
    pipeline = manifest["identity"].get("pipeline")
    return str(pipeline.get("criterion", "exact")) if isinstance(pipeline, dict) else "exact"


def get_variant_and_model(manifest: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the name of a run's variant, and the requested names of its models joined with `+`."""
    variant, model = (manifest["identity"].get(name) for name in ("variant", "model"))
    models: list[Any] = []
    if isinstance(model, Mapping):
        roles = model.get("roles")
        models = [model.get("default"), *(roles.values() if isinstance(roles, Mapping) else ())]
    names = (str(entry.get("model") or entry.get("kind")) for entry in models if isinstance(entry, Mapping))
    return str(variant.get("name")) if isinstance(variant, Mapping) else None, "+".join(dict.fromkeys(names)) or None


def load_run(path: Path | str) -> RunView:
    """Open a run folder for reading.

    Raises:
        UsageError: `path` is neither a string nor a `Path`.
        RunFolderError: the folder is missing, is not a run, or is damaged.
    """
    check_type("path", path, (str, Path), "a run folder")
    path = Path(path)
    if not path.is_dir():
        raise RunFolderError(f"{path}: no such folder")
    if not (path / files.MANIFEST).is_file():
        raise RunFolderError(f"{path}: {_describe_folder(path)}")
    return RunView(path, read_manifest(path / files.MANIFEST))


def _describe_folder(path: Path) -> str:
    runs = [str(manifest.parent) for manifest in sorted(path.glob(f"*/{files.MANIFEST}"))]
    if not runs:
        return f"is not a run folder (it has no {files.MANIFEST})"
    listing = ", ".join(runs[:_MAX_LISTED]) + (
        f" and {len(runs) - _MAX_LISTED} more" if len(runs) > _MAX_LISTED else ""
    )
    if (path / files.ABLATION).is_file():
        return f"is an ablation folder. Pass one of its runs: {listing}"
    return f"contains runs but is not a run folder. Pass one of them: {listing}"


class RunView:
    """A read-only view of a run folder, without a lock."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.manifest = document

    @cached_property
    def _store(self) -> EvidenceStore:
        return EvidenceStore(self.path / files.EVIDENCE, read_only=True)

    @cached_property
    def index(self) -> AnnotationIndex:
        """The index of the annotations, built on first use."""
        return AnnotationIndex(self.path / files.ANNOTATIONS)

    def annotations(self) -> Iterator[Annotation]:
        """Iterate over the last annotation for each pair and round."""
        return iter(self.index)

    def annotation(self, pair_id: str, round: int = 0) -> Annotation | None:
        """Return the last annotation for a pair and round, or None."""
        return self.index.get((pair_id, round))

    def spent_usd(self, price: Price | None = None) -> float | None:
        """Return the cost of the run so far in US dollars, or None if it is unknown.

        `price` computes the cost of tokens whose price was unknown when they were used.

        Raises:
            RunFolderError: the evidence file is damaged.
        """
        return self._store.spent_usd(price) if self.has_evidence else None

    def spent_tokens(self) -> int | None:
        """Return the number of input and output tokens that the run has used so far, or None if it is unknown.

        Raises:
            RunFolderError: the evidence file is damaged.
        """
        return self._store.spent_tokens() if self.has_evidence else None

    @property
    def replies_elsewhere(self) -> dict[str, int]:
        """The number of replies for each server address that the last session did not use."""
        return count_replies_elsewhere(self.manifest)

    @property
    def has_evidence(self) -> bool:
        """Whether the evidence file exists. A run folder that was shared may lack it."""
        return (self.path / files.EVIDENCE).exists()

    def evidence(self, pair_id: str, round: int = 0) -> History | None:
        """Return the evidence of a pair and round, or None.

        Raises:
            RunFolderError: the evidence file is missing or damaged.
        """
        return self._store.get(pair_id, round)

    def pairs(self) -> Iterator[Pair]:
        """Iterate over the input pairs in input order."""
        return iter_normalised(self.path / files.INPUT)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per annotation.

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
        """Close the files. Calling it again does nothing."""
        if "_store" in vars(self):
            self._store.close()
            del self._store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
