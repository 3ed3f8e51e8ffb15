"""Searchers: each ranks the codes of a benchmark for a query."""
