"""Profiles as files: CSV, Parquet, JSON, and a timeline for trace viewers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinytorch.errors import missing_extra
from tinytorch.fx.profile.rows import ACTIVATION_COLUMNS, NODE_COLUMNS

if TYPE_CHECKING:
    from tinytorch.fx.profile.profile import Profile


def write_csv(profile: Profile, path: str | Path) -> None:
    """Write the profile as CSV, a row a node; columns of activations are empty for others."""
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*NODE_COLUMNS, *ACTIVATION_COLUMNS])
        writer.writeheader()
        writer.writerows(profile.node_rows())


def write_parquet(profile: Profile, path: str | Path) -> None:
    """The same rows as `write_csv`, with types.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError:
        raise missing_extra("pyarrow", "fx", "write_parquet") from None
    pq.write_table(pa.Table.from_pylist(profile.node_rows()), str(path))


def write_json(profile: Profile, path: str | Path) -> None:
    """Write everything that the profile knows as JSON."""
    Path(path).write_text(json.dumps(profile.to_dict()))


def write_chrome_trace(profile: Profile, path: str | Path) -> None:
    """A timeline for chrome://tracing and Perfetto: nodes by phase, and memory by category.

    Nodes follow each other without the gaps between them, each for its median time.
    """
    Path(path).write_text(json.dumps({"traceEvents": trace_events(profile)}))


def trace_events(profile: Profile) -> list[dict[str, Any]]:
    """Events of the trace event format; times in microseconds."""
    threads = {phase: i for i, phase in enumerate(profile.phases)}
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": i, "args": {"name": phase}}
        for phase, i in threads.items()
    ]
    now = 0.0
    for n in profile.nodes:
        live = {category: row[n.rank] for category, row in profile.memory.items()}
        events.append({"name": "memory", "ph": "C", "pid": 0, "ts": now, "args": live})
        if not n.phase:
            continue
        events.append({
            "name": n.name, "cat": n.type, "ph": "X", "pid": 0, "tid": threads[n.phase],
            "ts": now, "dur": n.seconds * 1e6,
            "args": {"op": n.op, "flops": n.flops, "made_bytes": n.made_bytes, "line": n.line},
        })  # fmt: skip
        now += n.seconds * 1e6
    return events
