"""The text form of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.dtypes import bfloat16, bfloat16_values, bool_, float32, int64

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

#: How numbers print, by NumPy's names; `set_printoptions` changes it.
options: dict[str, Any] = {"precision": 4, "threshold": 1000}
_IMPLIED_DTYPES = (float32, int64, bool_)  # dtypes that the printed values show by themselves


def format_tensor(x: Tensor) -> str:
    """`tensor([1., 2.], dtype=float64, grad_fn=<mul>)`; long tensors are shortened."""
    prefix = "tensor("
    if isinstance(x._data, np.ndarray):
        values = bfloat16_values(x._data) if x.dtype is bfloat16 else x._data
        body = np.array2string(
            values, separator=", ", prefix=prefix, floatmode="maxprec", **options
        )
    else:
        body = f"{x._data}, shape={x.shape}"
    notes = []
    if x.meta.size == 0:
        notes.append(f"shape={x.shape}")
    if x.dtype not in _IMPLIED_DTYPES or x.meta.size == 0:
        notes.append(f"dtype={x.dtype.name}")
    if x.history is not None:
        notes.append(f"grad_fn=<{x.history.op.name}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    return prefix + ", ".join([body, *notes]) + ")"
