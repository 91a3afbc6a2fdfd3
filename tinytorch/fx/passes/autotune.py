"""Which of two functions is faster, decided in little time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from tinytorch.collector import collector_paused
from tinytorch.fx.optimize.devices import synchronize
from tinytorch.graph.passes.base import OptimizationPass

CPU = torch.device("cpu")
LEAST_SECONDS = 0.002  # that a sample lasts
MOST_SECONDS = 0.1  # that a measurement lasts, unless LEAST_ROUNDS are longer
LEAST_ROUNDS, MOST_ROUNDS = 3, 5
CLEARLY = 1.25  # times as fast: decided after a round, with long calls after the first


def is_faster(
    new: Callable[[], object], old: Callable[[], object], device: torch.device = CPU
) -> bool:
    """`new` takes less time than `old`."""
    return times_as_fast(new, old, device) > 1


def times_as_fast(
    new: Callable[[], object], old: Callable[[], object], device: torch.device = CPU
) -> float:
    """Time of `old` by that of `new`: fastest samples, interleaved, waiting for the device."""
    is_single = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_single else time.perf_counter
    best = [float("inf"), float("inf")]

    def sample(calls: int) -> None:
        for i, function in enumerate((new, old)):
            begin = clock()
            for _ in range(calls):
                function()
            synchronize(device)
            best[i] = min(best[i], (clock() - begin) / calls)

    with torch.no_grad():
        start = time.perf_counter()
        sample(1)  # it warms up, too
        pair = max(time.perf_counter() - start, 1e-7)
        calls = max(1, int(2 * LEAST_SECONDS / pair))
        rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(MOST_SECONDS / (calls * pair))))
        with collector_paused():
            for taken in range(rounds):
                is_over = CLEARLY * best[0] < best[1] and (taken or pair > MOST_SECONDS)
                if is_over:
                    break
                sample(calls)
    return best[1] / best[0]


class AutotunedPass(OptimizationPass):
    """A pass that is worth it only on machines where it is faster.

    Attributes:
        must_be_faster: `GraphOptimizer` times the graphs before and after it, and takes it back
            unless the one after is faster.
    """

    must_be_faster: bool = True

    def rewrites(self, found: Any) -> None:
        """All or nothing: what is timed is the whole."""
