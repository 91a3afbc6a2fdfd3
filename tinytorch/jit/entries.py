"""Kernels that take arrays, compiled for one set of argument types, and called without dispatch.

Numba's dispatcher takes 100 ns to find out the types of three arrays, and compiles a version for
each combination of their layouts. The kernels of GEMM and convolution go by strides alone, so one
version serves all layouts, and the dtype is known before the call.

Another 60 ns for each array go into an object that keeps it alive. The caller's reference does that
for as long as the call takes, so a `BorrowedArray` is read from NumPy's own fields instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import NativeValue, register_model, unbox

from tinytorch.jit import threads
from tinytorch.jit.library import JIT
from tinytorch.jit.views import memory_of

# Functions of numba that have no type annotations.
_unboxes: Callable[..., Any] = unbox
_models: Callable[..., Any] = register_model
_tuple: Callable[..., Any] = types.UniTuple
_WORD, _INT = ir.IntType(64), ir.IntType(32)
_native: Callable[..., Any] = NativeValue
_each: Callable[..., Any] = cgutils.for_range
_local: Callable[..., Any] = cgutils.alloca_once_value

# NumPy's C interface (PyArrayObject_fields, ndarraytypes.h) fixes what follows the object header:
# data, the number of dimensions (padded to a word), the dimensions, the strides, the owner, the
# dtype, flags.
_HEADER_BYTES = object.__basicsize__
DATA, _NDIM, _DIMENSIONS, _STRIDES, _FLAGS = (_HEADER_BYTES + 8 * word for word in (0, 1, 2, 3, 6))
_ALIGNED = 0x100  # NPY_ARRAY_ALIGNED
_IN_ORDER = 0x001 | _ALIGNED  # NPY_ARRAY_C_CONTIGUOUS, too


class BorrowedArray(types.Array):
    """Numba's type of arrays with any strides that the caller holds on to until the call is over.

    A kernel must neither return one nor keep it.
    """

    def __init__(self, dtype: Any, ndim: int) -> None:
        super().__init__(dtype, ndim, "A", name=f"borrowed array({dtype}, {ndim}d)")

    def __repr__(self) -> str:  # part of the name of machine code in the cache
        return f"BorrowedArray({self.dtype!r}, {self.ndim})"


class FlatArray(types.Array):
    """Numba's type of such an array in C order, of any number of dimensions: a kernel sees one.

    An entry raises BufferError, and does nothing, where an array is in another order.
    """

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, 1, "C", name=f"flat array({dtype})")

    def __repr__(self) -> str:  # part of the name of machine code in the cache
        return f"FlatArray({self.dtype!r})"


class MemoryArray(types.Array):
    """Numba's type of the memory from such an array's first number to its last, as a kernel sees it
    that knows the steps between them.

    The caller answers for the steps: whole numbers of elements, and none is negative. An entry
    raises BufferError, and does nothing, where an array is not aligned.
    """

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, 1, "C", name=f"memory array({dtype})")

    def __repr__(self) -> str:  # part of the name of machine code in the cache
        return f"MemoryArray({self.dtype!r})"


def _field(build: Any, array: Any, offset: int, of: Any) -> Any:
    """What is at an offset in the object of an array."""
    place = build.gep(build.bitcast(array, ir.IntType(8).as_pointer()), [_WORD(offset)])
    return build.load(build.bitcast(place, of.as_pointer()))


def _itemsize(kind: Any, c: Any) -> Any:
    return _WORD(c.context.get_abi_sizeof(c.context.get_data_type(kind.dtype)))


def _array_of(kind: Any, array: Any, c: Any, shape: list[Any], strides: list[Any]) -> Any:
    build = c.builder
    size = _WORD(1)
    for length in shape:
        size = build.mul(size, length)
    native = c.context.make_array(kind)(c.context, build)  # with nothing that counts references
    native.data = _field(build, array, DATA, native.data.type)
    sizes = _tuple(types.intp, kind.ndim)
    native.shape = c.context.make_tuple(build, sizes, shape)
    native.strides = c.context.make_tuple(build, sizes, strides)
    native.itemsize = _itemsize(kind, c)
    native.nitems = size
    return native._getvalue()


def _read_fields(kind: Any, array: Any, c: Any) -> Any:
    build = c.builder

    def words(offset: int) -> list[Any]:
        first = _field(build, array, offset, _WORD.as_pointer())
        return [build.load(build.gep(first, [_WORD(i)])) for i in range(kind.ndim)]

    return _native(_array_of(kind, array, c, words(_DIMENSIONS), words(_STRIDES)))


def _is_missing(flags: int, array: Any, c: Any) -> Any:
    """Whether an array has not all of these flags; then a BufferError is set."""
    build = c.builder
    found = build.and_(_field(build, array, _FLAGS, _INT), _INT(flags))
    other = build.icmp_signed("!=", found, _INT(flags))
    with build.if_then(other, likely=False):
        c.pyapi.err_set_string("PyExc_BufferError", "an array is in another order, or not aligned")
    return other


def _lengths(array: Any, c: Any) -> tuple[Any, Any]:
    """The lengths of an array's dimensions, and how many these are."""
    build = c.builder
    lengths = _field(build, array, _DIMENSIONS, _WORD.as_pointer())
    return lengths, build.sext(_field(build, array, _NDIM, _INT), _WORD)


