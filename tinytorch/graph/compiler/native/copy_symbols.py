"""Copies between views of any strides as C symbols: one for all shapes, so none is compiled anew.

A `CopyRecord` says how both are walked through. Dimensions that are not there have the size 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words

DIMENSIONS = 5


class CopyRecord(NamedTuple):
    """Sizes, and strides in bytes of the source and of the target."""

    n0: int
    n1: int
    n2: int
    n3: int
    n4: int
    source0: int
    source1: int
    source2: int
    source3: int
    source4: int
    target0: int
    target1: int
    target2: int
    target3: int
    target4: int


COPY_WORDS = len(CopyRecord._fields)


def copy_record(
    sizes: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> CopyRecord:
    """The record of a walk of at most DIMENSIONS dimensions."""
    missing = DIMENSIONS - len(sizes)
    zeros = (0,) * missing
    return CopyRecord(*(1,) * missing, *sizes, *zeros, *source, *zeros, *target)


def _declare(real: Any) -> None:
    size = np.dtype(real).itemsize

    @kernel
    def copy_row(n: int, source: int, step: int, target: int, step_out: int) -> None:
        if step == size and step_out == size:
            row, out = view(real, source, n), view(real, target, n)
            for i in range(n):
                out[i] = row[i]
        else:
            column = strided(real, source, (n,), (step,))
            result = strided(real, target, (n,), (step_out,))
            for i in range(n):
                result[i] = column[i]

    @declare("copy", real, "record source target")
    def copy(record: int, source: int, target: int) -> None:
        r = CopyRecord(*words(record, COPY_WORDS))
        for i in range(r.n0):
            for j in range(r.n1):
                for k in range(r.n2):
                    row = source + i * r.source0 + j * r.source1 + k * r.source2
                    out = target + i * r.target0 + j * r.target1 + k * r.target2
                    for m in range(r.n3):
                        at, to = row + m * r.source3, out + m * r.target3
                        copy_row(r.n4, at, r.source4, to, r.target4)

    @declare("copy_to", real, "outer inner pitch row source start target")
    def copy_to(
        outer: int, inner: int, pitch: int, row: int, source: int, start: int, target: int
    ) -> None:
        """Runs of `inner` elements to rows of `pitch`, `start` times `row` elements behind each."""
        first = view(np.int64, start, 1)[0] * row * size
        for i in range(outer):
            copy_row(
                inner, source + i * inner * size, size, target + first + i * pitch * size, size
            )


for _real in REALS:
    _declare(_real)
