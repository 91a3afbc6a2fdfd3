from __future__ import annotations

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.errors import AutogradError, DTypeError

INF, NAN = float("inf"), float("nan")
CASES = [
    lambda t, x: t.clamp_min(x, 0.1),
    lambda t, x: x.clamp_max(0.1),
    lambda t, x: t.rsub(x, 1.0, alpha=2),
    lambda t, x: t.fmax(t.tensor([NAN, 1.0]), t.tensor([2.0, NAN])),
    lambda t, x: t.fmin(t.tensor([NAN, 1.0]), t.tensor([2.0, 0.0])),
    lambda t, x: t.fmin(t.tensor([0, 3], dtype=t.uint8), t.tensor([1, 2], dtype=t.uint8)),
    lambda t, x: t.fmin(t.tensor([True, False]), t.tensor([True, True])),
    lambda t, x: t.hypot(t.tensor([INF, NAN, -INF]), t.tensor([NAN, 1.0, 2.0])),
    lambda t, x: t.isposinf(t.tensor([INF, -INF, 1.0])),
    lambda t, x: t.tensor([INF, -INF, 1.0]).isneginf(),
    lambda t, x: t.block_diag(x, x[0], 2 * x),
    lambda t, x: t.cartesian_prod(t.tensor([1, 2]), t.tensor([3, 4, 5])),
    lambda t, x: t.trapezoid(x, dim=0),
    lambda t, x: t.trapz(x, t.tensor([0.0, 1.0, 3.0, 4.0])),
    lambda t, x: t.trapezoid(x, t.tensor([0.0, 1.0, 3.0]), dim=0),
    lambda t, x: t.trapezoid(x, 3 * x, dim=-2),
    lambda t, x: t.trapezoid(t.stack([x, x * x]), x, dim=1),
    lambda t, x: t.var(x, 0, correction=None),
    lambda t, x: t.std_mean(x, 1, correction=None)[0],
    lambda t, x: t.index_add(t.tensor(3).int(), 0, t.tensor([0]), t.tensor(4).int(), alpha=-1),
    lambda t, x: t.addbmm(t.ones(1).int(), t.ones(2, 3, 3).int(), t.ones(2, 3, 3).int()),
    lambda t, x: t.hann_window(6),
    lambda t, x: t.hamming_window(5, periodic=False),
    lambda t, x: t.scalar_tensor(2),
    lambda t, x: t.asarray([1, 2]),
    lambda t, x: x.reshape_as(x.t()),
    lambda t, x: x[:, t.newaxis] if hasattr(t, "newaxis") else None,
    lambda t, x: x.tanh_(),
    lambda t, x: t.sigmoid_(x),
    lambda t, x: x.abs_().sqrt_(),
    lambda t, x: x.lt_(0.0),
    lambda t, x: t.arange(4).add_(1).remainder_(2),
    lambda t, x: x.clamp_min_(0.0),
    lambda t, x: t.conv1d(x[None], t.ones(2, 3, 2)),
]


@pytest.mark.parametrize("use", CASES)
def test_gives_what_pytorch_gives(use, rng):
    array = rng.standard_normal((3, 4)).astype(np.float32)
    ours, theirs = use(tinytorch, tinytorch.tensor(array)), use(torch, torch.tensor(array))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)
    assert ours.shape == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


def test_print_options():
    x = tinytorch.tensor([0.123456789, 1.0])
    try:
        tinytorch.set_printoptions(precision=2)
        assert str(x) == "tensor([0.12, 1.  ])"
        tinytorch.set_printoptions(threshold=float("inf"))
        assert "..." not in str(tinytorch.zeros(2000))
    finally:
        tinytorch.set_printoptions(profile="default")
    assert str(x) == "tensor([0.1235, 1.    ])" and "..." in str(tinytorch.zeros(2000))


def test_questions():
    x, y = tinytorch.zeros(2, 3), torch.zeros(2, 3)
    for t, v in ((tinytorch, x), (torch, y)):
        assert t.broadcast_shapes((2, 1), (3,)) == (2, 3)
        assert t.promote_types(t.int64, t.float32) is t.float32
        assert t.result_type(v, 2.5) is t.float32
        assert t.can_cast(t.int64, t.float32) and not t.can_cast(t.float32, t.int64)
        assert v.is_signed() and not t.tensor(True).is_signed()
        assert t.is_nonzero(t.tensor(2)) and v.is_same_size(v) and v.ndimension() == 2
        assert v.grad_fn is None and v.requires_grad_().sum().grad_fn is not None


def test_detach_in_place():
    x = tinytorch.tensor([1.0], requires_grad=True)
    y = (x * 2).detach_()
    assert y.is_leaf and not y.requires_grad and y.tolist() == [2]
    with pytest.raises(AutogradError, match="leaf"):
        x.detach_()


def test_methods_in_place_are_pytorchs():
    from tinytorch.compat.names import _IN_PLACE

    assert not [name for name in _IN_PLACE if not hasattr(torch.Tensor, f"{name}_")]


def test_in_place_writes_are_seen_and_refused_where_they_cannot_be():
    x = tinytorch.tensor([1.0, 4.0], requires_grad=True)
    y = x * 1.0
    shared = tinytorch.tensor([1.0, 4.0])
    view = shared[1:]
    view.sqrt_()
    assert shared.tolist() == [1, 2]
    with pytest.raises(DTypeError, match=r"exp"):
        tinytorch.tensor([1, 2]).exp_()
    with pytest.raises(RuntimeError):
        x.exp_()  # a leaf that wants a gradient
    assert y.tolist() == [1, 4]
