"""Instructions that multiply small integers and add neighbouring products into 32 bits.

    words     acc[i] + x[2i] * y[2i] + x[2i+1] * y[2i+1]              16 bits, both signed
    bytes     acc[i] + x[4i] * y[4i] + ... + x[4i+3] * y[4i+3]        x unsigned, y signed

Both are intrinsics of x86; for a processor without them LLVM finds what it has. Each is one
instruction with VNNI (vpdpwssd, vpdpbusd). Without it there are

    words     vpmaddwd and an addition: two instructions for two products in a lane
    bytes     vpmaddubsw, vpmaddwd by ones and an addition: three for four

and vpmaddubsw adds two products in 16 bits, where it saturates: 255 * 127 + 255 * 127 does not fit.
What always fits is x up to 128, as -32768 <= 2 * 128 * y <= 32512 for each y of 8 bits. So `form`
asks how large x can be: dynamic codes are bytes, static ones, which go up to 255, words. Large
products of words are done in halves (`strassen`).

Products a cycle in 256 bits, where those of floats are 16 (`benchmarks/inner_loop.py --codes`):
from Skylake on 24 of words and 32 of bytes, as two of three ports multiply integers and all three
add; on Zen 3 21 and 32; on Haswell and Zen 2 16 and 16, as one port multiplies. With VNNI 64.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPMADDWD,
VPMADDUBSW, VPDPWSSD, VPDPBUSD; A. Fog, Instruction tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from tinytorch.dtypes import Array
from tinytorch.jit.cpu import host_features, host_vector_unit
from tinytorch.jit.llvm import I8, I32, Value, VectorEmitter
from tinytorch.shapes_quantized import MOST_DYNAMIC

I16 = ir.IntType(16)


@cache
def has_byte_dots() -> bool:
    """Whether this processor multiplies bytes and adds four products in one instruction."""
    features, size = host_features(), host_vector_unit().register_bytes
    if size == 64:
        return features.get("avx512vnni", False)
    both = features.get("avx512vnni", False) and features.get("avx512vl", False)
    return size == 32 and (both or features.get("avxvnni", False))


@cache
def has_byte_pairs() -> bool:
    """Whether it multiplies bytes at all, and adds two products in 16 bits."""
    size = host_vector_unit().register_bytes
    return size == 32 or (size == 64 and host_features().get("avx512bw", False))


def integers(e: VectorEmitter, element: Value, x: Value) -> Value:
    """A register's bits as integers of the type `element`."""
    kind = ir.VectorType(element, 8 * e.register_bytes // element.width)
    return e.builder.bitcast(x, kind)


def words(e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
    """total + neighbouring products of 16-bit words, for registers x and y; total of 32 bits."""
    build, size = e.builder, e.register_bytes
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
    """total + sums of four products of unsigned bytes of x and signed ones of y, with VNNI."""
    given = [total, integers(e, I32, x), integers(e, I32, y)]
    return e.call(f"x86.avx512.vpdpbusd.{8 * e.register_bytes}", total.type, given)


def pairs_of_bytes(e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
    """The same without VNNI, for bytes of x up to MOST_DYNAMIC."""
    name = {64: "x86.avx512.pmaddubs.w.512", 32: "x86.avx2.pmadd.ub.sw"}[e.register_bytes]
    kind = ir.VectorType(I16, e.register_bytes // 2)
    pairs = e.call(name, kind, [integers(e, I8, x), integers(e, I8, y)])
    return words(e, pairs, ir.Constant(kind, [1] * kind.count), total)


class Form(NamedTuple):
    """How codes are multiplied.

    Attributes:
        name: "byte" or "word".
        per_lane: codes of a row in the 32 bits that one lane of a sum takes at a time.
        code: how activations are written down.
        signed: how weights are.
        add: emits a sum and the products of registers of both.
    """

    name: str
    per_lane: int
    code: type[np.integer]
    signed: type[np.integer]
    add: Callable[[VectorEmitter, Value, Value, Value], Value]


OF_BYTES = Form("byte", 4, np.uint8, np.int8, bytes_)
OF_PAIRS = Form("byte", 4, np.uint8, np.int8, pairs_of_bytes)
OF_WORDS = Form("word", 2, np.int16, np.int16, words)


def form(most: int) -> Form:
    """How activations with codes from 0 to `most` are multiplied here, exactly."""
    if has_byte_dots():
        return OF_BYTES
    return OF_PAIRS if has_byte_pairs() and most <= MOST_DYNAMIC else OF_WORDS


class DotEmitter(VectorEmitter):
    """Emits a tile of floats, and means integers: a lane is some codes, `fma` adds their products.

    So the float tile's loops and addresses serve for integers, too.
    """

    form: Form

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """z + the products of the codes in each lane of x and y."""
        total = self.form.add(self, x, y, integers(self, I32, z))
        return self.builder.bitcast(total, self.vector)


def products(x: Array, y: Array) -> Array:
    """What a tile computes, in NumPy: x @ y.T in 32 bits."""
    total: Array = x.astype(np.int32) @ y.astype(np.int32).T
    return total
