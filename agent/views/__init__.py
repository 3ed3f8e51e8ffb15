"""HTML pages: the report on a run (`agent report`) and the page for reviewing its labels (`agent review`)."""
