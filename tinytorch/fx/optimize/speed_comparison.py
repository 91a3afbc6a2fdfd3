"""A model and its optimized form side by side: time, peak memory, graph size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tinytorch.bench import (
    Timing,
    format_bytes,
    format_seconds,
    format_table,
    ratio,
    time_callables,
)
from tinytorch.fx.models import call
from tinytorch.fx.optimize.devices import synchronize
from tinytorch.fx.profile.memory_meter import PeakMemory, measure_peak


@dataclass(frozen=True)
class SpeedComparison:
    """What was measured.

    Attributes:
        original, optimized: times of a call.
        original_peak, optimized_peak: bytes above weights and inputs.
        calls: nodes that call something, of the graph as captured and as it is.
        device: on which it ran.
    """

    original: Timing
    optimized: Timing
    original_peak: PeakMemory
    optimized_peak: PeakMemory
    calls: tuple[int, int]
    device: str

    @property
    def speedup(self) -> float:
        """How many times faster: the median of the ratios within the rounds."""
        return ratio(self.original, self.optimized)

    def to_dict(self) -> dict[str, Any]:
        """What a machine may read; times in seconds, memory in bytes."""
        return {
            "device": self.device,
            "speedup": self.speedup,
            "original": {**self.original.to_dict(), "peak_bytes": self.original_peak.peak,
                         "calls": self.calls[0]},
            "optimized": {**self.optimized.to_dict(), "peak_bytes": self.optimized_peak.peak,
                          "calls": self.calls[1]},
            "memory_meter": self.original_peak.meter,
        }  # fmt: skip

    def __str__(self) -> str:
        timings, peaks = (self.original, self.optimized), (self.original_peak, self.optimized_peak)
        rows = [
            ["time of a call", *(format_seconds(t.median) for t in timings)],
            ["spread", *(f"{t.spread:.1%}" for t in timings)],
            ["peak memory", *(format_bytes(p.peak) for p in peaks)],
            ["calls", *map(str, self.calls)],
        ]
        table = format_table([f"on {self.device}", "original", "optimized"], rows)
        return f"{table}\n{self.speedup:.2f} times as fast"


def compare_speed(
    original: nn.Module,
    optimized: nn.Module,
    batch: Any,
    device: torch.device,
    *,
    backward: bool,
    calls: tuple[int, int],
    rounds: int,
) -> SpeedComparison:
    """Measure both on the same batch.

    The clock is the CPU time of the thread where the CPU works with one thread, else the wall's.

    Args:
        backward: also compute gradients of the sum of the results.
    """
    functions = {
        "original": runner(original, original, batch, device, backward),
        "optimized": runner(optimized, original, batch, device, backward),
    }
    is_single = device.type == "cpu" and torch.get_num_threads() == 1
    timings = time_callables(
        functions, rounds=rounds, clock="cpu" if is_single else "wall", warmup=2
    )
    existing = [*original.parameters(), *original.buffers(), *tree_leaves(batch)]
    peaks = {n: measure_peak(f, existing, device) for n, f in functions.items()}
    return SpeedComparison(
        timings["original"], timings["optimized"], peaks["original"], peaks["optimized"],
        calls, str(device),
    )  # fmt: skip


def runner(
    module: nn.Module, state: nn.Module, batch: Any, device: torch.device, backward: bool
) -> Callable[[], object]:
    """A call of a module, with the gradients of a model's parameters if asked for."""
    leaves = [p for p in state.parameters() if p.requires_grad]

    def run() -> None:
        with torch.set_grad_enabled(backward):
            results = [x for x in tree_leaves(call(module, batch)) if isinstance(x, Tensor)]
            sources = [x.sum() for x in results if x.requires_grad]
            if backward and sources:
                torch.autograd.grad(sources, leaves, allow_unused=True)
        synchronize(device)

    return run
