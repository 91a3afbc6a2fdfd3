"""Convolution in float32, forward and both gradients; x (n, c, h, w), weight (o, c, k, k)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.backends import find_backend
from tito.compete.event import Array, Problem

METHODS = {"output": "conv2d", "input": "conv2d_input", "weight": "conv2d_weight"}


class Torch:
    """PyTorch in an entry's place."""

    def conv2d(self, x: Array, w: Array, b: Any = None, **options: Any) -> Array:
        import torch

        found: Array = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()
        return found

    def conv2d_input(self, g: Array, w: Array, *, input_size: Any, **options: Any) -> Array:
        shape = (g.shape[0], w.shape[1], *input_size)
        return self._backward(g, np.empty(shape, np.float32), w, [True, False, False], options)

    def conv2d_weight(self, x: Array, g: Array, *, kernel_size: Any, **options: Any) -> Array:
        shape = (g.shape[1], x.shape[1], *kernel_size)
        return self._backward(g, x, np.empty(shape, np.float32), [False, True, False], options)

    def _backward(
        self, g: Array, x: Array, w: Array, wanted: list[bool], options: dict[str, Any]
    ) -> Array:
        import torch

        given = [torch.from_numpy(a) for a in (g, x, w)]
        settings = [list(options[n]) for n in ("stride", "padding", "dilation")]
        found = torch.ops.aten.convolution_backward(
            *given, None, *settings, False, [0, 0], 1, wanted
        )
        array: Array = found[wanted.index(True)].numpy()
        return array


def make(draw: np.random.Generator, case: dict[str, Any]) -> Problem:
    """Sizes from the case's ranges; padding that keeps the size."""
    n, h, w = (int(draw.integers(*case[k], endpoint=True)) for k in ("batch", "size", "size"))
    c, o = (int(draw.integers(low, high + 1)) for low, high in case["channels"])
    kernel, stride, of = case["kernel"], case["stride"], case["of"]
    padding = kernel // 2
    oh, ow = ((s + 2 * padding - kernel) // stride + 1 for s in (h, w))
    shapes = {"output": (n, o, oh, ow), "input": (n, c, h, w), "weight": (o, c, kernel, kernel)}
    result = shapes.pop(of)
    given = {
        "output": ("input", "weight"), "input": ("output", "weight"), "weight": ("input", "output")
    }[of]  # fmt: skip
    options: dict[str, Any] = {
        "stride": [stride] * 2, "padding": [padding] * 2, "dilation": [1, 1], "groups": 1
    }  # fmt: skip
    options |= {"input": {"input_size": [h, w]}, "weight": {"kernel_size": [kernel] * 2}}.get(
        of, {}
    )
    terms = {"output": c * kernel**2, "input": o * kernel**2, "weight": n * oh * ow}[of]
    return Problem(
        [_values(draw, shapes[name]) for name in given],
        [(result, "f4")],
        flops=_flops(n, o, c, kernel, (h, w), stride, padding),
        parameters={"of": of, "options": options, "terms": terms},
    )


def _flops(
    n: int, o: int, c: int, kernel: int, size: tuple[int, int], stride: int, padding: int
) -> float:
    """Without the products with padding, which nobody has to compute."""
    taps = 1
    for length in size:
        out = (length + 2 * padding - kernel) // stride + 1
        starts = np.arange(out)[:, None] * stride + np.arange(kernel) - padding
        taps *= int(((starts >= 0) & (starts < length)).sum())
    return 2.0 * n * o * c * taps


def _values(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    scales = 10 ** draw.uniform(-1, 1, (shape[0], 1, 1, 1))
    return (draw.standard_normal(shape) * scales).astype(np.float32)


def call(entry: Any, inputs: Sequence[Array], parameters: dict[str, Any]) -> list[Array]:
    """The entry's method for what is asked: `conv2d`, `conv2d_input` or `conv2d_weight`."""
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in parameters["options"].items()}
    return [getattr(entry, METHODS[parameters["of"]])(*inputs, **options)]


def reference(inputs: Sequence[Array], parameters: dict[str, Any]) -> list[tuple[Array, Array]]:
    """In float64 by the NumPy backend, and the bound for sums of so many terms."""
    from tinytorch.bench.accuracy import rounding_bound  # only the parent needs it

    backend = find_backend("numpy")
    exact = [x.astype(np.float64) for x in inputs]
    (found,) = call(backend, exact, parameters)
    (absolute,) = call(backend, [np.abs(x) for x in exact], parameters)
    return [(found, rounding_bound(parameters["terms"], absolute))]
