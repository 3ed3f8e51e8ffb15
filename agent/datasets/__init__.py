"""Read pairs from files and normalise them for a run."""
