"""Number types, how they promote, and `TensorMeta`: a tensor without its values."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.errors import DTypeError

Scalar = bool | int | float
Shape = tuple[int, ...]
if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:
    Array = np.ndarray  # numpy.typing is not free to import


class DType:
    """A number type. There is one object for each, so `is` compares.

    >>> import numpy as np
    >>> float32, float32.itemsize, float32.is_floating_point
    (tinytorch.float32, 4, True)
    >>> np.zeros(2, dtype=float32).dtype
    dtype('float32')
    """

    __slots__ = ("dtype", "is_floating_point", "itemsize", "name", "rank")

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        self.dtype = np.dtype(name)  # NumPy looks for this attribute where it takes a dtype
        self.itemsize = self.dtype.itemsize
        self.is_floating_point = self.dtype.kind == "f"
        self.rank = rank  # position in the order of promotion

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))


bool_ = DType("bool", 0)
int32 = DType("int32", 1)
int64 = DType("int64", 2)
float16 = DType("float16", 3)
float32 = DType("float32", 4)
float64 = DType("float64", 5)

DTYPES: dict[str, DType] = {d.name: d for d in (bool_, int32, int64, float16, float32, float64)}
_BY_NUMPY: dict[Any, DType] = {d.dtype: d for d in DTYPES.values()}
DEFAULT_FLOAT = float32
DEFAULT_INT = int64
SCALAR_DTYPES: dict[type, DType] = {bool: bool_, int: int64, float: float32}


def as_dtype(dtype: Any) -> DType:
    """The `DType` for a DType, a name, a NumPy dtype or a Python number type.

    Raises:
        DTypeError: it is none of TinyTorch's types; the message lists them.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in SCALAR_DTYPES:
        return SCALAR_DTYPES[dtype]
    try:
        if dtype is None:  # NumPy would take that for float64
            raise TypeError
        return _BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise DTypeError(
            f"{dtype!r} is not a TinyTorch dtype; there are {', '.join(DTYPES)}"
        ) from None


def category_of(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    return 2 if dtype.is_floating_point else min(dtype.rank, 1)


def is_narrower(dtype: DType, other: DType) -> bool:
    """Of a lower category (bool < integer < float): it cannot hold what the other can."""
    return category_of(dtype) < category_of(other)


def promote(*metas: TensorMeta | type) -> DType:
    """The common dtype of operands, as in PyTorch.

    Operands come in three strengths: tensors with dimensions, 0-d tensors, Python scalars. A weaker
    one changes the result only if its category (bool < integer < float) is higher, and Python
    scalars then bring the default type of their category. Among equally strong ones the highest
    `rank` wins.

    Args:
        metas: of tensors; or, for Python scalars, their types: bool, int, float.

    >>> promote(TensorMeta((2,), float32), TensorMeta((), float64))
    tinytorch.float32
    >>> promote(TensorMeta((2,), int64), float)
    tinytorch.float32
    """
    result: DType | None = None
    for strength in range(3):
        group = [dtype_of(m) for m in metas if strength_of(m) == strength]
        if group:
            strongest = max(group, key=lambda d: d.rank)
            if result is None or category_of(strongest) > category_of(result):
                result = strongest
    assert result is not None
    return result


def strength_of(meta: TensorMeta | type) -> int:
    """0 for a tensor with dimensions, which counts most, 1 for a 0-d tensor, 2 for a scalar."""
    if isinstance(meta, type):
        return 2
    return 0 if meta.shape else 1


def dtype_of(meta: TensorMeta | type) -> DType:
    """The dtype of a tensor, or the default one of a Python scalar's type."""
    return SCALAR_DTYPES[meta] if isinstance(meta, type) else meta.dtype


class TensorMeta:
    """Shape and dtype of a tensor. Made by `tensor_meta`: equal ones are one object."""

    __slots__ = ("dtype", "nbytes", "ndim", "shape", "size")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.size = prod(shape)  # number of elements
        self.nbytes = self.size * dtype.itemsize  # of a dense array

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (tensor_meta, (self.shape, self.dtype))


_METAS: dict[tuple[Shape, DType], TensorMeta] = {}
_METAS_LIMIT = 100_000


def tensor_meta(shape: Iterable[int], dtype: DType) -> TensorMeta:
    """The one `TensorMeta` of this shape and dtype; equal metas are (almost always) identical.

    The table is emptied when it grows past a bound, so programs of ever new shapes do not leak;
    what is keyed on a meta then merely misses once.
    """
    key = (tuple(shape), dtype)
    meta = _METAS.get(key)
    if meta is None:
        if len(_METAS) >= _METAS_LIMIT:
            _METAS.clear()
        meta = _METAS[key] = TensorMeta(*key)
    return meta


def meta_of_array(array: Array) -> TensorMeta:
    """The meta of a NumPy array; raises DTypeError for a dtype that TinyTorch does not have."""
    meta = _METAS.get((array.shape, _BY_NUMPY.get(array.dtype)))  # type: ignore[arg-type]
    return meta if meta is not None else tensor_meta(array.shape, as_dtype(array.dtype))
