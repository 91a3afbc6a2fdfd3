"""Gradients in buckets: a few large messages in place of one for each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinytorch.distributed.communicator import Communicator
from tinytorch.distributed.group import Work, get_world_size, sum_in
from tinytorch.jit.buffers import ALIGNMENT, empty
from tinytorch.tensor import Tensor


class Bucket:
    """Gradients of some parameters of one dtype, one after another in one array.

    Behind them the array has a number for each parameter: 1 if this rank has a gradient for it. So
    the sum over the ranks says how many had one, in the same message. They are divided by the
    number of ranks as they are copied in, and the means are views of the array: nothing is read
    once more. The next backward has another array, so a `.grad` that is kept stays as it is.

    Args:
        params: in the order in which their gradients are expected.

    Attributes:
        layout: size and dtype of the array.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        dtype = self.params[0].dtype.dtype
        line = max(1, ALIGNMENT // dtype.itemsize)
        sizes = [math.prod(p.shape) for p in self.params]
        places = [-(-size // line) * line for size in sizes]  # each begins in a cache line
        starts = [end - place for end, place in zip(np.cumsum(places), places, strict=True)]
        self._number = {id(p): i for i, p in enumerate(self.params)}
        self._slices = [slice(a, a + size) for a, size in zip(starts, sizes, strict=True)]
        self._end = sum(places)
        self.layout = self._end + len(sizes), dtype
        is_free = np.ones(self.layout[0], bool)  # by no gradient
        for part in self._slices:
            is_free[part] = False
        self._free = np.flatnonzero(is_free)
        self.clear()

    def clear(self) -> None:
        """Forget the gradients: the next backward has another array."""
        self.missing = len(self.params)
        self._array: np.ndarray | None = None
        self._work: Work | None = None

    def put(self, p: Tensor, *gradients: Tensor) -> None:
        """Write the sum of a parameter's gradients of this rank."""
        array, number = self._memory(), self._number[id(p)]
        target, summand = self._part(array, p), gradients[0].detach().numpy()
        for gradient in gradients[1:]:
            summand = np.add(summand, gradient.detach().numpy(), target)
        np.multiply(summand, 1 / get_world_size(), target)
        self.missing -= array[self._end + number] == 0
        array[self._end + number] = 1

    def start(self, communicator: Communicator) -> None:
        """Begin to add up over the ranks. What has no gradient here is 0."""
        array = self._memory()
        for p, count in zip(self.params, array[self._end :].tolist(), strict=True):
            if not count:
                self._part(array, p).fill(0)
        call = f"backward of {communicator.name}"
        self._work = sum_in(communicator, Tensor.from_numpy(array), call)

    def means(self) -> dict[Tensor, Tensor]:
        """Wait, and give the means over all ranks, of parameters that any rank has."""
        assert self._work is not None
        assert self._array is not None
        self._work.wait()
        counts = self._array[self._end :].tolist()
        return {
            p: Tensor.from_numpy(self._part(self._array, p))
            for p, count in zip(self.params, counts, strict=True)
            if count
        }

    def _memory(self) -> np.ndarray:
        """The array of this backward, in which no parameter has a gradient at first."""
        if self._array is None:
            size, dtype = self.layout
            self._array = empty((size,), dtype)
            self._array[self._free] = 0
        return self._array

    def _part(self, array: np.ndarray, p: Tensor) -> np.ndarray:
        return array[self._slices[self._number[id(p)]]].reshape(p.shape)


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
