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

    __slots__ = ("dtype", "is_floating_point", "itemsize", "name", "rank", "zero")

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        # NumPy looks for this attribute where it takes a dtype. It has no bfloat16: the bits
        # are stored.
        self.dtype = np.dtype("uint16" if name == "bfloat16" else name)
        self.itemsize = self.dtype.itemsize
        self.is_floating_point = "float" in name
        self.zero: Scalar = 0.0 if self.is_floating_point else False if name == "bool" else 0
        self.rank = rank  # position in the order of promotion

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))


bool_ = DType("bool", 0)
uint8 = DType("uint8", 1)
int8 = DType("int8", 2)
int16 = DType("int16", 3)
int32 = DType("int32", 4)
int64 = DType("int64", 5)
bfloat16 = DType("bfloat16", 6)
float16 = DType("float16", 7)
float32 = DType("float32", 8)
float64 = DType("float64", 9)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        *(bool_, uint8, int8, int16, int32, int64),
        *(bfloat16, float16, float32, float64),
    )
}
_BY_NUMPY: dict[Any, DType] = {d.dtype: d for d in DTYPES.values() if d is not bfloat16}
LIMITS: dict[DType, tuple[int, int]] = {
    d: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name, d in DTYPES.items()
    if "int" in name
}
"""The least and the largest number of each dtype of integers."""
FLOAT32_LIMITS = float(np.finfo("float32").min), float(np.finfo("float32").max)
STORAGE_ONLY = frozenset((float16, bfloat16))  # converted, moved and compared bit by bit, no more
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
    if dtype == "bfloat16":
        return bfloat16
    try:
        # NumPy takes None for float64, and a tensor for its dtype
        if not isinstance(dtype, (str, type, np.dtype)):
            raise TypeError
        return _BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise DTypeError(
            f"{dtype!r} is not a TinyTorch dtype; there are {', '.join(DTYPES)}"
        ) from None


def is_dtype(value: Any) -> bool:
    """`as_dtype` would take it, going by its type or name.

    >>> is_dtype("int64"), is_dtype(float), is_dtype("cpu")
    (True, True, False)
    """
    if isinstance(value, str):
        return value in DTYPES
    return isinstance(value, (DType, type, np.dtype))


