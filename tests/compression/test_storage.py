"""The codes of a model in one block: where they are, and that they are the same."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch.compression import quantize_
from tinytorch.compression.quantization import _quantized
from tinytorch.compression.schemes import SCHEMES
from tinytorch.compression.storage import Block, bytes_of_codes
from tinytorch.nn import Embedding, Linear, Sequential


def layers() -> Sequential:
    tinytorch.manual_seed(0)
    return Sequential(Embedding(2050, 1025), Linear(1025, 1999), Linear(1999, 70, bias=False))


@pytest.mark.slow
def test_codes_of_a_large_model_are_in_one_aligned_block() -> None:
    for name, scheme in SCHEMES.items():
        if scheme.activation == "static":
            continue
        model, alone = quantize_(layers(), name), layers()
        nbytes = sum(bytes_of_codes(layer.weight.shape, scheme) for _, layer in alone.own_modules())
        if nbytes < 1 << 22:
            continue
        arrays = [layer.codes._concrete("test") for _, layer in model.own_modules()]
        starts = [array.ctypes.data for array in arrays]
        assert starts == sorted(starts) and all(start % 64 == 0 for start in starts)
        assert starts[-1] + arrays[-1].nbytes - starts[0] <= nbytes
        for (_, layer), (_, old) in zip(model.own_modules(), alone.own_modules(), strict=True):
            wanted = _quantized(old, scheme, None)
            assert layer.codes.dtype is wanted.codes.dtype
            np.testing.assert_array_equal(np.asarray(layer.codes), np.asarray(wanted.codes))
            np.testing.assert_array_equal(layer.scale.numpy(), wanted.scale.numpy())
            assert layer.codes is dict(layer.named_buffers())["codes"]


def test_what_does_not_fit_or_is_too_small_for_huge_pages_stays_where_it_is() -> None:
    layer = _quantized(Linear(64, 8), SCHEMES["int8"], None)
    before = layer.codes
    Block(1000).hold(layer)
    assert layer.codes is before
    large = Block(1 << 22)
    large._used = large._memory.size - 10
    large.hold(layer)
    assert layer.codes is before
