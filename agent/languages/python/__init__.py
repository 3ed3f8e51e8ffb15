"""Python as a language of snippets and test programs."""

from __future__ import annotations

from agent.languages.python.language import PythonLanguage
from agent.languages.python.source import newlines_lost

__all__ = ["PythonLanguage", "newlines_lost"]
