"""Languages with a tree-sitter grammar. Only this package imports `tree_sitter`."""
