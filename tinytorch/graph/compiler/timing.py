"""How long each step of a schedule takes, by the roofline model and by the clock."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from tinytorch.backends.base import Kernel
from tinytorch.bench.roofline import REPEATS, Machine
from tinytorch.dtypes import Array
from tinytorch.graph.compiler.python import aligned_arena
from tinytorch.graph.compiler.schedule import Schedule, Step
from tinytorch.graph.layout import Buffer, Memory, StridedView
from tinytorch.graph.semantics import TINYTORCH


def example_values(schedule: Schedule) -> list[Any]:
    """Values for the inputs: copies of those that were traced, 1 for every number."""
    values: list[Any] = []
    for each, value in zip(schedule.inputs, TINYTORCH.sample(schedule.graph, 0), strict=True):
        values.append(1 if each.role.is_number else np.array(value, order="C"))
    return values


def predict_steps(schedule: Schedule, machine: Machine) -> list[float]:
    """Seconds of each step by the roofline."""
    return [machine.seconds(*TINYTORCH.cost(step.node)) for step in schedule.steps]


def measure_steps(
    schedule: Schedule, kernels: list[Kernel], writes_out: list[bool], repeats: int = REPEATS
) -> list[float]:
    """Seconds of each step's kernel call, on example values; the least of some runs in order.

    Args:
        kernels: for each step what it calls.
        writes_out: for each kernel whether it is given the memory of its result.
    """
    memory = _Buffers(schedule)
    fastest_so_far = [float("inf")] * len(schedule.steps)
    with np.errstate(all="ignore"):
        for _ in range(repeats):
            memory.reset()
            for i, step in enumerate(schedule.steps):
                seconds = _time_step(step, kernels[i], writes_out[i], memory)
                fastest_so_far[i] = min(fastest_so_far[i], seconds)
    return fastest_so_far


def _time_step(step: Step, kernel: Kernel, writes: bool, memory: _Buffers) -> float:
    operands = [memory.view(a) if isinstance(a, StridedView) else a for a in step.inputs]
    target = memory.view(step.output)
    if writes:
        operands.append(target)
    start = perf_counter()
    result = kernel(*operands, **step.params)
    seconds = perf_counter() - start
    if not writes:
        np.copyto(target, result)
    return seconds


class _Buffers:
    """All memory of a schedule, with example values in its inputs."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._arrays: dict[Buffer, Array] = {
            Buffer(Memory.ARENA): aligned_arena(schedule.arena_bytes)
        }
        for i, array in enumerate(schedule.constants):
            self._arrays[Buffer(Memory.CONSTANT, i)] = array
        for i, meta in enumerate(schedule.own):
            self._arrays[Buffer(Memory.OWN, i)] = np.empty(meta.shape, meta.dtype.dtype)

    def reset(self) -> None:
        """Fill the inputs again, which steps may have overwritten."""
        for i, value in enumerate(example_values(self._schedule)):
            dtype = self._schedule.inputs[i].meta.dtype.dtype
            self._arrays[Buffer(Memory.INPUT, i)] = np.asarray(value, dtype)

    def view(self, view: StridedView) -> Array:
        """The array that is at a view."""
        memory = self._arrays[view.buffer]
        return np.ndarray(view.shape, view.dtype.dtype, memory, view.offset, view.strides)
