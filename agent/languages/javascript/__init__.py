"""JavaScript and TypeScript, which run in Node."""
