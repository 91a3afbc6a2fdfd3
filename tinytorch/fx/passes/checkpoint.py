"""Recomputation of torch graphs under a memory budget, as a pass."""

from __future__ import annotations

from tinytorch.fx.recompute.mincut import STRATEGIES
from tinytorch.graph.passes.base import register_pass
from tinytorch.graph.passes.recompute import Recompute


@register_pass
class Checkpoint(Recompute):
    """`recompute`, with PyTorch's own partitioner among the strategies."""

    name = "checkpoint"
    strategies = STRATEGIES
