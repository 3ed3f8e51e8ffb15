"""SQL snippets, which run on SQLite in Python programs."""
