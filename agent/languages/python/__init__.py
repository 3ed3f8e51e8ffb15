"""Support for Python snippets and test programs."""
