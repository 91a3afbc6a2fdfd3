"""PyTorch's own sharding at thousands of ranks, in one process and without a network.

PyTorch's fake process group answers every collective at once, and its `CommDebugMode` counts them.
So the code that runs is the real one, and what it would send is known: how often, and how much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tinytorch.distributed.cost import Link
from tinytorch.errors import ProcessGroupError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Traffic:
    """The collectives and bytes of one rank in one step.

    Attributes:
        ranks: how many there are.
        parameters: how many it keeps.
        collectives: how often each is called.
        sent: bytes that each of them sends, by a ring.
    """

    ranks: int
    parameters: int
    collectives: dict[str, int]
    sent: dict[str, float]

    def seconds(self, link: Link) -> float:
        """The time of all collectives, one after another, each by a ring on this link."""
        steps = {name: (2 if name == "all_reduce" else 1) for name in self.collectives}
        return sum(
            link.seconds(self.sent[name], count * steps[name] * (self.ranks - 1))
            for name, count in self.collectives.items()
        )


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts collectives and the bytes of their largest side."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, int] = {}
        self.nbytes: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = _collective_of(func)
        if name is not None:
            leaves = tree_leaves((args, out))
            self.count(name, max(_nbytes(t) for t in leaves if torch.is_tensor(t)))
        return out

    def count(self, name: str, nbytes: float) -> None:
        """Note one call of a collective."""
        self.calls[name] = self.calls.get(name, 0) + 1
        self.nbytes[name] = self.nbytes.get(name, 0.0) + nbytes


def _nbytes(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


def _count_bucket(counter: _Counter, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """In place of the all-reduce of a bucket of DDP, which the fake group does not answer."""
    counter.count("all_reduce", _nbytes(bucket.buffer()))
    answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    answer.set_result(bucket.buffer())
    return answer


def _collective_of(func: Any) -> str | None:
    if func.namespace not in ("c10d", "_c10d_functional"):
        return None
    text = func._opname.replace("_", "")
    return next((name for name in COLLECTIVES if text.startswith(name.replace("_", ""))), None)


def traffic_of(
    build: Callable[[], nn.Module],
    step: Callable[[nn.Module], Any],
    ranks: int,
    shard: Callable[[nn.Module], Any],
) -> Traffic:
    """Build a model, shard it over `ranks` ranks that do not exist, run a step, count.

    Args:
        build: the model, as one process has it.
        step: forward and backward of it.
        ranks: how many there are to be; this process plays rank 0.
        shard: changes or wraps the model: `fully_shard`, or a `DistributedDataParallel`.

    Raises:
        ProcessGroupError: this process is in a group already.

        traffic_of(build, step, 1024, fully_shard).seconds(link)
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise ProcessGroupError("traffic_of needs a process that is in no group")
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        model = build()
        model = shard(model) or model
        counter = _Counter()
        if isinstance(model, nn.parallel.DistributedDataParallel):
            # a hook may not have annotations that are text
            model.register_comm_hook(counter, lambda c, bucket: _count_bucket(c, bucket))
        with counter:
            step(model)
        local = sum(
            (p.to_local() if hasattr(p, "to_local") else p).numel() for p in model.parameters()
        )
    finally:
        dist.destroy_process_group()
    share = (ranks - 1) / ranks
    sent = {
        name: (2 if name == "all_reduce" else 1) * share * n for name, n in counter.nbytes.items()
    }
    return Traffic(ranks, local, counter.calls, sent)
