"""Less memory for more arithmetic: which activations to compute again, and the rewritten graph.

problem.py         the graph as a problem, and what a plan takes, to the byte
segments.py        the graph as a chain of segments; segment_search.py: dynamic programming over it
mutwo.py           muTWO's greedy choice; mincut.py: PyTorch's own
frontier.py        all strategies together; what is within a budget
known.py           frontiers that were found before, on disk; announce.py: how far a search is
rewrite.py         a plan becomes a graph; partition.py: cut into forward and backward
checkpointing.py   the model that trains within a budget
swapping.py        values that wait in the host's memory, simulated; swap_search.py: which ones
swap_report.py     a model's best plan with swapping beside the one without
"""
