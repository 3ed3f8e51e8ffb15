"""Sandboxes by bubblewrap: `backend.py` starts them, the rest is what it is made of."""
