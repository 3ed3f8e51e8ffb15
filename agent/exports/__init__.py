"""Exports of a run's labels to other formats. `registry` lists the formats."""
