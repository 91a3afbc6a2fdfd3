"""`with tinytorch.benchmark() as b:` what a block of code took: time, memory, ops, FLOPs, bytes."""

from __future__ import annotations

import time
from typing import Any

from tinytorch.bench.counters import OpCounter, OpStats
from tinytorch.bench.memory import LiveMemory
from tinytorch.bench.units import format_bytes, format_count, format_seconds, format_table
from tinytorch.dispatch import Input
from tinytorch.op import Op, Params, Plan


class Benchmark(OpCounter):
    """Time and memory of a block; made by `benchmark()`, complete when the block ends.

    Attributes:
        seconds: wall-clock time of the block; all is the sum over the blocks, if there were
            several, but for memory: of that the peak of all, and what the last one holds.
        cpu_seconds: CPU time of the process in the block, over all of its threads.
        stats, ops, phases, total: counts, time, FLOPs and bytes of the ops; see `OpCounter`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._memory = LiveMemory()

    @property
    def peak_bytes(self) -> int:
        """The most bytes that results of the block's ops held at one time."""
        return self._memory.peak

    @property
    def current_bytes(self) -> int:
        """Bytes that results of the block's ops hold: now, or at the end of the block."""
        return self._memory.current

    @property
    def time_ms(self) -> float:
        """Wall-clock time of the block in milliseconds."""
        return self.seconds * 1e3

    @property
    def peak_memory_mb(self) -> float:
        """`peak_bytes` in megabytes (10^6 bytes)."""
        return self.peak_bytes / 1e6

    @property
    def current_memory_mb(self) -> float:
        """`current_bytes` in megabytes (10^6 bytes)."""
        return self.current_bytes / 1e6

    @property
    def calls(self) -> int:
        """Ops that ran."""
        return self.total.calls

    @property
    def flops(self) -> int:
        """Floating-point operations of all ops, by the op table."""
        return self.total.flops

    @property
    def bytes(self) -> int:
        """Bytes that all ops read and wrote at the least, by the op table."""
        return self.total.bytes

    def __enter__(self) -> Benchmark:
        super().__enter__()
        peak, self._memory = self._memory.peak, LiveMemory()
        self._memory.peak = peak
        self._cpu_start = time.process_time() - self.cpu_seconds
        self._start = time.perf_counter() - self.seconds
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = time.process_time() - self._cpu_start
        self._memory.stop()
        super().__exit__(*error)

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        data = super().run(op, inputs, params, plan)
        self._memory.add(data, inputs)
        return data

    def to_dict(self) -> dict[str, Any]:
        """The measurements as plain values, as for JSON; times in seconds."""
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self.peak_bytes,
            "current_bytes": self.current_bytes,
            "flops": self.flops,
            "bytes": self.bytes,
            "ops": {name: stats.to_dict() for name, stats in self.ops.items()},
        }

    def __str__(self) -> str:
        everything = self.total
        head = format_table(
            ["what", "this block"],
            [
                ["wall time", format_seconds(self.seconds)],
                ["CPU time", format_seconds(self.cpu_seconds)],
                ["peak memory of results", format_bytes(self.peak_bytes)],
                ["still held at the end", format_bytes(self.current_bytes)],
                ["ops", str(everything.calls)],
                ["FLOP", format_count(everything.flops)],
                ["bytes moved", format_bytes(everything.bytes)],
            ],
        )
        rows = [op_cells(name, stats) for name, stats in self.ops.items()]
        return f"{head}\n\n{format_table(['op', *OP_COLUMNS], rows)}"


OP_COLUMNS = ("calls", "time", "FLOP", "GFLOP/s", "bytes", "GB/s")


def op_cells(name: str, stats: OpStats) -> list[str]:
    """An op's row in a table under `OP_COLUMNS`; what is zero has no rate."""
    return [
        name,
        str(stats.calls),
        format_seconds(stats.seconds),
        format_count(stats.flops) if stats.flops else "",
        f"{stats.flops_per_second / 1e9:.3g}" if stats.flops else "",
        format_bytes(stats.bytes) if stats.bytes else "",
        f"{stats.bytes_per_second / 1e9:.3g}" if stats.bytes else "",
    ]


def benchmark() -> Benchmark:
    """Measure a block: time, memory, and the ops that ran with their FLOPs and bytes.

    What is counted, and what not, is said in `tinytorch.bench.counters` and
    `tinytorch.bench.memory`. The measuring itself costs a few microseconds per op; to compare two
    functions use `tinytorch.bench.time_callables`.

    >>> import tinytorch
    >>> with tinytorch.benchmark() as b:
    ...     y = tinytorch.ones(100, 100) @ tinytorch.ones(100, 100)
    >>> b.flops, b.ops["matmul"].calls, b.peak_bytes, b.current_bytes
    (2000000, 1, 120000, 40000)
    >>> print(b)  # doctest: +SKIP
    """
    return Benchmark()
