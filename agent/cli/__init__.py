"""The command line of the package."""

from __future__ import annotations

from importlib import import_module


def main() -> None:
    """Run the command line. The modules of this package are imported on first use."""
    import_module("agent.cli.entry_point").main()
