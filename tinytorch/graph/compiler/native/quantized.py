"""Products with quantized weights as calls of their symbols."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.backends.optimized.quantized.linear import LARGEST
from tinytorch.backends.optimized.quantized.nibbles import words_of_row
from tinytorch.backends.optimized.quantized.vectors import AT_ONCE, MOST_ROWS
from tinytorch.backends.optimized.symbols.records import QuantizedRecord
from tinytorch.dtypes import float32
from tinytorch.graph.compiler.native import copies
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of
from tinytorch.graph.compiler.native.copies import contiguous
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.layout import StridedView


def write(code: Code, step: Step) -> None:
    """Of few rows of float32, as when a language model writes a token.

    Raises:
        Unsupported: there is no symbol for so many rows, or for scales of such groups.
    """
    bits, activation = step.params["bits"], step.params["activation"]
    x, weight, scale, *others = (_contiguous(code, value) for value in step.inputs)
    m, k, (n, groups) = math.prod(x.shape[:-1]), x.shape[-1], scale.shape
    if not m * n:
        return
    of_kernel = weight.shape[1] // 16 if bits == 4 else 1
    if x.dtype is not float32 or m > MOST_ROWS or n < AT_ONCE or groups != of_kernel:
        raise Unsupported(
            f"quantized_linear of {m} rows of {x.dtype.name} to {n}, with {groups} scales a row; "
            f"there is code for up to {MOST_ROWS} rows of float32 to at least {AT_ONCE}, with "
            f"{of_kernel} scales"
        )
    bias, range_ = ([code.address(view) for view in others] + ["0", "0"])[:2]
    words = words_of_row(weight.shape[1] * 8 // bits, bits) if bits < 16 else 0
    record = code.record(
        QuantizedRecord(
            m=m,
            n=n,
            k=k,
            stored=weight.shape[1],
            groups=groups,
            biases=n if others else 0,
            words=words,
            largest=int(LARGEST[activation]),
            is_rounded=int(activation != "float"),
            is_static=int(activation == "static"),
        )
    )
    out = step.output
    target = out if out.is_contiguous else code.temporary(out.shape, out.dtype)
    addresses = [code.address(view) for view in (x, weight, scale)]
    code.call(
        f"quantized_linear_{bits}", real_of(out), record, *addresses, bias, range_,
        code.address(target), code.workspace(m * (2 * words + 4)),
    )  # fmt: skip
    if target is not out:
        copies.copy(code, target, out)


def _contiguous(code: Code, value: Any) -> StridedView:
    if not isinstance(value, StridedView):
        raise Unsupported(f"quantized_linear of the number {value}")
    return contiguous(code, value)
