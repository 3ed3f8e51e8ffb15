"""Trains code searchers on labelled pairs, with the recipes of the source papers."""
