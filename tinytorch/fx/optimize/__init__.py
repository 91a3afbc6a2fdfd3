"""`GraphOptimizer`: passes on a model, each checked, and what they brought."""
