"""Readers of published benchmarks, one module per format."""
