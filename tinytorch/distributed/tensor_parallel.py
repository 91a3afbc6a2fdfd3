"""Linear layers whose weight is cut over the ranks.

Source: M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using
Model Parallelism", 2019, section 3.
"""

from __future__ import annotations

from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.distributed.sums import CopyToRanks, ReduceFromRanks
from tinytorch.errors import ProcessGroupError
from tinytorch.nn import Linear, Module, Parameter, functional as F
from tinytorch.tensor import Tensor


def own_rows(parameter: Tensor, dim: int = 0) -> Tensor:
    """This rank's part of a parameter, cut along `dim`.

    Raises:
        ProcessGroupError: the size is no multiple of the number of ranks.
    """
    size, ranks = parameter.shape[dim], get_world_size()
    if size % ranks:
        raise ProcessGroupError(f"dimension {dim} of {parameter.shape} cannot be cut into {ranks}")
    return parameter.detach().narrow(dim, get_rank() * (size // ranks), size // ranks).clone()


class ColumnParallelLinear(Module):
    """y_r = x W_r^T + b_r: each rank computes a part of the outputs, and keeps it to itself.

    Args:
        whole: the layer, the same on all ranks; this one has copies of its own part.
    """

    def __init__(self, whole: Linear) -> None:
        super().__init__()
        self.weight = Parameter(own_rows(whole.weight))
        self.bias = None if whole.bias is None else Parameter(own_rows(whole.bias))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out / N)"""
        return F.linear(CopyToRanks.apply(x), self.weight, self.bias)


class RowParallelLinear(Module):
    """y = sum over r of x_r W_r^T, plus b: takes the parts that a `ColumnParallelLinear` left."""

    def __init__(self, whole: Linear) -> None:
        super().__init__()
        self.weight = Parameter(own_rows(whole.weight, dim=1))
        self.bias = None if whole.bias is None else Parameter(whole.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """(..., in / N) to (..., out), the same on all ranks"""
        y: Tensor = ReduceFromRanks.apply(F.linear(x, self.weight))
        return y if self.bias is None else y + self.bias
