"""Time and memory of every node of a graph, and how that is shown."""
