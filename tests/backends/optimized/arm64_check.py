"""A call of every class of compiled kernels, and a compiled step; run by an emulated Python.

    PYTHONPATH=. $(scripts/arm64-environment) tests/backends/optimized/arm64_check.py [CLASS ...]

Prints a JSON object a line; `kernels` is how many were compiled for a class, or loaded. Compiling
takes nearly all of the time, so one call in float32 stands for a class. With CLASS `all` the whole
conformance suite runs, which takes an hour.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, ops, optim
from tinytorch.dispatch import apply
from tinytorch.jit.cache import cache_info
from tinytorch.jit.cpu import host_vector_unit
from tinytorch.nn import functional as F
from tinytorch.testing.conformance import check_backend
from tinytorch.text.kernels.counting import count
from tinytorch.text.splitting import split

Call = Callable[[], Any]


def normal(*shape: int) -> Any:
    """Numbers that are always the same for a shape."""
    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return tinytorch.from_numpy(values)


def quantized_product() -> Any:
    """Rows times a transposed weight of 8 bits; the rows are rounded, too."""
    draw = np.random.default_rng(0)
    x = draw.integers(-63, 65, (9, 64)).astype(np.float32) / 32
    x[:, 0], x[:, 1] = -63 / 32, 2  # so that codes of rows are whole numbers, 127 steps from -63
    weight = draw.integers(-128, 128, (48, 64)).astype(np.int8)
    given = map(tinytorch.from_numpy, (x, weight, np.full((48, 1), 0.01, np.float32)))
    return apply(ops.quantized_linear, *given, bits=8, group_size=0, activation="dynamic")


def optimizer_steps() -> Any:
    """A parameter after three steps of AdamW."""
    p = nn.Parameter(tinytorch.tensor(np.linspace(-1, 1, 37, dtype=np.float32)))
    optimizer = optim.AdamW([p], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
    return p


def random_numbers() -> Any:
    """Uniform numbers of a seed."""
    tinytorch.manual_seed(3)
    return tinytorch.rand(257)


def pieces() -> Any:
    """How often each piece of a text occurs, in the order in which they come."""
    text = "the cat sat on the mat; the other cat's \u00e9t\u00e9, 1999. " * 20
    if tinytorch.get_backend() == "numpy":
        found = Counter(split(text.encode(), "gpt4"))
        return tinytorch.tensor(list(found.values()))
    return tinytorch.from_numpy(count([text.encode()], "gpt4").times)


def losses(compile: Callable[[Any], Any]) -> Any:
    """Losses of four steps of an MLP."""
    draw = np.random.default_rng(0)
    x = tinytorch.tensor(draw.standard_normal((32, 16)).astype(np.float32))
    y = tinytorch.tensor(draw.integers(0, 4, 32))
    tinytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return tinytorch.tensor([step(x, y).item() for _ in range(4)])


def compiled_step() -> Any:
    """The same as one function of machine code, where kernels are compiled."""
    is_numpy = tinytorch.get_backend() == "numpy"
    return losses((lambda step: step) if is_numpy else tinytorch.compile)


CLASSES: dict[str, Call] = {
    "products": lambda: normal(37, 50) @ normal(50, 70),
    "convolution": lambda: F.conv2d(normal(2, 3, 9, 8), normal(5, 3, 3, 3), padding=1),
    "elementwise": lambda: tinytorch.erf(normal(300) + normal(7, 300)),
    "pooling": lambda: F.max_pool2d(normal(2, 3, 9, 8), 2),
    "sums": lambda: normal(33, 50).sum(dim=1),
    "norms": lambda: F.layer_norm(normal(33, 50), (50,)),
    "softmax": lambda: F.softmax(normal(33, 50), dim=1),
    "attention": lambda: F.scaled_dot_product_attention(
        normal(2, 9, 8), normal(2, 9, 8), normal(2, 9, 8), is_causal=True
    ),
    "quantized products": quantized_product,
    "sorts": lambda: normal(5, 300).argsort(dim=1),
    "scans": lambda: normal(5, 300).cumsum(dim=1),
    "indices": lambda: normal(9, 30).gather(0, tinytorch.tensor([[3, 8, 0], [0, 1, 2]])),
    "random numbers": random_numbers,
    "optimizer steps": optimizer_steps,
    "text": pieces,
    "compiled step": compiled_step,
}


def problem_of(call: Call) -> str | None:
    """What differs between a call with kernels and the same by NumPy; None if nothing does."""
    found = []
    for backend in ("numpy", "optimized"):
        with tinytorch.using_backend(backend):
            found.append(call().detach().numpy())
    expected, got = found
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    is_float = got.dtype.kind == "f"
    right = np.allclose(got, expected, rtol=1e-4, atol=1e-5) if is_float else got == expected
    return None if np.all(right) else f"{got.ravel()[:5]}, not {expected.ravel()[:5]}"


def whole_suite() -> None:
    """Every op with inputs of every kind."""
    for report in check_backend("optimized"):
        print(json.dumps({"op": report.op, "problem": report.problem, "call": report.call}))


def main() -> None:
    unit = host_vector_unit()
    print(json.dumps({"machine": platform.machine(), "unit": unit.name}), flush=True)
    if sys.argv[1:] == ["all"]:
        whole_suite()
        return
    for name in sys.argv[1:] or CLASSES:
        start, before = time.process_time(), cache_info()
        problem = problem_of(CLASSES[name])
        seconds = round(time.process_time() - start, 1)
        now = cache_info()
        kernels = now.compiled + now.loaded - before.compiled - before.loaded
        found = {"class": name, "problem": problem, "kernels": kernels, "seconds": seconds}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
