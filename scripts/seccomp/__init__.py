"""The rules for system calls in sandboxes (`rules.py`), and the code that generates the filters (`filters.py`)."""
