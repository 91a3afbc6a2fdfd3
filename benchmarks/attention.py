"""Attention beside PyTorch's: forward, forward and backward, and the memory of long sequences.

Results and gradients are compared before anything is timed. Ratios are PyTorch / ours; the rate
counts what causal order leaves: the pairs of a query and a key before it, once in the two products
of the forward and five times in those of the backward.
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner import ROUNDS, Case, as_json, measure, report

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.bench.peak import memory_bandwidth, multiply_add_peak
from tinytorch.shapes_attention import visible_pairs

HEADS, FEATURES = 12, 64
LENGTHS = (64, 256, 1024)
LONG = 8192


def functions(library: Any, tensors: list[Any], g: Any) -> dict[str, Callable[[], Any]]:
    """Forward, and forward with backward, of PyTorch or TinyTorch."""
    attend = library.nn.functional.scaled_dot_product_attention

    def forward() -> Any:
        with library.no_grad():
            return attend(*tensors, is_causal=True)

    def both() -> list[Any]:
        for x in tensors:
            x.grad = None
        attend(*tensors, is_causal=True).backward(g)
        return [x.grad for x in tensors]

    return {"forward": forward, "forward and backward": both}


def check(ours: Any, theirs: Any) -> None:
    """Raises AssertionError where a result or gradient differs by more than rounding."""
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, list) else [(ours, theirs)]
    for a, b in pairs:
        scale = float(b.abs().max())
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-5 * scale)


def cases() -> Iterator[Case]:
    """Each length, forward and with the backward."""
    for length in LENGTHS:
        rng = np.random.default_rng(0)
        arrays = [
            rng.standard_normal((1, HEADS, length, FEATURES), dtype=np.float32) for _ in range(4)
        ]
        made = []
        for library in (tinytorch, torch):
            *tensors, g = (library.tensor(x) for x in arrays)
            made.append(functions(library, [x.requires_grad_() for x in tensors], g))
        once = HEADS * visible_pairs(length, length, True) * 2 * FEATURES
        for products, name in ((2, "forward"), (7, "forward and backward")):
            ours, theirs = made[0][name], made[1][name]
            check(ours(), theirs())
            yield Case(
                f"{name}, causal, {HEADS} heads of {FEATURES}", f"T = {length}",
                {"ours": ours, "torch": theirs}, flops=products * once,
            )  # fmt: skip


def extra_memory() -> int:
    """Bytes that forward and backward of a long sequence take beyond what they are given and give.

    In a fresh process; the most memory that it had, as the operating system counts it.
    """
    command = [sys.executable, __file__, "--child"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_extra_memory() -> int:
    """What `extra_memory` measures, in this process."""
    tinytorch.set_backend("optimized")

    def run(length: int) -> int:
        shape = (1, 1, length, FEATURES)
        q, k, v = (tinytorch.ones(shape).requires_grad_() for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(tinytorch.ones(shape))
        return 8 * q.numel() * q.element_size()  # inputs, result, its gradient, their gradients

    run(64)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again at what there is
    before = _peak()
    given = run(LONG)
    return max(_peak() - before - given, 0)


def _peak() -> int:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="more than one: wall clock")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(measure_extra_memory())
        return
    torch.set_num_threads(THREADS)
    tinytorch.set_num_threads(THREADS)
    tinytorch.set_backend("optimized")
    clock = "cpu" if THREADS == 1 else "wall"
    peak, bandwidth = multiply_add_peak(), memory_bandwidth()
    results = [measure(case, clock=clock, rounds=options.rounds) for case in cases()]
    extra = extra_memory() if Path("/proc/self/clear_refs").exists() else None
    if options.json:
        facts = {"threads": THREADS, "clock": clock, "peak_flops": peak, "extra_bytes": extra}
        print(as_json(results, **facts))
        return
    report(results, peak=peak, bandwidth=bandwidth)
    if extra is not None:
        print(f"T = {LONG}: {extra / 1e6:.0f} MB beyond inputs, result and gradients of one head")


if __name__ == "__main__":
    main()
