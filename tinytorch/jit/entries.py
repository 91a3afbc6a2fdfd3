"""Kernels that take arrays, compiled for one set of argument types, and called without dispatch.

Numba's dispatcher takes 100 ns to find out the types of three arrays, and compiles a version for
each combination of their layouts. The kernels of GEMM and convolution go by strides alone, so one
version serves all layouts, and the dtype is known before the call.

Another 60 ns for each array go into an object that keeps it alive. The caller's reference does that
for as long as the call takes, so a `BorrowedArray` is read from NumPy's own fields instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import NativeValue, register_model, unbox

from tinytorch.jit import threads
from tinytorch.jit.library import JIT

# Functions of numba that have no type annotations.
_unboxes: Callable[..., Any] = unbox
_models: Callable[..., Any] = register_model
_tuple: Callable[..., Any] = types.UniTuple
_native: Callable[..., Any] = NativeValue

# NumPy's C interface (PyArrayObject_fields, ndarraytypes.h) fixes what follows the object header:
# data, the number of dimensions (padded to a word), the dimensions, the strides.
_HEADER_BYTES = object.__basicsize__
_DATA, _DIMENSIONS, _STRIDES = (_HEADER_BYTES + 8 * word for word in (0, 2, 3))


class BorrowedArray(types.Array):
    """Numba's type of arrays with any strides that the caller holds on to until the call is over.

    A kernel must neither return one nor keep it.
    """

    def __init__(self, dtype: Any, ndim: int) -> None:
        super().__init__(dtype, ndim, "A", name=f"borrowed array({dtype}, {ndim}d)")

    def __repr__(self) -> str:  # part of the name of machine code in the cache
        return f"BorrowedArray({self.dtype!r}, {self.ndim})"


def _read_fields(kind: Any, array: Any, c: Any) -> Any:
    build = c.builder
    word = c.context.get_value_type(types.intp)

    def field(offset: int, of: Any) -> Any:
        place = build.gep(build.bitcast(array, ir.IntType(8).as_pointer()), [word(offset)])
        return build.load(build.bitcast(place, of.as_pointer()))

    def words(offset: int) -> list[Any]:
        first = field(offset, word.as_pointer())
        return [build.load(build.gep(first, [word(i)])) for i in range(kind.ndim)]

    shape = words(_DIMENSIONS)
    size = word(1)
    for length in shape:
        size = build.mul(size, length)
    native = c.context.make_array(kind)(c.context, build)  # with nothing that counts references
    native.data = field(_DATA, native.data.type)
    sizes = _tuple(types.intp, kind.ndim)
    native.shape = c.context.make_tuple(build, sizes, shape)
    native.strides = c.context.make_tuple(build, sizes, words(_STRIDES))
    native.itemsize = word(kind.dtype.bitwidth // 8)
    native.nitems = size
    return _native(native._getvalue())


_models(BorrowedArray)(models.ArrayModel)
_unboxes(BorrowedArray)(_read_fields)


def array_type(dtype: Any, ndim: int) -> Any:
    """Numba's type of an array argument of an entry."""
    return BorrowedArray(dtype, ndim)


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

    def kernel(self, name: str) -> Callable[..., Any]:
        """A kernel as other kernels call it."""
        function: Callable[..., Any] = self._kernels[name][0]
        return function

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._kernels:
            raise AttributeError(f"there is no kernel {name!r} among {sorted(self._kernels)}")
        function, *arguments = self._kernels[name]
        entry: Callable[..., Any] = function.compile(tuple(arguments)) if JIT else function
        setattr(self, name, entry)  # from now on an ordinary attribute
        return entry