def category_of(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    return 2 if dtype.is_floating_point else min(dtype.rank, 1)


def is_narrower(dtype: DType, other: DType) -> bool:
    """Whether it is of a lower category (bool < integer < float): it cannot hold what the other
    can."""
    return category_of(dtype) < category_of(other)


def wrapped(value: Any, dtype: DType) -> Any:
    """A Python int as the integer of this dtype that has its last bits; others as they are.

    Raises:
        OverflowError: more than the sign would be lost.

    >>> wrapped(-1, uint8), wrapped(200, int8), wrapped(200, float32)
    (255, -56, 200)
    """
    limits = LIMITS.get(dtype)
    if type(value) is not int or limits is None:
        return value
    low, count = limits[0], limits[1] - limits[0] + 1
    if not -count <= value < count:
        raise OverflowError(f"{value} does not fit into {dtype.name}") from None
    return (value - low) % count + low


def number_of(name: str, value: Any, dtype: DType) -> Any:
    """A Python number as one that a dtype has: uint8 counts a negative one from 256, as PyTorch's.

    Raises:
        DTypeError: the dtype is of integers, or float32, and has no such number.
        TypeError: it is no number.

    >>> number_of("full", -1, uint8), number_of("full", 1.5, int64), number_of("full", 2, bool_)
    (255, 1, True)
    """
    if not hasattr(value, "__float__"):  # of None NumPy makes NaN, and of "1" one
        raise TypeError(f"{name} takes a number, not {type(value).__name__}")
    limits: tuple[float, float] | None = LIMITS.get(dtype)
    if limits is None:
        limits = FLOAT32_LIMITS
        number = type(dtype.zero)(value)
        if not is_beyond(number, dtype):
            return number
    elif isinstance(value, (float, np.floating)):
        if limits[0] <= float(value) <= limits[1]:  # of NaN neither is true
            return int(value)
    else:
        number = int(value)
        if dtype is uint8 and -256 < number < 0:
            number += 256
        if limits[0] <= number <= limits[1]:
            return number
    raise DTypeError(
        f"{name}: {value} is not within {limits[0]} and {limits[1]}, the numbers of "
        f"{dtype.name}; give another dtype"
    )


def is_beyond(value: float, dtype: DType) -> bool:
    """Whether a finite number would be infinite in float32.

    >>> is_beyond(1e39, float32), is_beyond(float("inf"), float32), is_beyond(1e39, float64)
    (True, False, False)
    """
    return (
        dtype is float32
        and not FLOAT32_LIMITS[0] <= value <= FLOAT32_LIMITS[1]
        and value - value == 0
    )


def promote(*metas: TensorMeta | type) -> DType:
    """The common dtype of operands, as in PyTorch.

    Of two dtypes the wider wins; of two that cannot hold each other's numbers (uint8 and int8,
    float16 and bfloat16) the next wider one that holds both.

    Operands come in three strengths: tensors with dimensions, 0-d tensors, Python scalars. A weaker
    one changes the result only if its category (bool < integer < float) is higher, and Python
    scalars then bring the default type of their category.

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
            strongest = group[0] if len(group) == 1 else _widest(group)
            if result is None or category_of(strongest) > category_of(result):
                result = strongest
    assert result is not None
    return result


def _widest(dtypes: list[DType]) -> DType:
    widest = max(dtypes, key=lambda d: d.rank)
    if widest is int8 and uint8 in dtypes:
        return int16
    return float32 if widest is float16 and bfloat16 in dtypes else widest


def strength_of(meta: TensorMeta | type) -> int:
    """0 for a tensor with dimensions, which counts most, 1 for a 0-d tensor, 2 for a scalar."""
    if isinstance(meta, type):
        return 2
    return 0 if meta.shape else 1


def dtype_of(meta: TensorMeta | type) -> DType:
    """The dtype of a tensor, or the default one of a Python scalar's type.

    Raises:
        TypeError: it is of another type.
    """
    if not isinstance(meta, type):
        return meta.dtype
    if meta not in SCALAR_DTYPES:
        raise TypeError(
            f"an operand is a tensor or a number, not {meta.__name__}; use tinytorch.tensor(...)"
        )
    return SCALAR_DTYPES[meta]


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


def bits_of_bfloat16(values: Array) -> Array:
    """The upper 16 bits of float32 numbers, rounded to nearest, ties to even; as uint16.

    >>> bits_of_bfloat16(np.array([1.0])).tolist() == [0x3F80]
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # a NaN stays one
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, rounded).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    """The float32 numbers whose upper 16 bits these are."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class finfo:
    """Limits of a floating-point dtype: `bits`, `eps`, `min`, `max`, `tiny`, `smallest_normal`.

    >>> finfo(float32).max
    3.4028234663852886e+38
    """

    def __init__(self, dtype: Any = float32) -> None:
        kind = as_dtype(dtype)
        if not kind.is_floating_point:
            raise TypeError(f"finfo is for floating-point dtypes, not {kind.name}; use iinfo")
        self.dtype = kind.name
        self.bits = 8 * kind.itemsize
        if kind is bfloat16:
            self.eps, self.tiny = 2.0**-7, 2.0**-126
            self.max, self.resolution = (2 - 2.0**-7) * 2.0**127, 0.01
        else:
            limits = np.finfo(kind.dtype)
            self.eps, self.tiny = float(limits.eps), float(limits.tiny)
            self.max, self.resolution = float(limits.max), 10.0**-limits.precision
        self.min, self.smallest_normal = -self.max, self.tiny


class iinfo:
    """Limits of an integer dtype: `bits`, `min`, `max`.

    >>> iinfo(int32).max
    2147483647
    """

    def __init__(self, dtype: Any) -> None:
        kind = as_dtype(dtype)
        if kind.is_floating_point or kind is bool_:
            raise TypeError(f"iinfo is for integer dtypes, not {kind.name}")
        limits = np.iinfo(kind.dtype)
        self.dtype, self.bits = kind.name, 8 * kind.itemsize
        self.min, self.max = int(limits.min), int(limits.max)
