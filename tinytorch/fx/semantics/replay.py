"""Running a random op a second time with the numbers of the first."""

from __future__ import annotations

import operator
from typing import Any, cast

from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx import Node


def replay(first: Node, again: Node) -> Node:
    """Make the first run save the generator's state and the second one use it.

    Both nodes are replaced; returns the one for the second run.
    """
    graph, target, copied = first.graph, cast(Any, first.target), cast(Any, again.target)
    with graph.inserting_before(first):
        arguments = (target, *first.args)
        saved = graph.call_function(run_and_save_rng_state, arguments, dict(first.kwargs))
        state = graph.call_function(operator.getitem, (saved, 0))
        value = graph.call_function(operator.getitem, (saved, 1))
    with graph.inserting_before(again):
        arguments = (state, copied, *again.args)
        replayed = graph.call_function(run_with_rng_state, arguments, dict(again.kwargs))
    for new in (saved, state, value):
        new.meta = {k: v for k, v in first.meta.items() if k != "val"}
    value.meta, replayed.meta = dict(first.meta), dict(again.meta)
    for old, new in ((first, value), (again, replayed)):
        old.replace_all_uses_with(new)
        graph.erase_node(old)
    return replayed
