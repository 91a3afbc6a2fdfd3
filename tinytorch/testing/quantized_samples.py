"""How to draw inputs and parameters for products with quantized weights."""

from __future__ import annotations

import numpy as np

from tinytorch.shapes_quantized import DYNAMIC_STEPS, stored_columns
from tinytorch.testing.source import Sample, Source, samples


@samples("quantized_linear")
def _quantized_linear(s: Source) -> Sample:
    """Rows of x have codes that are whole numbers, so that each way to round finds the same."""
    bits, columns, rows = s.pick((4, 8)), s.extent(1), s.extent()
    if not s.smooth:
        columns, rows = s.pick((columns, 130)), s.pick((rows, 19))
    group_size = s.pick((0, 32) if bits == 4 or s.smooth else (0, 0, 32, 5))
    stored = stored_columns(columns, bits, group_size)
    activation = "float" if s.smooth else s.pick(("float", "dynamic", "static"))
    front = s.shape(0, 2) if not s.flag() else (s.pick((1, 3, 4, 7)),)
    low, high, dtype = (-128, 128, np.int8) if bits == 8 else (0, 256, np.uint8)
    weight = s.rng.integers(low, high, (rows, stored * bits // 8)).astype(dtype)
    scale = (s.rng.random((rows, stored // group_size if group_size else 1)) * 0.02).astype(s.dtype)
    if activation == "float":
        x = s.normal((*front, columns))
    else:
        high = s.pick((0, 63, DYNAMIC_STEPS))
        low = high - DYNAMIC_STEPS
        codes = s.rng.integers(low, high + 1, (*front, columns))
        codes[..., -1:] = high
        codes[..., :1] = low if columns > 1 else DYNAMIC_STEPS
        x = (codes / 32).astype(s.dtype)
    inputs = [x, weight, scale]
    if activation == "static" or s.flag():
        inputs.append(s.normal((rows,)))
    if activation == "static":
        inputs.append(np.array([1 / 32, s.pick((0, 100, 128))], s.dtype))
    params = {"bits": bits, "group_size": group_size, "activation": activation}
    return Sample(tuple(inputs), params)
