"""People look at a run's pairs and say what they think: which pairs, what is shown when, and the page."""
