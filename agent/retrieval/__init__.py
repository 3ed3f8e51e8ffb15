"""How well searchers find the codes that answer a query: benchmarks searched, rankings measured and compared."""
