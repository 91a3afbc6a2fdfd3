"""Less memory for more arithmetic: what of the forward to compute again in the backward.

For our graphs and for torch.fx's alike: what differs between them, `Semantics` says. To read: the
problem, a walk, muTWO's choice, the frontier, the rewriting. The search by segments is denser; it
is what finds good plans for models with hundreds of layers.

walk               going through the backward under a plan, event by event
problem            the graph as a problem, and what a plan takes, to the byte
budget             how a budget is written, and which plans are within it
mutwo              muTWO's greedy choice
segments           the graph as a chain of segments
segment_search     dynamic programming over the segments
frontier           all strategies together, and the best of their plans improved
rewrite            a plan becomes a graph
"""
