"""Windows added up in the order in which they are stored; casts."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tinytorch.backends import reference, reference_movement
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
