"""Evaluation of runs: scores against gold labels, ablations, cost forecasts and replays."""
