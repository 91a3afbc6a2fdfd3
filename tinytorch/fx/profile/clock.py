"""Timing node after node, and copies to the host, on each kind of device."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from typing import Any

import torch

COPY_BYTES = 64 << 20
COPIES = 5


class Clock(ABC):
    """Stamps that can be taken between ops; what lies between two is known after `wait`."""

    @abstractmethod
    def stamp(self) -> Any:
        """A point in time on the device."""

    @abstractmethod
    def wait(self) -> None:
        """Until the device has come to all stamps."""

    @abstractmethod
    def seconds(self, start: Any, end: Any) -> float:
        """From one stamp to another."""


class HostClock(Clock):
    """For the CPU, and for devices without timed events: everything is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._synchronize = torch.mps.synchronize if device.type == "mps" else None

    def stamp(self) -> float:
        if self._synchronize is not None:
            self._synchronize()
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing is left to wait for."""

    def seconds(self, start: float, end: float) -> float:
        return end - start


class CudaClock(Clock):
    """CUDA events: the host runs ahead as it does without profiling."""

    def stamp(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self) -> None:
        torch.cuda.synchronize()

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3


def clock_of(device: torch.device) -> Clock:
    """The clock for a device."""
    return CudaClock() if device.type == "cuda" else HostClock(device)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second from a device to the host, the median of some copies; on the CPU, from
    memory to memory."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
    clock = clock_of(device)
    target.copy_(source)
    times = []
    for _ in range(COPIES):
        start = clock.stamp()
        target.copy_(source, non_blocking=True)
        end = clock.stamp()
        clock.wait()
        times.append(clock.seconds(start, end))
    return COPY_BYTES / statistics.median(times)
