"""Programming languages that the pipeline supports, behind one interface."""
