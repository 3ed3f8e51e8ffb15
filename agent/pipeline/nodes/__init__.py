"""The steps of the pipeline. `registry.py` says how to add one."""
