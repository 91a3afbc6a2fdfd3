"""Runs a function as machine code, and checks its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch
from tinytorch.tensor import Tensor


def draw(rng: np.random.Generator, *shape: int) -> Tensor:
    return tinytorch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def run_native(function: Callable[..., Any], *inputs: Tensor, threads: int = 1) -> Any:
    """The program, after its results were compared with those of eager code."""
    count = tinytorch.get_num_threads()
    with tinytorch.using_backend("optimized"):
        try:
            tinytorch.set_num_threads(threads)
            compiled = tinytorch.compile(function, mode="native")
            for _ in range(2):  # the second time memory holds what the first left
                expected = [np.array(x.numpy()) for x in function(*inputs)]
                found = compiled(*inputs)
                for ours, theirs in zip(found, expected, strict=True):
                    atol = 1e-5 + 1e-6 * float(np.abs(theirs).max(initial=0))  # what cancels
                    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=atol)
        finally:
            tinytorch.set_num_threads(count)
    (trace,) = compiled.traces
    return trace.code.program
