"""Labels one pair: prompts, the graph of nodes, and the history of what happened."""
