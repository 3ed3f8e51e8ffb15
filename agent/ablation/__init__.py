"""Variants compared on the same pairs: run over shared replies and executions, measured against gold, tabled."""
