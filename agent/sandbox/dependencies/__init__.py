"""Dependency environments: import names to requirements, package indexes, installation and stores."""
