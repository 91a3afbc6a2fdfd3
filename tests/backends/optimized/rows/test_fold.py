"""Windows added back by the kernel for small arrays, beside the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.backends.optimized.rows import fold
from tinytorch.dtypes import meta_of_array


def windows(data: st.DataObject, dtype: Any) -> Any:
    """Windows in an order of memory of their own."""
    count, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 6))
    shape = [*data.draw(st.lists(st.integers(1, 3), max_size=4)), count, size]
    order = data.draw(st.permutations(range(len(shape))))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a = (100 * rng.standard_normal([shape[d] for d in order])).astype(dtype)
    a = a.transpose(np.argsort(order))
    layout = data.draw(st.sampled_from(["", "reversed", "every second", "expanded", "unaligned"]))
    if layout == "reversed":
        return a[..., ::-1, :]
    if layout == "every second":
        return np.repeat(a, 2, -2)[..., ::2, :]
    if layout == "expanded":
        return np.broadcast_to(a[:1], a.shape)
    if layout == "unaligned":
        raw = np.empty(a.nbytes + 1, np.uint8)[1:].view(dtype).reshape(a.shape)
        raw[...] = a
        return raw
    return a


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_bits_of_the_reference(dtype: Any, data: st.DataObject) -> None:
    a, step = windows(data, dtype), data.draw(st.integers(1, 7))
    count, size = a.shape[-2:]
    params = {"length": (count - 1) * step + size + data.draw(st.integers(0, 3)), "step": step}
    kernel = fold.fold(ops.fold.plan([meta_of_array(a)], params))
    assert kernel is not None
    for _ in range(2):
        found, expected = kernel(a, **params), reference.fold(a, **params)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("shape", "dtype"), [((64, 64, 9), "float32"), ((3, 2), "int32")])
def test_for_which_there_is_none(shape: tuple[int, ...], dtype: str) -> None:
    meta = meta_of_array(np.zeros(shape, dtype))
    params = {"length": shape[-1] + shape[-2] - 1, "step": 1}
    assert fold.fold(ops.fold.plan([meta], params)) is None
