"""The expert rung: kernels emitted as LLVM vector IR through numba, chosen for this machine's CPU.

A file imports from what stands above it, and each folder lists its files in the same way:

threads         who runs
buffers         on what memory
jit             how kernels are written, compiled and kept
gemm            the matrix product: a tile in registers, and the loops around it
conv            convolution through the same tile
elementwise     exp and its kin, and loops made from the op table's scalar definitions
rows            sums, softmax, norms, embeddings
pooling         windows of images
optimizers      a step as one pass over the parameters
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
