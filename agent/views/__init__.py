"""HTML pages: the report on a run (`agent report`) and the review of its labels (`agent review`)."""
