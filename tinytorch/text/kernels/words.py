"""How these kernels are compiled, and eight bytes of a text as one integer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tinytorch.dtypes import Array
from tinytorch.jit import library
from tinytorch.jit.library import JIT
from tinytorch.jit.llvm import I64

# Kernels that make no array: called from Python; from kernels; from kernels, put into the caller.
kernel = library.kernel(refcounts=False)
inner = library.kernel(refcounts=False, inner=True)
inline = library.kernel(refcounts=False, force_inline=True)

int64: Any = np.int64  # an integer for mypy too

PADDING = 16  # bytes after a text


def padded(data: bytes) -> Array:
    """A text as kernels take it: uint8 of shape (length + PADDING,)."""
    return np.frombuffer(data + bytes(PADDING), np.uint8)


def _emit_load(typing_context: Any, text: Any, i: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.bitcast(builder.gep(array.data, [values[1]]), I64.as_pointer())
        return builder.load(place, align=1)

    return types.int64(text, types.int64), generate


def _load_twin(text: Array, i: int) -> np.int64:
    return text[i : i + 8].copy().view(np.int64)[0]


_load: Any = intrinsic(_emit_load) if JIT else _load_twin
load_word: Callable[[Array, int], int] = _load
"""load_word(text, i): bytes i to i + 7, the first one lowest."""


def _emit_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], context.get_constant(types.boolean, False))

    return types.int64(types.int64), generate


def _zeros_twin(word: int) -> int:
    return (int(word) & -int(word)).bit_length() - 1 if word else 64


_zeros: Any = intrinsic(_emit_zeros) if JIT else _zeros_twin
trailing_zeros: Callable[[int], int] = _zeros
"""trailing_zeros(word): how many of its lowest bits are 0; 64 of 0."""
