"""Training torch's models within a memory budget. What to compute again is `graph/recompute`'s.

mincut.py          PyTorch's own choice as one more strategy
known.py           frontiers that were found before, on disk; announce.py: how far a search is
partition.py       a rewritten graph as a forward and a backward
checkpointing.py   the model that trains within a budget
swapping.py        values that wait in the host's memory, simulated; swap_search.py: which ones
swap_report.py     a model's best plan with swapping beside the one without
"""
