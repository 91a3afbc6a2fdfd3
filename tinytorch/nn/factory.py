"""`device=` and `dtype=`, as every layer takes them, read in one place."""

from __future__ import annotations

import importlib
from typing import Any

from tinytorch.dtypes import DEFAULT_FLOAT, DType, as_dtype
from tinytorch.errors import DTypeError


def parameter_dtype(device: Any, dtype: Any) -> DType:
    """The dtype of a layer's new parameters: `dtype`, or by default float32.

    Raises:
        RuntimeError: the device is not the CPU.
        DTypeError: the dtype is not floating-point.
    """
    if device is not None:
        importlib.import_module("tinytorch.compat").check_ignored({"device": device})
    kind = DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    if not kind.is_floating_point:
        raise DTypeError(f"a layer's dtype must be floating-point, not {kind.name}")
    return kind
