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
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from machine_page import Record, page
from runner import ATTEMPTS, check_share

from tinytorch.bench import CANNOT_RUN_HERE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "machines.md"
GROUPS = "gemm,conv,memory"
STEPS = {"training": [], "compiled": ["--no-torch-compile"]}
"""Benchmarks of whole steps, and what they are to leave out."""
MODELLED = "inner_loop.json"
TITLES = {"training": "eager training step", "compiled": "compiled step"}  # of their groups
HIDEABLE = ("avx512",)


def ask(script: str, hidden: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    """What a benchmark measures, as it says it for a machine; perhaps with a vector unit hidden.

    Raises:
        subprocess.CalledProcessError: it failed; its own message is on stderr.
    """
    without = [str(HERE.parent / "tools" / "without.py"), hidden] if hidden else []
    command = [sys.executable, *without, str(HERE / f"{script}.py"), "--json", *arguments]
    print(f"{script}{f', without {hidden}' if hidden else ''} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(hidden: str | None, options: argparse.Namespace) -> dict[str, Any]:
    """What `kernels.py` says, with the results of whole steps after those of kernels."""
    each = ["--rounds", str(options.rounds), "--attempts", str(options.attempts)]
    found = ask("kernels", hidden, ["--only", options.only, "--short", *each])
    for script, arguments in STEPS.items():
        found["results"] += ask(script, hidden, [*arguments, *each])["results"]
    return found


def part(found: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record for one vector unit.

    Raises:
        ValueError: a product is faster than the peak, so the peak is wrong.
    """
    results: dict[str, dict[str, Any]] = {}
    for result in found["results"]:
        row: dict[str, Any] = {name: round(r, 3) for name, r in result["ratios"].items()}
        if result["flops"]:
            check_share(result["name"], result["share"], result["peak"])
            row["share"] = round(result["share"], 3)
        if result["disturbed"]:
            row["disturbed"] = True
        group = TITLES.get(result["group"], result["group"])
        results.setdefault(group, {})[result["name"]] = row
    return {
        "peak_gflops": round(found["peak_flops"] / 1e9, 1),
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


def model_processors() -> None:
    """Keep what `llvm-mca` says of processors that are not here; nothing where it is missing, or
    knows fewer processors than the one whose word is kept."""
    try:
        found = ask("inner_loop", None, ["--cpu", "all"])
    except subprocess.CalledProcessError as error:
        if error.returncode != CANNOT_RUN_HERE:
            raise
        return
    kept = modelled()
    if kept is not None and len(found["unknown"]) > len(kept["unknown"]):
        print(*found["unknown"], f"kept: {kept['llvm_mca']}", sep="\n", file=sys.stderr)
        return
    (RESULTS / MODELLED).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def modelled() -> Any:
    """What is kept of processors that are not here; None if nothing is."""
    path = RESULTS / MODELLED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def whole_page() -> str:
    """The page of all that is kept."""
    return page(read(RESULTS), modelled())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="measure this machine (minutes)")
    parser.add_argument("--only", default=GROUPS, help=f"groups of kernels.py; {GROUPS} without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="while others disturb")
    parser.add_argument("--json", action="store_true", help="all records on stdout")
    options = parser.parse_args()
    if options.record:
        units = [measured(None, options)]
        own = units[0]["processor"]["vector_unit"]
        units += [measured(u, options) for u in HIDEABLE if u == own]
        record = make_record(units, date.today().isoformat())
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1) + "\n"
        (RESULTS / file_name(record)).write_text(text, encoding="utf-8")
        model_processors()
        PAGE.write_text(whole_page(), encoding="utf-8")
    records = read()
    print(json.dumps(records, indent=1) if options.json else whole_page())


if __name__ == "__main__":
    main()
