"""Labels many pairs: the specification, the run, its batches or Ray workers, and the run folder."""
