"""In which range the index of an op must be: looked at wherever a graph is run.

Kernels trust an index: beyond the end they would read or write the memory of something else. A
function of `functions/` looks at one before it applies an op; but where that was in a trace, the
values are known only when the graph is run.

    bound_of("take", [zeros(5, 3), index], {})        # (1, 5): operand 1 must be in 0 to 4
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.backends.reference import is_within
from tinytorch.dtypes import Array
from tinytorch.functions.indexing import out_of_range
from tinytorch.op import Params

_BOUNDS: dict[str, tuple[int, Callable[[Sequence[Any], Params], int]]] = {
    "take": (1, lambda operands, _: operands[0].shape[0]),
    "scatter_add": (1, lambda _, params: params["length"]),
    "gather": (1, lambda operands, params: operands[0].shape[params["dim"]]),
    "scatter": (1, lambda operands, params: operands[0].shape[params["dim"]]),
    "cross_entropy": (1, lambda operands, _: operands[0].shape[1]),
    "cross_entropy_backward": (2, lambda operands, _: operands[1].shape[1]),
}


def bound_of(name: str, operands: Sequence[Any], params: Params) -> tuple[int, int] | None:
    """The position of the operand that is an index, and how many places it chooses from.

    Args:
        name: of an op.
        operands: its operands, or what they are like: tensors have shapes.
        params: its parameters.

    Returns:
        None for an op without an index.
    """
    if name not in _BOUNDS:
        return None
    position, extent = _BOUNDS[name]
    return position, extent(operands, params)


def check_index(index: Array, extent: int) -> None:
    """Look at an index of integers.

    Raises:
        IndexError: an element is not in [0, extent); the message gives it.
    """
    if not is_within(index, extent):
        raise out_of_range(index, extent)
