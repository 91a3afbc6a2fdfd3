"""One block of memory for the codes of a whole model, which the system can map in huge pages."""

from __future__ import annotations

import math

import numpy as np

from tinytorch.compression.schemes import Scheme
from tinytorch.dispatch import wrap
from tinytorch.dtypes import Array
from tinytorch.jit.buffers import ALIGNMENT
from tinytorch.nn.module import Module
from tinytorch.shapes_quantized import stored_columns

HUGE_FROM = 1 << 22
"""Bytes of an array from which NumPy asks for huge pages."""


def bytes_of_codes(shape: tuple[int, ...], scheme: Scheme) -> int:
    """What the codes and scales of a weight take in a block.

    >>> from tinytorch.compression.schemes import SCHEMES
    >>> bytes_of_codes((8, 64), SCHEMES["int8"]), bytes_of_codes((8, 64), SCHEMES["int4"])
    (576, 320)
    """
    rows, columns = shape[0], math.prod(shape[1:])
    stored = stored_columns(columns, scheme.bits, scheme.group_size)
    groups = stored // scheme.group_size if scheme.group_size else 1
    return _aligned(rows * stored * scheme.bits // 8) + _aligned(4 * rows * groups)


class Block:
    """Arrays one after the other in one allocation.

    A token of a language model reads every weight once. In pages of 4 KiB, which smaller arrays
    get, a processor that reads in order stops at the end of each; so codes, which are a fourth or
    an eighth of what floats were, would be read with less of the bandwidth than those.

    Args:
        nbytes: of all arrays; where that is too little for huge pages, `hold` changes nothing.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = np.empty(nbytes + ALIGNMENT if nbytes >= HUGE_FROM else 0, np.uint8)
        self._used = -self._memory.ctypes.data % ALIGNMENT

    def hold(self, layer: Module) -> None:
        """Move the codes and scales of a quantized layer into the block, if they fit."""
        for name, buffer in layer.own_buffers():
            array: Array = buffer._concrete("storage")
            if name not in ("codes", "scale") or self._used + array.nbytes > self._memory.size:
                continue
            moved: Array = np.ndarray(array.shape, array.dtype, self._memory, self._used)
            moved[...] = array
            setattr(layer, name, wrap(moved, buffer.meta))
            self._used += _aligned(array.nbytes)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
