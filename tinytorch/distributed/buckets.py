"""Gradients in buckets: a few large messages in place of one for each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinytorch.distributed.group import Work, all_reduce, get_world_size
from tinytorch.tensor import Tensor


class Bucket:
    """Gradients of some parameters of one dtype, one after another in one array.

    Behind them the array has a number for each parameter: 1 if this rank has a gradient for it. So
    the sum over the ranks says how many had one, in the same message.

    Args:
        params: in the order in which their gradients are expected.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        sizes = [math.prod(p.shape) for p in self.params]
        ends = np.cumsum(sizes).tolist()
        self._number = {id(p): i for i, p in enumerate(self.params)}
        self._starts = [end - size for end, size in zip(ends, sizes, strict=True)]
        self.flat = Tensor.from_numpy(np.zeros(ends[-1] + len(sizes), self.params[0].dtype.dtype))
        self._array = self.flat.numpy()
        self._counts = self._array[ends[-1] :]
        self.missing = len(self.params)
        self._work: Work | None = None

    def put(self, p: Tensor, *gradients: Tensor) -> None:
        """Write the sum of a parameter's gradients of this rank."""
        number, target = self._number[id(p)], self._part(p)
        np.copyto(target, gradients[0].detach().numpy())
        for gradient in gradients[1:]:
            np.add(target, gradient.detach().numpy(), target)
        self.missing -= self._counts[number] == 0
        self._counts[number] = 1

    def start(self) -> None:
        """Begin to add up over the ranks, which have agreed. What has no gradient here is 0."""
        for p, count in zip(self.params, self._counts.tolist(), strict=True):
            if not count:
                self._part(p).fill(0)
        self._work = all_reduce(self.flat, async_op=True, agreed=True)

    def averages(self) -> dict[Tensor, Tensor]:
        """Wait, and give the means over all ranks, of parameters that any rank has."""
        assert self._work is not None
        self._work.wait()
        self._work = None
        found = {
            p: Tensor.from_numpy(np.asarray(self._part(p) / get_world_size()))
            for p, count in zip(self.params, self._counts.tolist(), strict=True)
            if count
        }
        self._counts.fill(0)
        self.missing = len(self.params)
        return found

    def _part(self, p: Tensor) -> np.ndarray:
        start = self._starts[self._number[id(p)]]
        return self._array[start : start + math.prod(p.shape)].reshape(p.shape)


def make_buckets(params: Sequence[Tensor], nbytes: int) -> list[Bucket]:
    """Buckets of at most `nbytes`, or of one parameter; each of one dtype.

    >>> import tinytorch
    >>> small, large = tinytorch.ones(10), tinytorch.ones(1000)
    >>> [len(bucket.params) for bucket in make_buckets([small, small.clone(), large], 100)]
    [2, 1]
    """
    lists: list[list[Tensor]] = []
    filled: dict[str, tuple[list[Tensor], int]] = {}
    for p in params:
        size = math.prod(p.shape) * p.dtype.itemsize
        members, used = filled.get(p.dtype.name, ([], 0))
        if not members or used + size > nbytes:
            members, used = [], 0
            lists.append(members)
        members.append(p)
        filled[p.dtype.name] = members, used + size
    return [Bucket(members) for members in lists]
