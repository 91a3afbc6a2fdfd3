"""Copies between views of any strides as C symbols: one for all shapes, so none is compiled anew.

A record says how both are walked through: DIMENSIONS sizes, then as many strides of the source, and
of the target, in bytes. Dimensions that are not there have the size 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinytorch.backends.optimized.symbols import REALS, declare
from tinytorch.jit.library import kernel
from tinytorch.jit.views import strided, view, words

DIMENSIONS = 5


def copy_record(sizes: tuple[int, ...], *strides: tuple[int, ...]) -> list[int]:
    """The record of a walk of at most DIMENSIONS dimensions."""
    missing = DIMENSIONS - len(sizes)
    record = [1] * missing + list(sizes)
    for own in strides:
        record += [0] * missing + list(own)
    return record


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
        n0, n1, n2, n3, n4, s0, s1, s2, s3, s4, t0, t1, t2, t3, t4 = words(record, 15)
        for i in range(n0):
            for j in range(n1):
                for k in range(n2):
                    for m in range(n3):
                        copy_row(
                            n4,
                            source + i * s0 + j * s1 + k * s2 + m * s3, s4,
                            target + i * t0 + j * t1 + k * t2 + m * t3, t4,
                        )  # fmt: skip


for _real in REALS:
    _declare(_real)
