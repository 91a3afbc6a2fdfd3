"""Large arrays stored in another order: kernels walk along memory, with the same result."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import from_numpy, using_backend

CALLS = {
    "add": lambda x, y: x + y,
    "silu": lambda x, y: F.silu(x),
    "sin": lambda x, y: x.sin(),
    "number": lambda x, y: 2.0 - x,
    "where": lambda x, y: tinytorch.where(x > 0, x, y),
    "row": lambda x, y: x + y[0],
    "mse": lambda x, y: F.mse_loss(x, y),
    "of_rows": lambda x, y: F.mse_loss(x, y, reduction="none").sum(-1),
    "sum_0": lambda x, y: x.sum(0),
    "sum_1": lambda x, y: x.sum(1, keepdim=True),
    "sum_all": lambda x, y: x.sum(),
    "sum_ends": lambda x, y: x.sum((0, -1)),
    "amax": lambda x, y: x.amax(0),
    "prod": lambda x, y: (1 + x / 1000).prod(1),
    "norm": lambda x, y: x.norm(2, 0, True),
    "clone": lambda x, y: x.clone(),
    "flatten": lambda x, y: x.flatten(),
    "softmax": lambda x, y: x.softmax(0),
    "diagonal": lambda x, y: x.diagonal(0, 0, x.ndim - 1),
}
ORDERS = {
    "transposed": lambda x: x.T,
    "rows apart": lambda x: x.T[:, ::2],
    "three": lambda x: x.reshape(8, 64, -1).transpose(2, 0, 1),
    "last two": lambda x: x.reshape(8, 64, -1).transpose(0, 2, 1),
    "mixed": lambda x: np.ascontiguousarray(x.T),
}


@pytest.mark.slow_beyond(10)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_contiguous_arrays(name, order, dtype, rng):
    x, y = (ORDERS[order](rng.standard_normal((512, 1024)).astype(dtype)) for _ in range(2))
    if order == "mixed":
        y = np.asfortranarray(y)
    call = CALLS[name]
    with using_backend("numpy"):
        expected = call(*(from_numpy(np.ascontiguousarray(a)) for a in (x, y))).numpy()
    with using_backend("optimized"):
        found = call(from_numpy(x), from_numpy(y)).numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, tolerance, tolerance * 10)


def test_a_result_in_the_order_of_memory_is_an_ordinary_tensor(rng):
    x = from_numpy(rng.standard_normal((512, 1024)).astype(np.float32).T).requires_grad_()
    with using_backend("optimized"):
        out = (x * 2.0).reshape(-1)[:5].sum()
        out.backward()
        assert x.grad is not None and x.grad.sum().item() == 10.0
        assert (x.detach() * 1.0).contiguous().numpy().flags.c_contiguous
