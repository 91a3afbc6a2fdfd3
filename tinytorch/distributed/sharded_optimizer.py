"""Each rank keeps the optimizer's state of its own share of the parameters.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", 2020, section 5.1 (stage 1: the optimizer's state).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tinytorch.distributed.data_parallel import check_same_parameters
from tinytorch.distributed.group import (
    agree,
    broadcast,
    gather_objects,
    get_rank,
    get_world_size,
)
from tinytorch.errors import ProcessGroupError
from tinytorch.optim import Optimizer
from tinytorch.tensor import Tensor


def split_evenly(sizes: Sequence[int], parts: int) -> list[int]:
    """The part that each size belongs to: the largest first, each into the part with least.

    >>> split_evenly([4, 7, 3, 2], 2)
    [1, 0, 1, 0]

    Source: R. Graham, "Bounds on multiprocessing timing anomalies", 1969 (longest first).
    """
    filled, owner = [0] * parts, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owner[i] = filled.index(min(filled))
        filled[owner[i]] += sizes[i]
    return owner


class ShardedOptimizer(Optimizer):
    """An optimizer of which each rank keeps, and computes, only a share.

    A parameter belongs to one rank, which updates it and sends it to the others. The gradients must
    be the same on all ranks, as `data_parallel` makes them. The weights are those that
    `kind(params, **options)` would give, to the last bit.

        optimizer = ShardedOptimizer(model.parameters(), AdamW, lr=1e-3)

    Args:
        params: all parameters, in the same order on all ranks; no groups.
        kind: the optimizer, say `AdamW`. It must treat each parameter for itself.
        options: of it.

    Attributes:
        local: the optimizer of this rank's share; None if it has none.

    Raises:
        ProcessGroupError: no process group; the parameters of the ranks differ, or are in groups.
    """

    def __init__(
        self, params: Iterable[Tensor], kind: Callable[..., Optimizer], **options: Any
    ) -> None:
        self._all = list(params)
        if not all(isinstance(p, Tensor) for p in self._all):
            raise ProcessGroupError("ShardedOptimizer takes tensors: no groups, and no names")
        check_same_parameters("ShardedOptimizer", self._all)
        self._owners = split_evenly([math.prod(p.shape) for p in self._all], get_world_size())
        whole = kind(self._all, **options)  # has no state before the first step
        super().__init__(self._all, whole.defaults)
        self._make = partial(kind, **options)
        own = [p for p, rank in zip(self._all, self._owners, strict=True) if rank == get_rank()]
        self.local = self._make(own) if own else None

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """The first group only, which the constructor makes: the shares are of its parameters."""
        if self.param_groups:
            raise ProcessGroupError(
                "ShardedOptimizer has one group of parameters: make a new one with all of them"
            )
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update this rank's share, and take the other shares from their ranks."""
        if closure is not None:
            raise ProcessGroupError("ShardedOptimizer.step takes no closure: call backward() first")
        if self.local is not None:
            for name, value in self.param_groups[0].items():
                if name != "params":  # a schedule changes the lr there
                    self.local.param_groups[0][name] = value
            self.local.step()
        agree("ShardedOptimizer.step")
        works = [
            broadcast(p.detach(), rank, async_op=True, agreed=True)
            for p, rank in zip(self._all, self._owners, strict=True)
        ]
        for work in works:
            assert work is not None
            work.wait()
        return None

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole optimizer, gathered from all ranks: all of them must call this.

        It is that of `kind(params, **options)`, so that it fits another number of ranks, or one
        process without any group.
        """
        positions = [i for i, rank in enumerate(self._owners) if rank == get_rank()]
        own = self.local.state_dict()["state"] if self.local is not None else {}
        shares = gather_objects({positions[i]: state for i, state in own.items()})
        state = {i: entries for share in shares for i, entries in share.items()}
        group = {**self.param_groups[0], "params": list(range(len(self._all)))}
        return {"state": dict(sorted(state.items())), "param_groups": [group]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take this rank's share of a whole state, as `state_dict` or `kind` gave it."""
        whole = self._make(self._all)
        whole.load_state_dict(state_dict)
        for name, value in whole.param_groups[0].items():
            if name != "params":
                self.param_groups[0][name] = value
        if self.local is not None:
            for p in self.local.param_groups[0]["params"]:
                self.local.state.pop(p, None)
                if p in whole.state:
                    self.local.state[p] = whole.state[p]
