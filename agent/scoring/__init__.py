"""Scores of labels: against gold, between annotators, by what decided them."""
