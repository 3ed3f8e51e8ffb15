"""Metrics."""

DEFAULT = ("nDCG@10", "RR", "AP", "MMRR", "R@10", "R@100", "P@5", "Success@1", "Success@5", "Success@10", "Judged@10")
"""The metrics that are computed unless others are named."""
