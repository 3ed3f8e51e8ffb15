"""Builds candidate pairs from raw material: filters queries, extracts codes, and proposes pairs to annotate."""
