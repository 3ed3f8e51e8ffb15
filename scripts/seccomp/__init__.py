"""What programs in a sandbox may ask of the kernel (`rules.py`), and how the filters are made of it (`filters.py`)."""
