"""Kernels on all machines they were measured on, side by side; `--record` measures this one.

Each processor has a file in `results/`, with a part for each vector unit: its own, and the one
below it, the wider being hidden (tools/without.py). From the files comes `docs/machines.md`. A
change of kernels is judged by all of them, not by the machine at hand.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from tinytorch.bench import format_bytes, markdown_table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "machines.md"
GROUPS = "gemm,conv,memory"
HIDEABLE = ("avx512",)
MOST_SHARE = 1.03
"""Of the peak; above it the peak was measured wrongly. Clocks change by that much within a run."""

Record = dict[str, Any]

INTRODUCTION = """\
# The kernels on the machines that they were measured on

Made by `tito bench --record` from the files in `benchmarks/results/`, one for each processor; not
to be edited. A cell holds three figures of one thread's CPU time, taken side by side in one
process: the share of the core's peak in percent (for what is limited by multiply-adds), NumPy's
time / ours, PyTorch's time / ours. Above 1 ours is faster; "!" marks what other processes
disturbed. Where a processor has two columns, its wider vector instructions were hidden from all
libraries in the second.
"""


def kernels(hidden: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    """What `kernels.py` measures, perhaps with a vector unit hidden.

    Raises:
        subprocess.CalledProcessError: it failed; its own message is on stderr.
    """
    without = [str(HERE.parent / "tools" / "without.py"), hidden] if hidden else []
    command = [sys.executable, *without, str(HERE / "kernels.py"), "--json", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def part(found: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record for one vector unit.

    Raises:
        ValueError: a product is faster than the peak, so the peak is wrong.
    """
    peak = found["peak_flops"]
    results: dict[str, dict[str, Any]] = {}
    for result in found["results"]:
        row: dict[str, Any] = {name: round(r, 3) for name, r in result["ratios"].items()}
        if result["flops"]:
            share = result["flops"] / result["seconds"]["ours"] / peak
            if share > MOST_SHARE:
                raise ValueError(
                    f"{result['name']} takes {share:.0%} of a peak of {peak / 1e9:.0f} Gflop/s: "
                    f"the peak was measured wrongly (tinytorch/bench/peak.py)"
                )
            row["share"] = round(share, 3)
        if result["disturbed"]:
            row["disturbed"] = True
        results.setdefault(result["group"], {})[result["name"]] = row
    return {
        "peak_gflops": round(peak / 1e9, 1),
        "memory_gbytes": round(found["bandwidth"] / 1e9, 1),
        "results": results,
    }


def make_record(measured: Sequence[Mapping[str, Any]], today: str) -> Record:
    """The record of a processor, of what was measured with each of its vector units."""
    described = dict(measured[0]["processor"])
    described.pop("vector_unit")
    units = {found["processor"]["vector_unit"]: part(found) for found in measured}
    return {**described, "date": today, "units": units}


def file_name(record: Record) -> str:
    """Of a record: the processor's model, and LLVM's name for its core.

    Example:
        >>> file_name({"model": "AMD EPYC 7B13 (TM)", "core": "znver3"})
        'amd-epyc-7b13-tm-znver3.json'
    """
    words = re.findall(r"[a-z0-9]+", f"{record['model']} {record['core']}".lower())
    return "-".join(words) + ".json"


def read(folder: Path = RESULTS) -> list[Record]:
    """All records, in the order of their files' names."""
    found = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))]
    return [each for each in found if "units" in each]  # gpu.py keeps its files there, too


def _columns(records: Sequence[Record]) -> Iterator[tuple[str, Record, dict[str, Any]]]:
    for record in records:
        for unit, values in record["units"].items():
            yield f"{record['core']}, {unit}", record, values


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    share = f"{100 * row['share']:.0f} %" if "share" in row else ""
    ratios = [f"{row[name]:.2f}" if name in row else "-" for name in ("numpy", "torch")]
    return " ".join(filter(None, (share, *ratios, "!" if row.get("disturbed") else "")))


FACTS = ("machine", "processor", "peak, Gflop/s", "memory, GB/s", "L1", "L2", "measured")


def page(records: Sequence[Record]) -> str:
    """The page of all machines, in Markdown."""
    columns = list(_columns(records))
    facts = []
    for title, record, values in columns:
        levels = (record["caches"][level] for level in ("L1", "L2"))
        caches = [f"{format_bytes(each['size'])}, {each['ways']} ways" for each in levels]
        versions = ", ".join(f"{name} {v}" for name, v in record["versions"].items())
        facts.append([
            title, record["model"], f"{values['peak_gflops']:.0f}",
            f"{values['memory_gbytes']:.0f}", *caches, f"{record['date']}: {versions}",
        ])  # fmt: skip
    sections = [INTRODUCTION, markdown_table(FACTS, facts, left=2)]
    groups = dict.fromkeys(g for _, _, values in columns for g in values["results"])
    for group in groups:
        found = [values["results"].get(group, {}) for _, _, values in columns]
        names = dict.fromkeys(name for results in found for name in results)
        rows = [[name, *(_cell(results.get(name)) for results in found)] for name in names]
        sections.append(f"## {group}\n")
        sections.append(markdown_table([group, *(title for title, _, _ in columns)], rows))
    return "\n".join(sections) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="measure this machine (minutes)")
    parser.add_argument("--only", default=GROUPS, help=f"groups of kernels.py; {GROUPS} without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="all records on stdout")
    options = parser.parse_args()
    if options.record:
        arguments = ["--only", options.only, "--rounds", str(options.rounds), "--short"]
        measured = [kernels(None, arguments)]
        own = measured[0]["processor"]["vector_unit"]
        measured += [kernels(unit, arguments) for unit in HIDEABLE if unit == own]
        record = make_record(measured, date.today().isoformat())
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1) + "\n"
        (RESULTS / file_name(record)).write_text(text, encoding="utf-8")
        PAGE.write_text(page(read()), encoding="utf-8")
    records = read()
    print(json.dumps(records, indent=1) if options.json else page(records))


if __name__ == "__main__":
    main()
