"""The bubblewrap backend (`backend.py`) and its parts."""
