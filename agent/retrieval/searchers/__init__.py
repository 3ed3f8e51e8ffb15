"""Contains the searchers. A searcher ranks the snippets of a benchmark for each query."""
