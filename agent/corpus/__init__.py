"""Builds candidate pairs from raw material: filters queries, extracts functions, and proposes pairs to annotate."""
