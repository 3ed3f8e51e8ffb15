"""Dependency environments: finds the requirements for imports, queries indexes, and installs and stores packages."""
