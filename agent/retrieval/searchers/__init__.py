"""Contains the searchers. A searcher ranks the codes of a benchmark for each query."""
