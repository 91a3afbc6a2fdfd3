"""The page of all machines (docs/machines.md), made of their records: in short first, then all."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tinytorch.bench import format_bytes, markdown_table

Record = dict[str, Any]
Row = dict[str, Any]

UNITS = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON", "generic": "generic"}
SLOWER = 0.95
"""A ratio from which on ours counts as slower; nearer to 1 it is noise."""
MOST_SLOWER = 12  # cases named for a machine

INTRODUCTION = """\
# The kernels on the machines that they were measured on

Made by `tito bench --record` from the files in `benchmarks/results/`, one for each processor; not
to be edited. Where a processor has two columns, its wider vector instructions were hidden from all
libraries in the second (`tools/without.py`): so it stands for processors that lack them.

How to read the numbers:

- A **ratio** is the time of another library divided by ours: **above 1 ours is faster**. Both are
  timed in turns in one process, on the CPU time of one thread; the median of the turns counts
  (before 2026-11-29 the fastest samples).
- The **share of the peak** is the multiply-adds of a case for each second, divided by those of a
  loop that does nothing else on the same core, timed in turns with it, as clocks change (before
  2026-11-29 before and after all cases: too low where the clock falls under load).
- *1.10 (0.94 to 1.81)* says: in the median 1.10; 0.94 in the worst case, 1.81 in the best.
- A case is **disturbed** if other processes used the machine in all attempts at it. Ratios bear
  that, as both sides are hit; shares of the peak are then too low rather than too high.
- *OpenBLAS, best* is NumPy's product with the kernels of the core type that is fastest in the
  case, which need not be the one that the library chooses.

