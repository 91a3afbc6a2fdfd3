"""Quantiles beside PyTorch's: interpolations, several parts, NaN, gradients, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch import DTypeError, ShapeError
from tinytorch.functions.quantiles import INTERPOLATIONS

PARTS = st.floats(0, 1, width=32)


@given(
    x=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
        elements=st.sampled_from([-2.0, 0.5, 0.5, 1.0, 7.0, np.nan]),
    ),
    q=PARTS | hnp.arrays(np.float64, st.integers(1, 3), elements=PARTS),
    dim=st.integers(-4, 2),
    keepdim=st.booleans(),
    interpolation=st.sampled_from(INTERPOLATIONS),
    name=st.sampled_from(["quantile", "nanquantile"]),
    backend=st.sampled_from(["naive", "optimized"]),
)
def test_equals_pytorch(x, q, dim, keepdim, interpolation, name, backend):
    along = dim if -x.ndim <= dim < max(x.ndim, 1) else None
    several = isinstance(q, np.ndarray)
    expected = getattr(torch.tensor(x), name)(
        torch.tensor(q) if several else q, along, keepdim, interpolation=interpolation
    )
    with tinytorch.using_backend(backend):
        found = getattr(tinytorch.tensor(x), name)(
            tinytorch.tensor(q) if several else q, along, keepdim, interpolation=interpolation
        )
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_gradients_equal_pytorchs(rng, name, interpolation):
    x, q = rng.standard_normal((4, 5)), np.array([0.1, 0.5, 0.9])
    call = lambda x, q: getattr(x, name)(q.detach(), 1, interpolation=interpolation)  # noqa: E731
    assert_like_torch(call, None, x, q)


def test_a_trace_has_them_too(rng):
    x = rng.standard_normal((3, 6)).astype(np.float32)
    compiled = tinytorch.compile(lambda x: x.quantile(0.3, 1))
    for each in (x, -x):
        np.testing.assert_allclose(
            compiled(tinytorch.tensor(each)).numpy(), np.quantile(each, 0.3, 1), rtol=1e-6
        )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.quantile(1.5), ValueError, "q must be from 0 to 1, not 1.5"),
        (lambda x: x.quantile(-0.5), ValueError, "q must be from 0 to 1, not -0.5"),
        (lambda x: x.quantile(float("nan")), ValueError, "q must be from 0 to 1, not nan"),
        (lambda x: x.quantile(0.5, interpolation="cubic"), ValueError, "not 'cubic'"),
        (lambda x: x.quantile(x), ShapeError, r"a number or a vector, not of shape \(2, 3\)"),
        (lambda x: x.quantile(x[0].double()), DTypeError, "q is float64, and x float32"),
        (lambda x: x.int().quantile(0.5), DTypeError, "float32 and float64, not int32"),
        (lambda x: x[:0].nanquantile(0.5), ShapeError, r"shape \(0, 3\) has no elements"),
        (lambda x: x.quantile([0.5]), TypeError, "'q' must be a tensor, not list"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(tinytorch.ones(2, 3) / 2)
