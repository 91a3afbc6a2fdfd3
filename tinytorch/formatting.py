"""How a tensor prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tinytorch.dtypes import bool_, float32, int64

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

_UNSAID = (float32, int64, bool_)  # dtypes that the printed values show by themselves


def format_tensor(x: Tensor) -> str:
    """`tensor([1., 2.], dtype=float64, grad_fn=<mul>)`; long tensors are shortened."""
    prefix = "tensor("
    if isinstance(x._data, np.ndarray):
        body = np.array2string(
            x._data, precision=4, separator=", ", prefix=prefix, threshold=1000, floatmode="maxprec"
        )
    else:
        body = f"{x._data}, shape={x.shape}"
    notes = []
    if x.meta.size == 0:
        notes.append(f"shape={x.shape}")
    if x.dtype not in _UNSAID or x.meta.size == 0:
        notes.append(f"dtype={x.dtype.name}")
    if x.history is not None:
        notes.append(f"grad_fn=<{x.history.op.name}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    return prefix + ", ".join([body, *notes]) + ")"
