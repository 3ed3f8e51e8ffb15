"""Evaluation of runs: scores against gold labels, ablations, forecasts and replays."""
