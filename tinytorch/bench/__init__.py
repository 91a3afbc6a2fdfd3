"""Measuring: what a block took, where its time goes, and how two functions compare.

with tinytorch.benchmark() as b: ...            time, memory, ops, FLOPs, bytes of a block
with tinytorch.bench.Profiler() as p: ...       a row per op, a Chrome trace
tinytorch.bench.time_callables({...})           functions side by side, interleaved
tinytorch.bench.bootstrap_interval(ratios)      what a ratio may really be
tinytorch.bench.measure_pairs(ours, theirs, ...)    pairs on fresh inputs, every output checked
"""

from tinytorch.bench.accuracy import difference, furthest_off, product_reference, rounding_bound
from tinytorch.bench.counters import Cost, OpCounter, OpStats, cost_of
from tinytorch.bench.fresh import fresh_call, measure_pairs
from tinytorch.bench.measure import Benchmark, benchmark
from tinytorch.bench.memory import LiveMemory
from tinytorch.bench.paired import (
    bootstrap_interval,
    false_alarms,
    geometric_mean,
    paired_ratios,
    pairs_needed,
)
from tinytorch.bench.profiler import Event, Profiler
from tinytorch.bench.roofline import Machine, measure_machine
from tinytorch.bench.timer import Timing, ratio, time_callable, time_callables
from tinytorch.bench.units import (
    format_bytes,
    format_count,
    format_seconds,
    format_table,
    markdown_table,
)

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
    "difference",
    "false_alarms",
    "format_bytes",
    "format_count",
    "format_seconds",
    "format_table",
    "fresh_call",
    "furthest_off",
    "geometric_mean",
    "markdown_table",
    "measure_machine",
    "measure_pairs",
    "paired_ratios",
    "pairs_needed",
    "product_reference",
    "ratio",
    "rounding_bound",
    "time_callable",
    "time_callables",
]
