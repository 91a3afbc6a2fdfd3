"""How tensors lie in memory: the order of their dimensions, and copies in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # noqa: F401  (for the examples)
from torch import Tensor


def layout_order(tensor: Tensor) -> list[int]:
    """The dimensions of a tensor in the order of its memory, the one with the largest stride first.

    >>> layout_order(torch.ones(2, 3, 4).permute(2, 0, 1))
    [1, 2, 0]
    """
    strides = _hints(tensor.stride())
    return sorted(range(tensor.ndim), key=lambda d: (-strides[d], d))


def same_layout(a: Tensor, b: Tensor) -> bool:
    """Strides are equal where there is more than one element to step to.

    A size that follows from values is not known in a trace: then there is nothing to compare.
    """
    known = [(_hints(t.shape), _hints(t.stride())) for t in (a, b)]
    if any(n is None for sizes, strides in known for n in (*sizes, *strides)):
        return True
    steps = [[s for n, s in zip(*each, strict=True) if n > 1] for each in known]
    return steps[0] == steps[1]


def relaid_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor in the layout of another of the same shape, as autograd accumulates gradients.

    If the other has gaps or overlaps, the result is contiguous.
    """
    if not is_dense(other):
        return tensor.contiguous()
    order = layout_order(other)
    if _is_contiguous_in(tensor, order):  # asked of the strides: a trace would keep a permute
        return tensor
    return tensor.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def is_dense(tensor: Tensor) -> bool:
    """Whether each element of the memory belongs to exactly one element of the tensor."""
    return _is_contiguous_in(tensor, layout_order(tensor))


def _is_contiguous_in(tensor: Tensor, order: Sequence[int]) -> bool:
    """Whether the elements lie one after the other, the last dimension of the order fastest."""
    expected = 1
    sizes, strides = _hints(tensor.shape), _hints(tensor.stride())
    for d in reversed(order):
        if sizes[d] > 1:
            if strides[d] != expected:
                return False
            expected *= sizes[d]
    return True


def _hints(numbers: Sequence[Any]) -> list[Any]:
    """Open sizes as they are in the example, None if values decide them. Making an int of one would
    fix it."""
    return [n if isinstance(n, int) else n.node.hint for n in numbers]
