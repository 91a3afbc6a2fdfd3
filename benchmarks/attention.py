"""Attention beside PyTorch's: forward, forward and backward, and the memory of long sequences.

Causal order is an argument, or a mask of floats as `nn.Transformer` makes it; with dropout PyTorch
has no kernel for this op, and computes its parts. Results and gradients are compared before
anything is timed: with PyTorch's, or, since dropout draws other numbers there, with the parts on
NumPy. Ratios are PyTorch / ours; the rate counts what causal order leaves: the pairs of a query and
a key before it, once in the two products of the forward and five times in those of the backward.
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner import ROUNDS, Case, as_json, highest_peak, measure, report

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.bench.peak import memory_bandwidth
from tinytorch.shapes_attention import visible_pairs

HEADS, FEATURES = 12, 64
LENGTHS = (64, 256, 1024)
DROPOUT = 0.1
LAYER_HEADS = 4
TOKENS = 1024  # of a batch, in the layer
LONG = 8192


def functions(
    library: Any, tensors: list[Any], g: Any, options: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Forward, and forward with backward, of PyTorch or TinyTorch."""
    attend = library.nn.functional.scaled_dot_product_attention

    def forward() -> Any:
        with library.no_grad():
            return attend(*tensors, **options)

    def both() -> list[Any]:
        for x in tensors:
            x.grad = None
        attend(*tensors, **options).backward(g)
        return [x.grad for x in tensors]

    return {"forward": forward, "forward and backward": both}


def check(ours: Any, theirs: Any) -> None:
    """Raises AssertionError where a result or gradient differs by more than rounding."""
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, list) else [(ours, theirs)]
    for a, b in pairs:
        scale = float(b.abs().max())
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-5 * scale)


def check_dropout(run: Callable[[], Any]) -> None:
    """The same with what the op is made of, on NumPy, which draws the same numbers."""
    results = []
    for backend in ("optimized", "numpy"):
        tinytorch.manual_seed(0)
        with tinytorch.using_backend(backend):
            results.append(run())
    check(*results)


def variants(length: int) -> dict[str, dict[str, Any]]:
    """Arguments by what they are called; an array becomes a tensor of each library."""
    mask = np.zeros((length, length), np.float32)
    mask[np.triu_indices(length, 1)] = -np.inf
    return {
        "causal": {"is_causal": True},
        "causal by a mask of floats": {"attn_mask": mask},
        "causal with dropout": {"is_causal": True, "dropout_p": DROPOUT},
    }


def cases() -> Iterator[Case]:
    """Each variant and length, forward and with the backward."""
    for variant in variants(1):
        for length in LENGTHS:
            yield from cases_of(variant, length)


def cases_of(variant: str, length: int) -> Iterator[Case]:
    """One variant and length, forward and with the backward."""
    rng = np.random.default_rng(0)
    shape = (1, HEADS, length, FEATURES)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for _ in range(4)]
    made = []
    for library in (tinytorch, torch):
        *tensors, g = (library.tensor(x) for x in arrays)
        options = {
            name: library.tensor(x) if isinstance(x, np.ndarray) else x
            for name, x in variants(length)[variant].items()
        }
        made.append(functions(library, [x.requires_grad_() for x in tensors], g, options))
    once = HEADS * visible_pairs(length, length, True) * 2 * FEATURES
    for products, name in ((2, "forward"), (7, "forward and backward")):
        ours, theirs = made[0][name], made[1][name]
        if "dropout" in variant:
            check_dropout(ours)
        else:
            check(ours(), theirs())
        yield Case(
            f"{name}, {variant}, {HEADS} heads of {FEATURES}", f"T = {length}",
            {"ours": ours, "torch": theirs}, flops=products * once,
        )  # fmt: skip


def layer_cases() -> Iterator[Case]:
    """`nn.MultiheadAttention`, forward: its four products of weights, and the attention."""
    size = LAYER_HEADS * FEATURES
    for length in LENGTHS:
        theirs = torch.nn.MultiheadAttention(size, LAYER_HEADS, batch_first=True).eval()
        ours = tinytorch.nn.MultiheadAttention(size, LAYER_HEADS, batch_first=True).eval()
        ours.load_state_dict(
            {name: tinytorch.tensor(x.numpy()) for name, x in theirs.state_dict().items()}
        )
        batch = TOKENS // length
        x = np.random.default_rng(0).standard_normal((batch, length, size), dtype=np.float32)
        mine, other = layer_call(tinytorch, ours, x), layer_call(torch, theirs, x)
        check(mine(), other())
        pairs = batch * LAYER_HEADS * length * length
        flops = 2 * (4 * batch * length * size * size + 2 * pairs * FEATURES)
        yield Case(
            f"MultiheadAttention, forward, {LAYER_HEADS} heads of {FEATURES}",
            f"{batch} x {length}", {"ours": mine, "torch": other}, flops=flops,
        )  # fmt: skip


def layer_call(library: Any, layer: Any, x: Any) -> Callable[[], Any]:
    """The layer on one sequence as query, key and value."""
    tokens = library.tensor(x)

    def forward() -> Any:
        with library.no_grad():
            return layer(tokens, tokens, tokens, need_weights=False)[0]

    return forward


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
    measured = chain(cases(), layer_cases())
    results = [measure(case, clock=clock, rounds=options.rounds) for case in measured]
    extra = extra_memory() if Path("/proc/self/clear_refs").exists() else None
    if options.json:
        facts = {
            "threads": THREADS,
            "clock": clock,
            "peak_flops": highest_peak(results),
            "extra_bytes": extra,
        }
        print(as_json(results, **facts))
        return
    report(results, bandwidth=memory_bandwidth(), cores=THREADS)
    if extra is not None:
        print(f"T = {LONG}: {extra / 1e6:.0f} MB beyond inputs, result and gradients of one head")


if __name__ == "__main__":
    main()
