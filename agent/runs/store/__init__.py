"""Files of a run: the run folder and the reply cache that runs share."""
