"""Describe a module to the model that writes test programs for one of its functions."""

from __future__ import annotations

from agent.types import Origin


def build_outline(source: str, origin: Origin, max_lines: int) -> str:  # noqa: ARG001
    """Return how a program imports the function or class of `origin`."""
    name = origin.name if origin.class_name is None else origin.class_name.partition(".")[0]
    return f"from {origin.module} import {name}"
