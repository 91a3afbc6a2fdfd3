"""What communication costs: latency and bandwidth, fitted here, and computed for many ranks.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005, section 3 (the alpha-beta model and the costs of the algorithms).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tinytorch.distributed.group import all_reduce, barrier
from tinytorch.tensor import Tensor

ROW_BYTES = 4_000_000  # of the all-reduces that are timed in a row


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes `latency + n / bandwidth` seconds.

    Attributes:
        latency: seconds.
        bandwidth: bytes per second.
    """

    latency: float
    bandwidth: float

    def seconds(self, nbytes: float, messages: float = 1) -> float:
        """The time of `messages` messages, one after another, with `nbytes` bytes in all."""
        return messages * self.latency + nbytes / self.bandwidth

    def ring_all_reduce(self, nbytes: float, ranks: int, processors: int | None = None) -> float:
        """Seconds of an all-reduce: 2 (N - 1) messages of a piece of 1 / N each.

        Args:
            processors: of the one machine that all ranks run on, where messages are work of its
                processors; unless given, each rank has one of its own.

        >>> Link(latency=0.0, bandwidth=1e9).ring_all_reduce(1e9, ranks=4)
        1.5
        >>> Link(latency=0.0, bandwidth=1e9).ring_all_reduce(1e9, ranks=4, processors=2)
        3.0
        """
        seconds = self.seconds(2 * (ranks - 1) / ranks * nbytes, 2 * (ranks - 1))
        return turns(ranks, processors) * seconds

    def data_parallel_step(
        self, compute: float, nbytes: float, ranks: int, overlap: float = 0.0
    ) -> float:
        """Seconds of a training step.

        Args:
            compute: seconds of forward, backward and update on one rank.
            nbytes: of the gradients.
            overlap: the seconds of `compute` in which gradients can already be on their way.
        """
        return compute + max(0.0, self.ring_all_reduce(nbytes, ranks) - overlap)


def turns(ranks: int, processors: int | None) -> float:
    """How many times as long ranks take that must share so many processors."""
    return 1.0 if processors is None else max(1.0, ranks / processors)


def fit_link(nbytes: Sequence[float], messages: Sequence[float], seconds: Sequence[float]) -> Link:
    """The link that explains measured times best, each by its share: least squares of the ratio.

    Raises:
        ValueError: fewer than two different measurements; or times that no link explains, as none
            does that is not positive.

    >>> link = fit_link([1e3, 1e6, 1e7], [2, 2, 2], [2.001e-3, 3e-3, 12e-3])
    >>> round(link.latency, 6), round(link.bandwidth)
    (0.001, 1000000000)
    """
    measured = np.asarray(seconds, np.float64)
    columns = np.stack([np.asarray(messages, float), np.asarray(nbytes, float)], 1)
    if len(measured) < 2 or np.linalg.matrix_rank(columns) < 2:
        raise ValueError("a link is fitted to at least two sizes of messages")
    if not (measured > 0).all():
        raise ValueError(f"no link explains a time of {measured.min():.3g} s")
    scaled = columns / measured[:, None]
    latency, per_byte = np.linalg.lstsq(scaled, np.ones(len(measured)), rcond=None)[0]
    if latency < 0 or per_byte <= 0:
        raise ValueError(
            f"no link explains these times: latency {latency:.3g} s, {per_byte:.3g} s per byte; "
            f"measure more sizes, on a quieter machine"
        )
    return Link(float(latency), float(1 / per_byte))


def measure_all_reduce(
    sizes: Sequence[int],
    repeats: int = 10,
    reduce: Callable[[Tensor], object] | None = None,
) -> list[float]:
    """Least seconds of an all-reduce of float32 tensors of these many bytes, on this group.

    All ranks must call it, and all get the same. Small ones are timed many in a row: ranks do not
    leave a barrier at the same moment, and the first of them would wait for longer than the message
    takes. The sizes take turns, so that what disturbs the machine for a while disturbs all.

    Args:
        repeats: how many such rows of each size.
        reduce: what is measured; gloo's all-reduce alone unless given.
    """
    reduce = reduce or partial(all_reduce, agreed=True)
    tensors = [Tensor.from_numpy(np.ones(max(1, nbytes // 4), np.float32)) for nbytes in sizes]
    times = np.empty((repeats + 1, len(tensors)))
    for row in times:
        for i, tensor in enumerate(tensors):
            count = max(1, min(32, ROW_BYTES // (4 * tensor.numel())))
            barrier()
            begin = time.perf_counter()
            for _ in range(count):
                reduce(tensor)
            row[i] = (time.perf_counter() - begin) / count
    return least_times(times[1:])  # the first makes connections


def least_times(times: np.ndarray) -> list[float]:
    """The least time in each column, of times (repeats, columns) that each rank measured.

    A collective takes as long as its slowest rank says. The least is what the link takes: the
    scheduler, and whoever else uses the machine, only add to it, and how much is not the link's.

    All ranks must call it, and all get the same.
    """
    longest = Tensor.from_numpy(np.array(times, np.float64))
    all_reduce(longest, "max")
    return [float(least) for least in longest.numpy().min(0)]
