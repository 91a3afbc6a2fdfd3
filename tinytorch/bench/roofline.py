"""The roofline: how long work takes at the least on a machine that computes and moves at a rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from tinytorch.backends.base import ComputeBackend

ENOUGH = 2e-3  # seconds; a product that takes longer shows the peak
LARGEST_PRODUCT = 512
COPIED_BYTES = 16 * 2**20  # more than caches hold
REPEATS = 5


@dataclass(frozen=True)
class Machine:
    """The speed and bandwidth of a backend here, on one large matrix product and one large copy.

    Attributes:
        flops: floating-point operations a second.
        bandwidth: bytes of memory read and written a second.

    Source: S. Williams, A. Waterman, D. Patterson, "Roofline", 2009.
    """

    flops: float
    bandwidth: float

    def seconds(self, flops: int, moved: int) -> float:
        """The least time of work: what takes longer, computing `flops` or moving `moved` bytes."""
        return max(flops / self.flops, moved / self.bandwidth)

    def attainable(self, intensity: float) -> float:
        """The most FLOPs a second of work that computes `intensity` FLOPs for each byte it moves.

        >>> machine = Machine(flops=100.0, bandwidth=10.0)
        >>> machine.attainable(2.0), machine.attainable(50.0)
        (20.0, 100.0)
        """
        return min(self.flops, intensity * self.bandwidth)


@cache
def measure_machine(backend: ComputeBackend, now: Callable[[], float] = perf_counter) -> Machine:
    """Measure once for a backend; takes some hundredths of a second.

    Products of ones (n, n) in float32 for n = 32, 64, ..., until one takes `ENOUGH` seconds or n is
    `LARGEST_PRODUCT`; the best rate of them counts, at 2 n^3 FLOPs each. Then a copy of
    `COPIED_BYTES` bytes, which reads them and writes them. Each is timed by `fastest` on the clock
    `now`.
    """
    n, rate, seconds = 16, 0.0, 0.0
    while seconds < ENOUGH and n < LARGEST_PRODUCT:
        n *= 2
        a = np.ones((n, n), np.float32)
        seconds = fastest(lambda a=a: backend.matmul(a, a), now=now)  # type: ignore[misc]
        rate = max(rate, 2 * n**3 / seconds)
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.ones(COPIED_BYTES, np.uint8)
    copying = fastest(lambda: np.copyto(target, source), now=now)
    return Machine(flops=rate, bandwidth=2 * COPIED_BYTES / copying)


def fastest(
    function: Callable[[], Any], repeats: int = REPEATS, now: Callable[[], float] = perf_counter
) -> float:
    """Seconds on the clock `now` of the least disturbed of `repeats` calls, after a first one."""
    function()
    times = []
    for _ in range(repeats):
        start = now()
        function()
        times.append(now() - start)
    return min(times)
