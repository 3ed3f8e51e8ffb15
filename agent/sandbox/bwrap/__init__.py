"""The bubblewrap backend. `backend.py` contains its main class."""
