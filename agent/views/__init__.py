"""What people look at: a run as a page to read (`agent report`), and its pairs to label (`agent review`)."""
