"""Sandboxes on a container engine: `backend.py` starts them, the rest is what it is made of."""
