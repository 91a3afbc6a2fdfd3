"""`Profiler`: where the time of a block goes, op by op, and as a picture on a time line.

with tinytorch.bench.Profiler() as profile:
    loss = model(x); loss.backward(); optimizer.step()
print(profile)
profile.save_chrome_trace("step.json")      # open in chrome://tracing or ui.perfetto.dev
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from tinytorch.bench.counters import Cost, OpCounter
from tinytorch.bench.measure import OP_COLUMNS, op_cells
from tinytorch.bench.units import format_seconds, format_table
from tinytorch.state import current_phase


class Event(NamedTuple):
    """One call of an op: seconds since the block began, and how long it took."""

    name: str
    phase: str
    start: float
    seconds: float
    cost: Cost


class Profiler(OpCounter):
    """Times every op of a block.

    An op's time is its own alone: ops do not contain each other in `dispatch`. What is left of the
    block's time is Python between the ops, dispatch, autograd and the profiler itself (about 3.5 us
    per op); the table shows it as a row of its own.

    Args:
        trace: keep each call as an event; about 300 bytes each.

    Attributes:
        seconds: wall-clock time of the block; of all blocks, if there were several.
        events: each call in order, if `trace`.
    """

    def __init__(self, trace: bool = True) -> None:
        super().__init__()
        self.trace = trace
        self.seconds = 0.0
        self.events: list[Event] = []

    def __enter__(self) -> Profiler:
        super().__enter__()
        self._thread = threading.get_native_id()
        self._start = perf_counter() - self.seconds  # a block goes on where the last one ended
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = perf_counter() - self._start
        super().__exit__(*error)

    def note(self, name: str, start: float, seconds: float, cost: Cost) -> None:
        super().note(name, start, seconds, cost)
        if self.trace:
            began = start - self._start
            self.events.append(Event(name, current_phase(), began, seconds, cost))

    @property
    def between_ops(self) -> float:
        """Seconds of the block that were spent in no op."""
        return max(self.seconds - self.total.seconds, 0.0)

    def table(self, limit: int | None = None) -> str:
        """One row per op and phase, the longest first, then the time between ops and the sums.

        Args:
            limit: how many ops to show; the others are summed up in one row.
        """
        ordered = sorted(self.stats.items(), key=lambda item: -item[1].seconds)
        shown = ordered if limit is None else ordered[:limit]
        rows = []
        for (phase, name), stats in shown:
            op, calls, time, *work = op_cells(name, stats)
            rows.append([op, phase, calls, time, self._share(stats.seconds), *work])
        rest = sum(stats.seconds for _, stats in ordered[len(shown) :])
        if rest:
            count = f"{len(ordered) - len(shown)} others"
            rows.append([count, "", "", format_seconds(rest), self._share(rest), *[""] * 4])
        rows.append(
            ["between ops", "", "", format_seconds(self.between_ops),
             self._share(self.between_ops), *[""] * 4]
        )  # fmt: skip
        for name, stats in [*self.phases.items(), ("all ops", self.total)]:
            op, calls, time, *work = op_cells(name, stats)
            rows.append([op, "", calls, time, self._share(stats.seconds), *work])
        calls_and_time, work_columns = OP_COLUMNS[:2], OP_COLUMNS[2:]
        return format_table(["op", "phase", *calls_and_time, "share", *work_columns], rows)

    def _share(self, seconds: float) -> str:
        return f"{100 * seconds / self.seconds:.1f} %" if self.seconds else ""

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain values, as for JSON: times in seconds, the longest op first."""
        ordered = sorted(self.stats.items(), key=lambda item: -item[1].seconds)
        return {
            "seconds": self.seconds,
            "between_ops_seconds": self.between_ops,
            "ops": [{"op": name, "phase": p, **stats.to_dict()} for (p, name), stats in ordered],
            "phases": {name: stats.to_dict() for name, stats in self.phases.items()},
        }

    def chrome_trace(self) -> dict[str, Any]:
        """The events in Chrome's trace format: complete events, times in microseconds.

        Returns:
            {"traceEvents": a list, "displayTimeUnit": "ms"}, as JSON can hold it. An event has
            "name", "cat" (its phase), "ph": "X", "ts" (start), "dur" (how long), "pid", "tid" (the
            attribute `_thread`) and "args": its "flops" and "bytes".

        Raises:
            ValueError: no events were kept.

        Source: Trace Event Format, Google, 2016.
        """
        if not self.trace:
            raise ValueError("this Profiler kept no events; make it with trace=True")
        process = os.getpid()
        events = [
            {
                "name": event.name,
                "cat": event.phase,
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": process,
                "tid": self._thread,
                "args": {"flops": event.cost.flops, "bytes": event.cost.bytes},
            }
            for event in self.events
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write the events to a file for chrome://tracing or ui.perfetto.dev."""
        Path(path).write_text(json.dumps(self.chrome_trace()))
