"""The fast backend: kernels emitted as LLVM vector IR by `tinytorch.jit`, tuned for this CPU.

A file imports only from files above it, and each folder lists its files in the same way:

gemm            the matrix product: a tile in registers, and the loops around it
conv            convolution through the same tile
elementwise     exp, expm1 and sigmoid, and loops made from the op table's scalar definitions
rows            sums, softmax, norms, embeddings
attention       scores, softmax and values a block at a time
pooling         windows of images
quantized       products with weights of 8 and 4 bits
optimizers      a step as one pass over the parameters
by_shape        kernels made for the shapes of a call
precompile      the library compiled, or loaded, at once
backend         which kernel runs which op
symbols         all this as C functions, for code that the compiler generates
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # on demand, so that one kernel module can be imported without all the others
    if name == "OptimizedBackend":
        from tinytorch.backends.optimized.backend import OptimizedBackend

        return OptimizedBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
