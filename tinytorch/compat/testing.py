"""`torch.testing.assert_close`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tinytorch.creation import tensor
from tinytorch.dtypes import bfloat16, float64
from tinytorch.tensor import Tensor

# PyTorch's table: dtype -> (rtol, atol)
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


#: Options of PyTorch's that mean nothing here.
_NO_EFFECT = {"allow_subclasses", "check_device", "check_layout", "check_stride"}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | Callable[[str], str] | None = None,
    **options: Any,
) -> None:
    """Raise AssertionError unless shapes and dtypes agree and all elements do up to a tolerance.

    Args:
        actual, expected: tensors, arrays, numbers or None; or sequences and mappings of these.
        rtol, atol: |actual - expected| is at most atol + rtol |expected|; by default by the dtype.
        equal_nan: NaN is equal to NaN.
        msg: the message, or a function of the one that there would be.
        options: PyTorch's `check_device` and the like, which mean nothing here.

    Raises:
        TypeError: an option that there is not.
        ValueError: one of rtol and atol is given.

    >>> assert_close(Tensor([1.0]), Tensor([1.0 + 1e-7]))
    """
    if unknown := options.keys() - _NO_EFFECT:
        raise TypeError(f"assert_close got an unexpected keyword {sorted(unknown)[0]!r}")
    if (rtol is None) != (atol is None):
        raise ValueError(f"give both rtol and atol, or none: got {rtol} and {atol}")
    try:
        for where, a, b in _pairs("", actual, expected):
            if check_dtype and a.dtype is not b.dtype:
                raise AssertionError(f"the dtypes{where} differ: {a.dtype} and {b.dtype}")
            if a.shape != b.shape:
                raise AssertionError(f"the shapes{where} differ: {a.shape} and {b.shape}")
            usual = max(_TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (a, b))
            np.testing.assert_allclose(
                a.float().numpy() if a.dtype is bfloat16 else a.numpy(),
                b.float().numpy() if b.dtype is bfloat16 else b.numpy(),
                rtol=usual[0] if rtol is None else rtol,
                atol=usual[1] if atol is None else atol,
                equal_nan=equal_nan,
                err_msg=where,
            )
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


def _pairs(where: str, a: Any, b: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What is to be compared, and where it is in sequences and mappings."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise AssertionError(f"the keys{where} differ: {list(a)} and {list(b)}")
        for key in a:
            yield from _pairs(f"{where or ' at '}[{key!r}]", a[key], b[key])
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            raise AssertionError(f"the lengths{where} differ: {len(a)} and {len(b)}")
        for i, pair in enumerate(zip(a, b, strict=True)):
            yield from _pairs(f"{where or ' at '}[{i}]", *pair)
    elif a is not None or b is not None:
        no_tensor = not isinstance(a, Tensor) and not isinstance(b, Tensor)
        yield where, _tensor(a, no_tensor), _tensor(b, no_tensor)


def _tensor(value: Any, no_tensor: bool) -> Tensor:
    """The tensor of a value; two numbers are compared in Python's precision."""
    if isinstance(value, Tensor):
        return value.detach()
    return tensor(value, dtype=float64 if no_tensor and isinstance(value, float) else None)
