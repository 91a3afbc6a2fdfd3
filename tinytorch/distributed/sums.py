"""Sums over the ranks that gradients pass through.

Which of the three a model needs depends on what the ranks do with the result: each function's
gradient is the adjoint of what it does to the tensors of all ranks together.
"""

from __future__ import annotations

from typing import Any

from tinytorch.autograd import Function
from tinytorch.distributed.group import all_reduce
from tinytorch.tensor import Tensor


def summed(x: Tensor) -> Tensor:
    """The sum of the ranks' tensors, in a new one."""
    total = x.detach().clone()
    all_reduce(total)
    return total


class SumOverRanks(Function):
    """The sum, which every rank goes on with in its own way: so the gradients are summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return summed(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return summed(g)


class CopyToRanks(Function):
    """x, the same on every rank, which each uses in its own way. (Megatron's f.)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach().clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return summed(g)


class ReduceFromRanks(Function):
    """The sum, with which all ranks do the same: each has the whole gradient. (Megatron's g.)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return summed(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g
