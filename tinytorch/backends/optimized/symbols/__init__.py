"""Whole ops as C symbols: what generated code calls instead of kernels on arrays.

The kernels are those of the folder above; here they take addresses and sizes. `symbol(name, real)`
is `tinytorch_<name>_f32` or `..._f64`. None is compiled before code that calls it is loaded.

table       what there is, and how a kernel enters
records     what symbols are told of sizes and tables: a name for each word
rows        softmax, cross entropy, layer norm: functions of the rows of a matrix
channels    batch norm: functions of channels
sums        reductions, and where extremes are
products    batches of matrix products
quantized   products of few rows with quantized weights
attention   attention and its gradient
images      convolution and its gradients
windows     pooling and its gradients
index       gather, scatter-add, random numbers
"""

from __future__ import annotations

from typing import Any

from tinytorch.backends.optimized.symbols.table import REALS, SUFFIXES, SYMBOLS, declare

__all__ = ["REALS", "declare", "symbol"]


def symbol(name: str, real: Any = None) -> tuple[str, Any]:
    """The full name of an op's symbol for a type, and what generated code calls by it.

    Args:
        name: as declared.
        real: np.float32 or np.float64; None for what is the same for both.

    Raises:
        KeyError: there is none.
    """
    # the modules declare their symbols when imported
    from tinytorch.backends.optimized.symbols import (  # noqa: F401
        attention,
        channels,
        images,
        index,
        products,
        quantized,
        rows,
        sums,
        windows,
    )

    full = name if real is None else f"{name}_{SUFFIXES[real]}"
    if full not in SYMBOLS:
        raise KeyError(f"there is no symbol {full!r}; there are {', '.join(sorted(SYMBOLS))}")
    return full, SYMBOLS[full]
