"""Decides whether code exactly matches a search query, and proves it by running a test in a sandbox."""
