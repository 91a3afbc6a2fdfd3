"""Which samples a rank takes, so that the ranks together take those of one process."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from tinytorch.data import Sampler
from tinytorch.distributed.group import get_rank, get_world_size


class ShardedSampler(Sampler[int]):
    """Every `world_size`-th sample of an order that all ranks know.

    The k-th batches of all ranks, taken together, are the k-th batch of one process with the N-fold
    batch size. Each rank has the same number of samples, so that none waits for a batch that
    another does not have: the first samples of the order are taken again, or with `drop_last` its
    last ones are left out.

        sampler = ShardedSampler(dataset, shuffle=True, seed=0)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for x, y in loader: ...

    Args:
        data_source: what is sampled; its length counts.
        shuffle: an order of its own for each epoch, a function of seed and epoch.
        seed: the same on all ranks.
        drop_last: leave out samples instead of repeating some.
        rank, world_size: those of this process, unless given.

    Raises:
        ValueError: there are no samples, or with drop_last fewer than ranks.

    >>> [list(ShardedSampler("abcde", rank=r, world_size=2)) for r in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        data_source: Sized,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.data_source = data_source
        self.rank = get_rank() if rank is None else rank
        self.world_size = get_world_size() if world_size is None else world_size
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be 0 to {self.world_size - 1}, got {self.rank}")
        if len(data_source) == 0 or len(self) == 0:
            raise ValueError(
                f"{len(data_source)} samples are too few for {self.world_size} ranks"
                f"{' with drop_last' if drop_last else ''}"
            )

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration: its order differs. Call it on every rank."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        total = len(self.data_source)
        order = np.arange(total)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(total)
        order = np.resize(order, len(self) * self.world_size)  # cut off, or from its start again
        return iter(order[self.rank :: self.world_size].tolist())

    def __len__(self) -> int:
        whole, rest = divmod(len(self.data_source), self.world_size)
        return whole + (rest > 0 and not self.drop_last)
