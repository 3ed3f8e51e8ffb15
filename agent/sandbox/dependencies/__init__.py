"""From an import's name to an environment that sandboxes can use: requirements, wheels, download and store."""
