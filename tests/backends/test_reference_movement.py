"""Windows added up in the order in which they are stored; casts."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tinytorch.backends import reference, reference_movement
from tinytorch.backends.reference_movement import LARGE_FILL, fill_array
from tinytorch.dtypes import DTYPES


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize(("count", "size", "step"), [(2, 5, 3), (6, 2, 1), (4, 1, 2), (1, 3, 1)])
def test_fold_adds_windows_of_any_order_in_memory(
    order: tuple[int, ...],
    count: int,
    size: int,
    step: int,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = rng.standard_normal((3, count, size))
    length = (count - 1) * step + size + 1  # the last element is in no window
    wanted = np.zeros((3, length))
    for i in range(count):
        wanted[:, i * step : i * step + size] += x[:, i]
    turned = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    out = reference.fold(turned, length=length, step=step)
    np.testing.assert_allclose(out, wanted, 1e-12, 1e-12)
    along = 1 if count > size else 2  # of the windows, what the result's rows are added from
    is_turned = turned.strides[0] < turned.strides[along]
    assert (out.strides[0] < out.strides[1]) == is_turned
    monkeypatch.setattr(reference_movement, "BLOCK", 64)
    in_blocks = reference.fold(turned, length=length, step=step)
    np.testing.assert_array_equal(in_blocks, out)
    assert in_blocks.strides == out.strides


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_a_cast_gives_an_array_of_no_dimensions_too(source: str, target: str) -> None:
    """What it says of itself: `optimized` does not look at each call."""
    given = np.array(1, DTYPES[source].dtype)
    cast = reference.cast(given, dtype=DTYPES[target])
    assert type(cast) is np.ndarray
    assert (cast.shape, cast.dtype) == ((), DTYPES[target].dtype)
    assert reference.cast.gives_arrays  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [0, 1, -0.0, 0.0, 0.1, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("rows", [1, 2**11 + 1])
def test_a_large_array_is_filled_like_a_small_one(value: float, dtype: str, rows: int) -> None:
    if np.dtype(dtype).kind != "f":
        value = int(value == value and value != 0)
    before = np.array(7).astype(dtype)
    out = np.full((rows, 300), before)
    assert (out.nbytes >= LARGE_FILL) == (rows > 1)
    for part in (out, out.T, out[:, 1:], out[1:]):
        part[...] = before
        fill_array(part, value)
        assert part.tobytes() == np.full(part.shape, value, dtype).tobytes()
    out[...] = before
    fill_array(out[:, 1:], value)
    assert (out[:, 0] == before).all()
