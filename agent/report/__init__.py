"""`agent report`: a run as one HTML file that opens without network."""

from __future__ import annotations

from agent.report.write import Report, Written

__all__ = ["Report", "Written"]
