"""Do all ranks call the same collective? Asked before each, since gloo does not ask.

Without it a tensor of another size ends a process (gloo aborts where a message is longer than its
buffer), or is filled in part, and nobody is told.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tinytorch.errors import ProcessGroupError
from tinytorch.tensor import Tensor

Guard = Callable[[str, Callable[[], Any]], Any]  # runs a call; its error says which rank has gone


def describe(name: str, tensor: Tensor, options: str = "") -> str:
    """A collective, or a message, in words: the same on all ranks that take part.

    >>> import tinytorch
    >>> describe("all_reduce", tinytorch.ones(2, 3), " (mean)")
    'all_reduce of float32[2, 3] (mean)'
    """
    return f"{name} of {tensor.dtype.name}{list(tensor.shape)}{options}"


def tag_of(tensor: Tensor) -> int:
    """A tag by which gloo hands a message only to a rank that waits for its shape and dtype."""
    return _digest(describe("message", tensor))


class Agreement:
    """A question to all ranks that is under way: are you about to make this call?

    It costs each a message of 16 bytes, and `wait` waits for the last of them.

    Args:
        call: what this rank is about to do, in words.
        guard: runs the calls into PyTorch.

    Attributes:
        refused: the ranks differ, and all of them know it.
    """

    def __init__(self, call: str, guard: Guard) -> None:
        self._call, self._guard, self._own = call, guard, _digest(call)
        self.refused = False
        self._bounds = torch.tensor([self._own, -self._own])
        self._work = guard(
            call, lambda: dist.all_reduce(self._bounds, dist.ReduceOp.MAX, async_op=True)
        )

    def wait(self) -> None:
        """Wait for the answers.

        Raises:
            ProcessGroupError: on every rank: what each is about to do. Or one has gone.
        """
        self._guard(self._call, self._work.wait)
        if self._bounds.tolist() == [self._own, -self._own]:
            return
        calls: list[Any] = [None] * dist.get_world_size()
        self._guard(self._call, lambda: dist.all_gather_object(calls, self._call))
        self.refused = True
        each = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
        raise ProcessGroupError(f"the ranks do not call the same, or not on the same: {each}")


def _digest(text: str) -> int:
    return zlib.crc32(text.encode()) >> 1  # fits gloo's tags