def _read_in_order(kind: Any, array: Any, c: Any) -> Any:
    build, other = c.builder, _is_missing(_IN_ORDER, array, c)
    size, (lengths, count) = _local(build, _WORD(1)), _lengths(array, c)
    with _each(build, count) as loop:
        length = build.load(build.gep(lengths, [loop.index]))
        build.store(build.mul(build.load(size), length), size)
    flat = _array_of(kind, array, c, [build.load(size)], [_itemsize(kind, c)])
    return _native(flat, is_error=other)


def _read_memory(kind: Any, array: Any, c: Any) -> Any:
    build, other = c.builder, _is_missing(_ALIGNED, array, c)
    last, (lengths, count) = _local(build, _WORD(0)), _lengths(array, c)
    strides = _field(build, array, _STRIDES, _WORD.as_pointer())
    with _each(build, count) as loop:
        length, step = (build.load(build.gep(each, [loop.index])) for each in (lengths, strides))
        walk = build.mul(build.sub(length, _WORD(1)), step)
        build.store(build.add(build.load(last), walk), last)
    itemsize = _itemsize(kind, c)
    size = build.add(build.sdiv(build.load(last), itemsize), _WORD(1))
    return _native(_array_of(kind, array, c, [size], [itemsize]), is_error=other)


_models(BorrowedArray)(models.ArrayModel)
_unboxes(BorrowedArray)(_read_fields)
_models(FlatArray)(models.ArrayModel)
_unboxes(FlatArray)(_read_in_order)
_models(MemoryArray)(models.ArrayModel)
_unboxes(MemoryArray)(_read_memory)


def array_type(dtype: Any, ndim: int) -> Any:
    """Numba's type of an array argument of an entry."""
    return BorrowedArray(dtype, ndim)


def flat_type(dtype: Any) -> Any:
    """Numba's type of an array argument that is read in C order, however many dimensions it has."""
    return FlatArray(dtype)


def memory_type(dtype: Any) -> Any:
    """Numba's type of an array argument whose memory is read by steps that the kernel knows."""
    return MemoryArray(dtype)


def entry_of(function: Any, arguments: Sequence[Any]) -> Callable[..., Any]:
    """A kernel for arguments of these types; where nothing is compiled, it gets arrays as machine
    code would see them."""
    if JIT:
        entry: Callable[..., Any] = function.compile(tuple(arguments))
        return entry

    def run(*given: Any) -> Any:
        return function(*map(_as_seen, arguments, given))

    return run


def _as_seen(kind: Any, value: Any) -> Any:
    """An argument as a kernel sees it.

    Raises:
        BufferError: an array is in another order than its type says, or not aligned.
    """
    if not isinstance(kind, FlatArray | MemoryArray):
        return value
    is_flat, flags = isinstance(kind, FlatArray), value.flags
    if not flags.aligned or (is_flat and not flags.c_contiguous):
        raise BufferError("an array is in another order, or not aligned")
    return value.reshape(-1) if is_flat else memory_of(value)


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
        entry = entry_of(function, arguments)
        setattr(self, name, entry)  # from now on an ordinary attribute
        return entry
