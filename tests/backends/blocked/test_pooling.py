from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.backends import find_backend, reference_conv
from tinytorch.backends.blocked import elementwise, pooling
from tinytorch.op import OPS

GEOMETRIES = [
    {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 1), "dilation": (2, 1)},
]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("special", [0.0, np.nan, -np.inf])
def test_first_maxima_and_their_gradient(geometry, special, rng):
    x = rng.integers(-2, 3, (2, 3, 7, 6)).astype(np.float32)  # many ties
    x[0, :, 1:4, 2:5] = special
    out = pooling.max_pool2d(x, **geometry)
    np.testing.assert_array_equal(out, reference_conv.max_pool2d(x, **geometry))
    g = rng.standard_normal(out.shape).astype(np.float32)
    np.testing.assert_allclose(
        pooling.max_pool2d_backward(g, x, **geometry),
        reference_conv.max_pool2d_backward(g, x, **geometry),
        rtol=1e-6,
    )


def test_only_much_data_is_worth_a_compiled_loop(monkeypatch):
    asked = []
    monkeypatch.setattr(
        elementwise, "compile_same_shape", lambda op: asked.append(op.name) or np.exp
    )
    backend = type(find_backend("blocked"))()
    for size in (10, 1_000_000):
        x = np.zeros(size, np.float32)
        meta = tinytorch.tensor(x).meta
        plan = OPS["exp"].plan([meta], {})
        np.testing.assert_array_equal(backend.add_kernel(plan)(x), np.ones(size, np.float32))
    assert asked == ["exp"]
