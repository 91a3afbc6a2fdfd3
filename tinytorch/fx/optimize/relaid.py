"""Inputs in another memory layout than that for which a graph was captured and optimized.

A graph computes for the strides of its example: passes drop a `contiguous` of what is so already,
and choose kernels that read along a dimension. Other inputs are copied into that layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import SymInt, Tensor


@dataclass
class Relaid:
    """An input, and its copy in the layout of the capture.

    Attributes:
        given: the input.
        copy: what the graph reads, and perhaps writes.
        version: of the copy, before the graph runs.
    """

    given: Tensor
    copy: Tensor
    version: int | None

    @staticmethod
    def like(given: Tensor, expected: Tensor) -> Relaid:
        """A copy of an input in the layout of the (fake) input of the capture."""
        strides = strides_for(expected, given.shape)
        copy = given.new_empty_strided(given.shape, strides).copy_(given)
        return Relaid(given, copy, None if copy.is_inference() else copy._version)

    def write_back(self) -> None:
        """Write into the input what the graph has written into the copy."""
        if self.version is None:  # in inference mode writes are not counted
            if not self.copy.equal(self.given):
                self.given.copy_(self.copy)
        elif self.copy._version != self.version:
            self.given.copy_(self.copy)


def has_layout_of(given: Tensor, expected: Tensor) -> bool:
    """Whether an input has the strides of the capture, where there is something to step to."""
    strides = strides_for(expected, given.shape)
    return given.numel() == 0 or all(
        size == 1 or own == stride
        for size, own, stride in zip(given.shape, given.stride(), strides, strict=True)
    )


def strides_for(expected: Tensor, sizes: Sequence[int]) -> list[int]:
    """The strides of an input of the capture; of open sizes for these."""
    shape, strides = list[Any](expected.shape), list[Any](expected.stride())
    given = {n.node.expr: k for n, k in zip(shape, sizes, strict=True) if isinstance(n, SymInt)}
    return [int(n.node.expr.xreplace(given)) if isinstance(n, SymInt) else n for n in strides]
