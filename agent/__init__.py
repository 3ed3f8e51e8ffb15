"""Decide whether code exactly matches a search query by running a test in a sandbox.

import agent

for annotation in agent.annotate([{"query": "reverse a string", "code": "..."}], model="gpt-4o-mini"):
    print(annotation.label, annotation.reason)
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent import errors as errors
    from agent import events as events
    from agent.annotator import Annotator as Annotator
    from agent.config import Config as Config
    from agent.datasets.reading import Dataset as Dataset
    from agent.datasets.reading import read_pairs as read_pairs
    from agent.languages.base import Language as Language
    from agent.llm.base import LLM as LLM
    from agent.llm.base import ScriptedLLM as ScriptedLLM
    from agent.pipeline.graph import Variant as Variant
    from agent.pipeline.history import History as History
    from agent.pipeline.state import Node as Node
    from agent.runs.notebook import Annotations as Annotations
    from agent.runs.store.run_view import RunView as RunView
    from agent.runs.store.run_view import load_run as load_run
    from agent.sandbox.base import SandboxBackend as SandboxBackend
    from agent.sandbox.scripted import ScriptedSandbox as ScriptedSandbox
    from agent.settings import read_settings as read_settings
    from agent.sync import annotate as annotate
    from agent.sync import stream as stream
    from agent.types import Annotation as Annotation
    from agent.types import Pair as Pair
    from agent.types import TestReport as TestReport
    from agent.types import Usage as Usage

__version__ = "0.1.0"

_HOMES = {
    "Annotation": "agent.types",
    "Annotations": "agent.runs.notebook",
    "Annotator": "agent.annotator",
    "Config": "agent.config",
    "Dataset": "agent.datasets.reading",
    "History": "agent.pipeline.history",
    "LLM": "agent.llm.base",
    "Language": "agent.languages.base",
    "Node": "agent.pipeline.state",
    "Pair": "agent.types",
    "RunView": "agent.runs.store.run_view",
    "SandboxBackend": "agent.sandbox.base",
    "ScriptedLLM": "agent.llm.base",
    "ScriptedSandbox": "agent.sandbox.scripted",
    "TestReport": "agent.types",
    "Usage": "agent.types",
    "Variant": "agent.pipeline.graph",
    "annotate": "agent.sync",
    "errors": "agent.errors",
    "events": "agent.events",
    "load_run": "agent.runs.store.run_view",
    "read_pairs": "agent.datasets.reading",
    "read_settings": "agent.settings",
    "stream": "agent.sync",
}

__all__ = [*_HOMES]

logging.getLogger("agent").addHandler(logging.NullHandler())  # the importing application decides where logs go


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, which keeps `import agent` fast."""
        if name not in _HOMES:
            raise AttributeError(f"module 'agent' has no attribute {name!r}")
        home = import_module(_HOMES[name])
        return home if _HOMES[name] == f"agent.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__version__"]
