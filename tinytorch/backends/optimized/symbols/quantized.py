"""Products with quantized weights, for few rows in float32: codes are read once from memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.quantized.bfloat16 import few_rows_of_halves
from tinytorch.backends.optimized.quantized.loops import few_rows, few_rows_of_floats
from tinytorch.backends.optimized.quantized.rounding import word_codes
from tinytorch.backends.optimized.symbols.records import QUANTIZED_WORDS, QuantizedRecord
from tinytorch.backends.optimized.symbols.table import declare
from tinytorch.jit.views import view, words


def _declare(bits: int, codes: Any) -> None:
    is_nibbles = bits == 4

    @declare(
        f"quantized_linear_{bits}", np.float32, "record x weight scale bias range_ out scratch"
    )
    def quantized_linear(
        record: int,
        x: int,
        weight: int,
        scale: int,
        bias: int,
        range_: int,
        out: int,
        scratch: int,
    ) -> None:
        """x (m, k) @ (codes * scale).T + bias, as a `QuantizedRecord` says; see
        `decompositions_quantized.quantized_linear`.

        Args:
            scratch: for m rows of words and their scales.
        """
        r = QuantizedRecord(*words(record, QUANTIZED_WORDS))
        rows, bits_of_rows = view(np.float32, x, (r.m, r.k)), view(np.int32, x, (r.m, r.k))
        scales = view(np.float32, scratch + 2 * r.m * r.words, r.m)
        integers = (view(np.int16, scratch, (r.m, r.words)), scales)
        zero, step = np.float32(0), np.float32(0)
        if r.is_static:
            affine = view(np.float32, range_, 2)
            step, zero = affine[0], affine[1]
        stored = view(codes, weight, (r.n, r.stored))
        factors, added = view(np.float32, scale, (r.n, r.groups)), view(np.float32, bias, r.biases)
        given, target = (stored, factors, added), view(np.float32, out, (r.m, r.n))
        rounding = (zero, step, np.float32(r.largest))
        if word_codes(rows, bits_of_rows, rounding, is_nibbles, integers):
            few_rows(0, r.n, integers, given, is_nibbles, target)
        else:
            few_rows_of_floats(rows, r.is_rounded != 0, rounding, given, is_nibbles, target)


_declare(8, np.int8)
_declare(4, np.uint8)


@declare("quantized_linear_16", np.float32, "record x weight scale bias range_ out scratch")
def quantized_linear_16(
    record: int, x: int, weight: int, scale: int, bias: int, range_: int, out: int, scratch: int
) -> None:
    """x (m, k) @ weight.T + bias with a weight in bfloat16."""
    r = QuantizedRecord(*words(record, QUANTIZED_WORDS))
    stored, factors = view(np.uint16, weight, (r.n, r.stored)), view(np.float32, scale, (r.n, 1))
    given = (stored, factors, view(np.float32, bias, r.biases))
    rows, target = view(np.float32, x, (r.m, r.k)), view(np.float32, out, (r.m, r.n))
    few_rows_of_halves(0, r.n, rows, given, target)
