"""Instructions that multiply small integers and add neighbouring products into 32 bits.

    words     acc[i] + x[2i] * y[2i] + x[2i+1] * y[2i+1]              16 bits, both signed
    bytes     acc[i] + x[4i] * y[4i] + ... + x[4i+3] * y[4i+3]        x unsigned, y signed

Both are intrinsics of x86; for a processor without them LLVM finds what it has. Each is one
instruction with VNNI (vpdpwssd, vpdpbusd). Without it there is, for words, vpmaddwd and an
addition; for bytes vpmaddubsw, whose sums of two products saturate at 16 bits: 255 * 127 + 255 *
127 does not fit. So bytes are widened to words there, whose products fit: 2 * 255 * 128 < 2^31.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPMADDWD,
VPDPWSSD, VPDPBUSD.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir

from tinytorch.dtypes import Array
from tinytorch.jit.cpu import host_features, host_vector_unit
from tinytorch.jit.llvm import I32, Value, VectorEmitter

I16 = ir.IntType(16)


@cache
def has_byte_dots() -> bool:
    """Whether this processor multiplies bytes and adds four products in one instruction."""
    features, size = host_features(), host_vector_unit().register_bytes
    if size == 64:
        return features.get("avx512vnni", False)
    both = features.get("avx512vnni", False) and features.get("avx512vl", False)
    return size == 32 and both


CODES_PER_LANE = 4 if has_byte_dots() else 2
"""Codes of a row in the 32 bits that one lane of a sum takes at a time."""

CODE: type[np.integer] = np.uint8 if has_byte_dots() else np.int16
"""How activations are written down, from 0 to 255, for `bytes` and for `words`."""


def integers(e: VectorEmitter, element: Value, x: Value) -> Value:
    """A register's bits as integers of the type `element`."""
    kind = ir.VectorType(element, 8 * e.register_bytes // element.width)
    return e.builder.bitcast(x, kind)


def words(e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
    """total + neighbouring products of 16-bit words, for registers x and y; total of 32 bits."""
    build, size = e.builder, e.register_bytes
    if size == 64 and has_byte_dots():  # so it has the same for words, additions included
        given = [total, integers(e, I32, x), integers(e, I32, y)]
        return e.call("x86.avx512.vpdpwssd.512", total.type, given)
    x, y = integers(e, I16, x), integers(e, I16, y)
    names = {64: "x86.avx512.pmaddw.d.512", 32: "x86.avx2.pmadd.wd"}
    has = size == 32 or host_features().get("avx512bw", False)
    if size in names and has:
        return build.add(total, e.call(names[size], total.type, [x, y]))
    for first in (0, 1):  # any other processor: LLVM finds what it has
        own = [
            build.sext(e.shuffle(v, v, range(first, 2 * e.lanes, 2)), total.type) for v in (x, y)
        ]
        total = build.add(total, build.mul(*own))
    return total


def bytes_(e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
    """total + sums of four products of unsigned bytes of x and signed ones of y."""
    given = [total, integers(e, I32, x), integers(e, I32, y)]
    return e.call(f"x86.avx512.vpdpbusd.{8 * e.register_bytes}", total.type, given)


class DotEmitter(VectorEmitter):
    """Emits a tile of floats, and means integers: a lane is some codes, `fma` adds their products.

    So the float tile's loops and addresses serve for integers, too.
    """

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """z + the products of the codes in each lane of x and y."""
        add = bytes_ if has_byte_dots() else words
        total = add(self, x, y, integers(self, I32, z))
        return self.builder.bitcast(total, self.vector)


def products(x: Array, y: Array) -> Array:
    """What a tile computes, in NumPy: x @ y.T in 32 bits."""
    total: Array = x.astype(np.int32) @ y.astype(np.int32).T
    return total
