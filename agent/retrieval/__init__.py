"""Measures how well code searchers answer queries: searches benchmarks, scores rankings and compares searchers."""
