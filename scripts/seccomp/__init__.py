"""The rules for system calls in sandboxes (`rules.py`), and the generator of the filters (`filters.py`)."""
