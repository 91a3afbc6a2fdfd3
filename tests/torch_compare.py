"""Compare a computation in TinyTorch with the same one in PyTorch: values, dtypes, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tinytorch.autograd import grad
from tinytorch.tensor import Tensor


def assert_like_torch(
    ours: Callable[..., Any],
    theirs: Callable[..., Any] | None,
    *arrays: Any,
    rtol: float = 1e-5,
    dtype: bool = True,
) -> None:
    """`ours` on tensors of `arrays` gives what `theirs` (by default the same) gives in PyTorch.

    Results may be single tensors or tuples of them. Floating-point inputs get gradients, which must
    agree too.
    """
    theirs = theirs or ours
    mine = [_tensor(a) for a in arrays]
    torches = [_torch_tensor(a) for a in arrays]
    for got, wanted in zip(_outputs(ours(*mine)), _outputs(theirs(*torches)), strict=True):
        _assert_equal(got.detach().numpy(), wanted.detach().numpy(), rtol, dtype)
        assert got.requires_grad == wanted.requires_grad
        if wanted.requires_grad:
            _assert_gradients(got, wanted, mine, torches, rtol)


def _tensor(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return Tensor(a, requires_grad=a.dtype.kind == "f")


def _torch_tensor(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return torch.from_numpy(np.array(a)).requires_grad_(a.dtype.kind == "f")


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _assert_equal(got: Any, wanted: Any, rtol: float, dtype: bool) -> None:
    assert got.shape == wanted.shape, f"shape {got.shape}, PyTorch {wanted.shape}"
    if dtype:
        assert got.dtype == wanted.dtype, f"dtype {got.dtype}, PyTorch {wanted.dtype}"
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)


def _assert_gradients(got: Any, wanted: Any, mine: Any, torches: Any, rtol: float) -> None:
    weight = np.random.default_rng(0).standard_normal(got.shape).astype(got.dtype.dtype)
    leaves = [x for x in mine if isinstance(x, Tensor) and x.requires_grad]
    others = [x for x in torches if isinstance(x, torch.Tensor) and x.requires_grad]
    found = grad(got, leaves, Tensor(weight), retain_graph=True, allow_unused=True)
    expected = torch.autograd.grad(
        wanted, others, torch.from_numpy(weight), retain_graph=True, allow_unused=True
    )
    for g, e, x in zip(found, expected, leaves, strict=True):
        zero = np.zeros(x.shape, x.dtype.dtype)
        _assert_equal(
            zero if g is None else g.numpy(), zero if e is None else e.numpy(), rtol, True
        )
