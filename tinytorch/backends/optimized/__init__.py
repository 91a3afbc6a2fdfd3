"""The expert rung: kernels emitted as LLVM vector IR through numba, chosen for this machine's CPU.

llvm, cpu, library, cache       how kernels are written, compiled and kept
gemm_kernel, gemm, gemv         the matrix product: a tile in registers, and the loops around it
conv, conv_backward, winograd   convolution through the same tile
math, elementwise, reductions   exp and its kin; loops over memory
threads, buffers                who runs, and on what memory
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # on demand, so that one kernel module can be imported without all the others
    if name == "OptimizedBackend":
        from tinytorch.backends.optimized.backend import OptimizedBackend

        return OptimizedBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
