"""PyTorch's own table of operators and samples (OpInfo), and one entry run in both libraries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch

import tinytorch
from tests.torch_ops import pytorchs_own_samples
from tinytorch.autograd import grad
from tinytorch.tensor import Tensor

SAMPLES = 5
RTOL, ATOL = 1e-7, 1e-9


@cache
def operators() -> dict[str, Any]:
    """PyTorch's entries that TinyTorch has a function or a method for, by name and variant."""
    found = {}
    for op in pytorchs_own_samples():
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if op.name[0] != "_" and _ours(op) is not None and _dtype(op) is not None:
            found[name] = op
    return found


def _dtype(op: Any) -> torch.dtype | None:
    kinds = (torch.float64, torch.float32, torch.int64, torch.bool)
    return next((d for d in kinds if op.supports_dtype(d, "cpu")), None)


def _ours(op: Any) -> Any:
    """Our function, or else method; where the entry is a lambda, that lambda over our names."""
    value: Any = tinytorch
    try:
        for part in op.name.split("."):
            value = getattr(value, part)
    except (AttributeError, ImportError):
        value = None
    if not callable(value):
        value = getattr(Tensor, op.name, None) if "." not in op.name else None
    if not callable(value):
        return None
    entry = op.op
    if isinstance(entry, FunctionType) and entry.__name__ == "<lambda>":
        scope = {**entry.__globals__, "torch": tinytorch}
        return FunctionType(entry.__code__, scope, None, entry.__defaults__, entry.__closure__)
    return value


def _map(value: Any, tensors: dict[int, Tensor]) -> Any:
    """The same argument for TinyTorch; a tensor of PyTorch's becomes the same one each time."""
    if isinstance(value, torch.Tensor):
        if id(value) not in tensors:
            array = value.detach().numpy().copy()
            tensors[id(value)] = tinytorch.tensor(array, requires_grad=value.requires_grad)
        return tensors[id(value)]
    if isinstance(value, torch.dtype):
        return getattr(tinytorch, str(value).rpartition(".")[2])
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_map(v, tensors) for v in value)
    if isinstance(value, dict):
        return {k: _map(v, tensors) for k, v in value.items()}
    return value


def _leaves(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _leaves(v, kind)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()), kind)


def _array(x: Any) -> np.ndarray:
    is_wide = str(x.dtype).rpartition(".")[2] != "bfloat16"  # which NumPy does not have
    array: np.ndarray = (x if is_wide else x.float()).detach().numpy()
    return array


def _compare(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, PyTorch {wanted.shape}"
    assert got.dtype == wanted.dtype, f"{what}: dtype {got.dtype}, PyTorch {wanted.dtype}"
    np.testing.assert_allclose(got, wanted, RTOL, ATOL, err_msg=what)


def check(name: str) -> int:
    """Run the first samples of an entry in both libraries; returns how many there were.

    Raises:
        AssertionError: values, shapes, dtypes or first gradients differ.
        Exception: whatever TinyTorch raises.
    """
    op = operators()[name]
    ours, dtype = _ours(op), _dtype(op)
    differentiable = op.supports_autograd and dtype is torch.float64
    count = 0
    samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for sample in itertools.islice(samples, SAMPLES):
        given = (sample.input, *sample.args)
        tensors: dict[int, Tensor] = {}
        text = f"{name}{sample.summary() if hasattr(sample, 'summary') else ''}"[:500]
        theirs = op(*given, **sample.kwargs)
        mine = ours(*_map(given, tensors), **_map(sample.kwargs, tensors))
        wanted, found = list(_leaves(theirs, torch.Tensor)), list(_leaves(mine, Tensor))
        assert len(found) == len(wanted), f"{text}: {len(found)} results, PyTorch {len(wanted)}"
        if not wanted:
            assert mine == theirs, f"{text}: {mine}, PyTorch {theirs}"
        for a, b in zip(found, wanted, strict=True):
            if "empty" in op.name:  # whatever was in memory
                a, b = tinytorch.zeros_like(a), torch.zeros_like(b)
            _compare(_array(a), _array(b), text)
        if differentiable:
            _check_gradients(given, sample.kwargs, tensors, found, wanted, text)
        count += 1
    return count


def _check_gradients(
    given: Any,
    options: Any,
    tensors: dict[int, Tensor],
    found: list[Tensor],
    wanted: list[torch.Tensor],
    text: str,
) -> None:
    leaves = [t for t in _leaves([given, options], torch.Tensor) if t.requires_grad]
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if b.requires_grad]
    if not pairs or not leaves:
        return
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(tuple(b.shape)) for _, b in pairs]
    expected = torch.autograd.grad(
        [b for _, b in pairs], leaves, [torch.from_numpy(np.asarray(w)) for w in weights],
        allow_unused=True,
    )  # fmt: skip
    # a result that does not depend on its inputs has no history here, and a gradient of 0 there
    mine = [(a, tinytorch.tensor(w)) for (a, _), w in zip(pairs, weights, strict=True)
            if a.requires_grad]  # fmt: skip
    got: Any = [None] * len(leaves)
    if mine:
        inputs = [tensors[id(t)] for t in leaves]
        got = grad([a for a, _ in mine], inputs, [w for _, w in mine], allow_unused=True)
    for x, g, e in zip(leaves, got, expected, strict=True):
        zero = np.zeros(tuple(x.shape))
        _compare(
            zero if g is None else g.numpy(),
            zero if e is None else e.numpy(),
            f"gradient of {text}",
        )
