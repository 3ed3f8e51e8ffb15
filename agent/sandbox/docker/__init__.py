"""The Docker backend. Start reading at `backend.py`."""
