"""Process groups in which every rank begins the same collectives in the same order.

The word is MPI's: a message of one communicator is never received in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tinytorch.errors import ProcessGroupError


class Communicator:
    """A process group for all-reduces: the nth of a rank meets the nth of the others.

    Args:
        name: the same on all ranks.
        group: of PyTorch; None for the one of all other collectives.
        arrays: size and dtype of what is reduced, again and again in this order.
        after_deadlock: called when what was begun has been given up, on all ranks.

    Attributes:
        begun: how many all-reduces this rank has begun.
        released: this rank begins no further one.
    """

    def __init__(
        self,
        name: str,
        group: Any,
        arrays: Sequence[tuple[int, np.dtype]],
        after_deadlock: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self._group, self._arrays = name, group, arrays
        self._after_deadlock = after_deadlock
        self.begun, self.released, self._is_destroyed = 0, False, False

    def all_reduce(self, shared: torch.Tensor, reduction: Any = dist.ReduceOp.SUM) -> Any:
        """Begin the next one; PyTorch's `Work`."""
        if self._is_destroyed:
            raise ProcessGroupError(f"{self.name}: its process group was destroyed; make another")
        work = dist.all_reduce(shared, reduction, self._group, async_op=True)
        self.begun += 1
        return work

    def catch_up(self, begun: int) -> None:
        """Begin what another rank has begun, with zeros: no rank uses the results any more.

        What is then missing of a round of `arrays` is left out, as it is by all ranks.
        """
        while self.begun < begun:
            size, dtype = self._arrays[self.begun % len(self._arrays)]
            self.all_reduce(torch.from_numpy(np.zeros(size, dtype)))
        self.begun = -(-begun // len(self._arrays)) * len(self._arrays)
        self._after_deadlock()

    def release(self) -> None:
        """Begin no further one, and refer to nobody."""
        self.released, self._after_deadlock = True, lambda: None

    def destroy(self) -> None:
        """Leave the process group, unless it is that of all other collectives."""
        if self._group is not None:
            dist.destroy_process_group(self._group)
        self._group, self._is_destroyed = None, True
