"""Support for Python snippets and test programs."""

from __future__ import annotations

from agent.languages.python.language import PythonLanguage

__all__ = ["PythonLanguage"]
