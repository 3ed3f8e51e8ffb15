"""Tools for maintainers; nothing here is part of the installed package."""
