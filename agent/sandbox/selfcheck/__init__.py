"""Checks that a sandbox backend must pass before it runs untrusted programs. `run.py` runs all of them."""
