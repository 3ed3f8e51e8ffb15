"""A run's labels in forms that others load: one module a format, `registry` lists them."""
