"""Timing node after node, and copies to the host, on each kind of device."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from typing import Any

import torch

from tinytorch.fx.optimize.devices import synchronize

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
        """The seconds from one stamp to another."""


class HostClock(Clock):
    """The clock of the CPU, and of devices without timed events: everything is waited for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stamp(self) -> float:
        synchronize(self.device)
        return time.perf_counter()

    def wait(self) -> None:
        """Do nothing: no work is pending."""

    def seconds(self, start: float, end: float) -> float:
        return end - start


class CudaClock(Clock):
    """CUDA events on a device, which need not be the current one: the host runs ahead as it does
    without profiling."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stamp(self) -> torch.cuda.Event:
        with torch.cuda.device(self.device):
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self.device))
        return event

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3


def clock_of(device: torch.device) -> Clock:
    """The clock for a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock(device)


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