The cases: *GEMM 32x784x128 TN* is a product of a 32x784 and a 784x128 matrix; T is one stored by
columns, a transposed view. *conv2d 8x3x32x32->16 k3 s1* has a batch of 8 images with 3 channels and
32x32 pixels, 16 output channels, a kernel of 3x3 and stride 1; backward is both gradients.
*Memory-bound* are functions of rows x columns, NumPy's written with its array operations. A *step*
is forward, backward and SGD; NumPy's is written by hand, PyTorch's eager.
"""


class Measure(NamedTuple):
    """What is said of each case."""

    title: str
    key: str
    is_share: bool = False

    def cell(self, value: float | None) -> str:
        """A value in a table."""
        return "" if value is None else f"{value:.0%}" if self.is_share else f"{value:.2f}"


MEASURES = (
    Measure("Share of the peak", "share", is_share=True),
    Measure("NumPy's time / ours", "numpy"),
    Measure("OpenBLAS, best: its time / ours", "blas"),
    Measure("PyTorch's time / ours", "torch"),
)


PEERS = {"NumPy": "numpy", "OpenBLAS": "blas", "PyTorch": "torch"}


@dataclass(frozen=True)
class Column:
    """A processor with one of its vector units."""

    record: Record
    unit: str

    @property
    def title(self) -> str:
        return f"{self.record['core']}, {UNITS.get(self.unit, self.unit)}"

    @property
    def facts(self) -> Row:
        found: Row = self.record["units"][self.unit]
        return found

    @property
    def results(self) -> dict[str, dict[str, Row]]:
        """Of each group the cases, and of each case the ratios by peer, and the share."""
        found: dict[str, dict[str, Row]] = self.facts["results"]
        return found

    def values(self, group: str, key: str) -> dict[str, float]:
        """The cases of a group for which something was measured."""
        return {name: r[key] for name, r in self.results.get(group, {}).items() if key in r}


def page(records: Sequence[Record], modelled: Record | None = None) -> str:
    """The page, in Markdown.

    Args:
        records: of machines.
        modelled: what `inner_loop.py` says of processors that are not among them.
    """
    columns = [Column(record, unit) for record in records for unit in record["units"]]
    groups = list(dict.fromkeys(group for column in columns for group in column.results))
    sections = [
        INTRODUCTION, _machines(columns), _in_short(columns, groups), _slower(columns),
        *([_modelled(modelled)] if modelled else []),
        *(_details(columns, group) for group in groups),
    ]  # fmt: skip
    return "\n".join(sections)


def _machines(columns: Sequence[Column]) -> str:
    head = ("machine", "processor", "peak, Gflop/s", "memory, GB/s", "L1", "L2", "disturbed")
    rows = []
    for column in columns:
        levels = (column.record["caches"][level] for level in ("L1", "L2"))
        caches = [f"{format_bytes(each['size'])}, {each['ways']} ways" for each in levels]
        cases = [row for group in column.results.values() for row in group.values()]
        disturbed = sum(bool(row.get("disturbed")) for row in cases)
        rows.append([
            column.title, column.record["model"], f"{column.facts['peak_gflops']:.0f}",
            f"{column.facts['memory_gbytes']:.0f}", *caches, f"{disturbed} of {len(cases)} cases",
        ])  # fmt: skip
    records = {column.record["core"]: column.record for column in columns}
    versions = [
        f"- {core}: {record['date']}, "
        + ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        for core, record in records.items()
    ]
    return "\n".join(
        ["## Machines\n", markdown_table(head, rows, left=2), "\nMeasured:\n", *versions, ""]
    )


def _in_short(columns: Sequence[Column], groups: Sequence[str]) -> str:
    parts = ["## In short\n"]
    for measure in MEASURES:
        rows = []
        for group in groups:
            cells = [_range(measure, column.values(group, measure.key)) for column in columns]
            if any(cells):
                rows.append([group, *cells])
        if rows:
            head = [measure.title, *(column.title for column in columns)]
            parts += [markdown_table(head, rows), ""]
    return "\n".join(parts)


def _range(measure: Measure, values: dict[str, float]) -> str:
    """The median, and the worst and best in brackets."""
    if not values:
        return ""
    low, middle, high = (f(values.values()) for f in (min, statistics.median, max))
    if len(values) == 1:
        return measure.cell(middle)
    return f"{measure.cell(middle)} ({measure.cell(low)} to {measure.cell(high)})"


def _slower(columns: Sequence[Column]) -> str:
    """The cases in which another library is clearly faster, for each machine, worst first."""
    parts = [
        f"## Where ours is slower\n\nCases with a ratio below {SLOWER}, the worst first: where to "
        "work next.\n"
    ]
    for column in columns:
        found = []
        for group, cases in column.results.items():
            for name, row in cases.items():
                behind = {peer: row[key] for peer, key in PEERS.items() if row.get(key, 1) < SLOWER}
                if behind:
                    said = ", ".join(f"{peer} {value:.2f}" for peer, value in behind.items())
                    found.append((min(behind.values()), f"- {group} {name}: {said}"))
        count = sum(len(cases) for cases in column.results.values())
        parts.append(f"**{column.title}**: {len(found)} of {count} cases\n")
        parts += [line for _, line in sorted(found)[:MOST_SLOWER]]
        if len(found) > MOST_SLOWER:
            parts.append(f"- and {len(found) - MOST_SLOWER} more, in the tables below")
        parts.append("")
    return "\n".join(parts)


def _modelled(found: Record) -> str:
    """The inner loop of a product on other processors."""
    head = ("processor", "model of a core", "unit", "tile", "ports", "busy", "measured")
    rows = [
        [
            each["cpu"], each["model"], UNITS.get(each["unit"], each["unit"]),
            f"{each['rows']} x {each['vectors']}", f"{each['ports']:.0f}", f"{each['busy']:.0%}",
            "" if each["measured"] is None else f"{each['measured']:.0%}",
        ]
        for each in found["results"]
    ]  # fmt: skip
    return (
        "## The inner loop on other processors\n\n"
        "By `tito bench inner_loop`: the register tile of a product is compiled for a processor, "
        f"and `llvm-mca` {found['llvm_mca']} says for how much of the time its multiply-add ports "
        "are busy, with all data in L1. Its model of a core may be that of an older one; *ports* "
        "are the multiply-adds that it starts in a cycle. Where a processor was there, the same "
        f"share is measured.\n\n{markdown_table(head, rows, left=4)}\n"
    )


def _details(columns: Sequence[Column], group: str) -> str:
    """A table for each measure, with a row for each case, folded."""
    parts = [f"## {group}\n"]
    for measure in MEASURES:
        values = [column.values(group, measure.key) for column in columns]
        names = dict.fromkeys(name for found in values for name in found)
        if not names:
            continue
        rows = [[name, *(measure.cell(v.get(name)) for v in values)] for name in names]
        table = markdown_table([group, *(column.title for column in columns)], rows)
        parts.append(
            f"<details><summary>{measure.title}, {len(names)} cases</summary>\n\n{table}\n\n"
            "</details>\n"
        )
    return "\n".join(parts)
