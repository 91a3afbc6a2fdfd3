"""`torch.testing.assert_close`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.tensor import Tensor

# PyTorch's table: dtype -> (rtol, atol)
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    **options: Any,
) -> None:
    """Raise AssertionError unless shapes and dtypes agree and all elements do up to a tolerance.

    >>> assert_close(Tensor([1.0]), Tensor([1.0 + 1e-7]))
    """
    a, b = (v.detach() if isinstance(v, Tensor) else Tensor(v) for v in (actual, expected))
    if check_dtype and a.dtype is not b.dtype:
        raise AssertionError(f"the dtypes differ: {a.dtype} and {b.dtype}")
    if a.shape != b.shape:
        raise AssertionError(f"the shapes differ: {a.shape} and {b.shape}")
    usual = _TOLERANCES.get(a.dtype.name, (0.0, 0.0))
    np.testing.assert_allclose(
        a.numpy(),
        b.numpy(),
        rtol=usual[0] if rtol is None else rtol,
        atol=usual[1] if atol is None else atol,
        equal_nan=equal_nan,
    )
