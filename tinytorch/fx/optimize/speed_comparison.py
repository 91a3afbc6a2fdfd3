"""A model and its optimized form side by side: time, peak memory, graph size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
from tinytorch.fx.optimize.precision import BFLOAT16, FLOAT32, precision, precisions_of
from tinytorch.fx.profile.memory_meter import PeakMemory, measure_peak
from tinytorch.fx.semantics.buffers import assigned_buffers


@dataclass(frozen=True)
class SpeedComparison:
    """The measured times of two models.

    Attributes:
        original, optimized: times of a call.
        original_peak, optimized_peak: bytes above weights and inputs.
        calls: nodes that call something, of the graph as captured and as it is.
        device: on which it ran.
        others: times of the model in other precisions, and of the module where it has them: with
            TF32. All else is measured in float32, also where the user has allowed TF32.
    """

    original: Timing
    optimized: Timing
    original_peak: PeakMemory
    optimized_peak: PeakMemory
    calls: tuple[int, int]
    device: str
    others: dict[str, tuple[Timing, Timing | None]] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """How many times faster: the median of the ratios within the rounds."""
        return ratio(self.original, self.optimized)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values, as for JSON; times in seconds, memory in bytes."""
        return {
            "device": self.device,
            "speedup": self.speedup,
            "original": {**self.original.to_dict(), "peak_bytes": self.original_peak.peak,
                         "calls": self.calls[0]},
            "optimized": {**self.optimized.to_dict(), "peak_bytes": self.optimized_peak.peak,
                          "calls": self.calls[1]},
            "memory_meter": self.original_peak.meter,
            "precisions": {
                name: {"original": a.to_dict(), "optimized": b.to_dict() if b else None}
                for name, (a, b) in self.others.items()
            },
        }  # fmt: skip

    def __str__(self) -> str:
        timings, peaks = (self.original, self.optimized), (self.original_peak, self.optimized_peak)
        rows = [
            ["time of a call, float32", *(format_seconds(t.median) for t in timings)],
            ["spread", *(f"{t.spread:.1%}" for t in timings)],
            ["peak memory", *(format_bytes(p.peak) for p in peaks)],
            ["calls", *map(str, self.calls)],
        ]
        rows[2:2] = [
            [f"  in {name}", *(format_seconds(t.median) if t else "-" for t in pair)]
            for name, pair in self.others.items()
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
    calls_of = {
        "original": runner(original, original, batch, device, backward),
        "optimized": runner(optimized, original, batch, device, backward),
    }
    functions = {
        (name, kind): _in_precision(kind, device, function)
        for name, function in calls_of.items()
        for kind in precisions_of(device)
        if name == "original" or kind != BFLOAT16  # casts are not in the graph
    }
    is_single = device.type == "cpu" and torch.get_num_threads() == 1
    found = time_callables(
        {" ".join(key): f for key, f in functions.items()},
        rounds=rounds, clock="cpu" if is_single else "wall", warmup=2,
    )  # fmt: skip
    timings = {key: found[" ".join(key)] for key in functions}
    existing = [*original.parameters(), *original.buffers(), *tree_leaves(batch)]
    peaks = {name: measure_peak(functions[name, FLOAT32], existing, device) for name in calls_of}
    others = {
        kind: (timings["original", kind], timings.get(("optimized", kind)))
        for kind in precisions_of(device) if kind != FLOAT32
    }  # fmt: skip
    return SpeedComparison(
        timings["original", FLOAT32], timings["optimized", FLOAT32],
        peaks["original"], peaks["optimized"], calls, str(device), others,
    )  # fmt: skip


def _in_precision(
    kind: str, device: torch.device, function: Callable[[], object]
) -> Callable[[], object]:
    def run() -> None:
        with precision(kind, device):
            function()

    return run


def runner(
    module: nn.Module, state: nn.Module, batch: Any, device: torch.device, backward: bool
) -> Callable[[], object]:
    """A call of a module, with the gradients of a model's parameters if asked for."""
    leaves = [p for p in state.parameters() if p.requires_grad]
    write_assigned = assigned_buffers(state)

    def run() -> None:
        with torch.set_grad_enabled(backward):
            results = [x for x in tree_leaves(call(module, batch)) if isinstance(x, Tensor)]
            sources = [x.sum() for x in results if x.requires_grad]
            if backward and sources:
                torch.autograd.grad(sources, leaves, allow_unused=True)
        write_assigned()  # to the buffers that the graph has
        synchronize(device)

    return run
