"""Many random programs, eager against compiled: `make fuzz`, or

    python -m tests.fuzz --seed 7 --count 10000
    python -m tests.fuzz --seed 7 --only 1234 --backend optimized --threads 2    one program again

Prints the seed, what the compiler refused and why, and each difference, shrunk. Exits with 1 if
there is one.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter

REPORT_EVERY = 15.0  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="by default another each time")
    parser.add_argument("--count", type=int, default=10_000, help="programs for each target")
    parser.add_argument("--start", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", type=int, help="one program, by its number")
    parser.add_argument("--backend", nargs="+", default=["numpy", "optimized"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--compile-loops", action="store_true", help="all of it as machine code")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    options = parser.parse_args()
    cache = tempfile.mkdtemp(prefix="tinytorch-fuzz-") if options.compile_loops else None
    if cache:  # thousands of loops that nobody needs again
        os.environ["TINYTORCH_CACHE_DIR"] = cache
    try:
        return _run(options)
    finally:
        if cache:
            shutil.rmtree(cache, ignore_errors=True)


def _run(options: argparse.Namespace) -> int:
    from tests.fuzz.check import Target, compare
    from tests.fuzz.programs import draw, shrink

    warnings.simplefilter("ignore")
    targets = [
        Target(b, n, options.compile_loops) for b in options.backend for n in options.threads
    ]
    first = options.start if options.only is None else options.only
    numbers = range(first, first + (options.count if options.only is None else 1))
    print(f"seed {options.seed}, programs {numbers.start} to {numbers.stop - 1}", flush=True)
    counts: dict[Target, Counter[str]] = {target: Counter() for target in targets}
    begun = reported = time.monotonic()
    failures = 0
    for number in numbers:
        program = draw(f"{options.seed}:{number}")
        if options.only is not None:
            print(program)
        for target in targets:
            outcome = compare(program, target)
            counts[target][outcome.kind] += 1
            if outcome.fell_back:
                counts[target][f"  in Python, {_kind(outcome.fell_back)}"] += 1
            if outcome.kind == "refused":
                counts[target][f"  refused, {_kind(outcome.text)}"] += 1
            if outcome.kind == "different":
                failures += 1
                smaller = shrink(program, lambda p, t=target: compare(p, t).kind == "different")
                print(f"\nprogram {number} on {target}: {outcome.text}\nshrunk:\n{smaller}")
                print(f"    {compare(smaller, target).text}\n", flush=True)
        now = time.monotonic()
        if now - reported > REPORT_EVERY:
            reported = now
            print(
                f"{number + 1 - first} programs, {failures} differ, {now - begun:.0f} s", flush=True
            )
        if now - begun > options.seconds or failures >= options.failures:
            break
    print(f"seed {options.seed}, programs {first} to {number}, {time.monotonic() - begun:.0f} s")
    for target, kinds in counts.items():
        print(target)
        for kind, count in sorted(kinds.items(), key=lambda item: (item[0][0] == " ", -item[1])):
            print(f"    {count:6}  {kind}")
    return 1 if failures else 0


def _kind(reason: str) -> str:
    """A reason without names and numbers, to be counted."""
    return re.sub(r"\b[a-z]?\d[\d.]*\b", "_", reason.split(" at <")[0])[:90]


if __name__ == "__main__":
    sys.exit(main())
