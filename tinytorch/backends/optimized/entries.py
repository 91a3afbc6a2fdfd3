"""Kernels that take arrays, compiled for one set of argument types, and called without dispatch.

Numba's dispatcher takes 100 ns to find out the types of three arrays, and compiles a version for
each combination of their layouts. The kernels of GEMM and convolution go by strides alone, so one
version serves all layouts, and the dtype is known before the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from tinytorch.backends.optimized import threads
from tinytorch.backends.optimized.library import JIT

SIZE = types.intp


def array_type(dtype: Any, ndim: int) -> Any:
    """Numba's type of arrays with any strides."""
    return types.Array(dtype, ndim, "A")


class Entries:
    """Kernels as attributes; each is compiled, or loaded from the cache, when first asked for.

    Args:
        kernels: name -> (kernel, argument types ...). The caller answers for the types: machine
            code does not check them.
    """

    def __init__(self, **kernels: tuple[Any, ...]) -> None:
        self._kernels = kernels

    def run(self, name: str, count: int, *arguments: Any) -> None:
        """Call a kernel, or on several threads its sister `<name>_parallel`, with their number."""
        serial = getattr(self, name)
        if count == 1:
            serial(*arguments)
        else:
            threads.run_parallel(getattr(self, f"{name}_parallel"), serial, count, *arguments)

    def kernel(self, name: str) -> Callable[..., None]:
        """A kernel as other kernels call it."""
        function: Callable[..., None] = self._kernels[name][0]
        return function

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in self._kernels:
            raise AttributeError(f"there is no kernel {name!r} among {sorted(self._kernels)}")
        function, *arguments = self._kernels[name]
        entry: Callable[..., None] = function.compile(tuple(arguments)) if JIT else function
        setattr(self, name, entry)  # from now on an ordinary attribute
        return entry
