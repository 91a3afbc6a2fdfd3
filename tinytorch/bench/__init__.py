"""Measuring: what a block took, where its time goes, and how two functions compare.

with tinytorch.benchmark() as b: ...            time, memory, ops, FLOPs, bytes of a block
with tinytorch.bench.Profiler() as p: ...       a row per op, a Chrome trace
tinytorch.bench.time_callables({...})           functions side by side, interleaved
tinytorch.bench.bootstrap_interval(ratios)      what a ratio may really be
"""

from tinytorch.bench.counters import Cost, OpCounter, OpStats, cost_of
from tinytorch.bench.measure import Benchmark, benchmark
from tinytorch.bench.memory import LiveMemory
from tinytorch.bench.paired import bootstrap_interval, geometric_mean, paired_ratios
from tinytorch.bench.profiler import Event, Profiler
from tinytorch.bench.roofline import Machine, measure_machine
from tinytorch.bench.timer import Timing, ratio, time_callable, time_callables
from tinytorch.bench.units import format_bytes, format_count, format_seconds, format_table

#: Exit code of a benchmark that needs what this machine does not have, as test harnesses use it.
CANNOT_RUN_HERE = 77

__all__ = [
    "CANNOT_RUN_HERE",
    "Benchmark",
    "Cost",
    "Event",
    "LiveMemory",
    "Machine",
    "OpCounter",
    "OpStats",
    "Profiler",
    "Timing",
    "benchmark",
    "bootstrap_interval",
    "cost_of",
    "format_bytes",
    "format_count",
    "format_seconds",
    "format_table",
    "geometric_mean",
    "measure_machine",
    "paired_ratios",
    "ratio",
    "time_callable",
    "time_callables",
]
