"""`Tensor`: an array, and operators that call ops through `dispatch.apply`.

The methods are the functions of `tinytorch/functions`, taken into the class as they are published.
This module defines what only a tensor has: construction, its slots, exchange with other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.absent import add_foreign_names, array_ufunc
from tinytorch.autograd.engine import backward
from tinytorch.autograd.hooks import register_hook, retain_grad
from tinytorch.dispatch import active_modes, apply, set_tensor_class, wrap, write
from tinytorch.dtypes import (
    Array,
    DType,
    Shape,
    TensorMeta,
    as_dtype,
    bfloat16,
    bfloat16_values,
    float32,
    is_dtype,
    meta_of_array,
    tensor_meta,
)
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions import (
    bitwise,
    conversion as conversion,  # publishes methods
    diagonals as diagonals,
    elementwise,
    inplace,
    linalg,
    mathematics as mathematics,
    movement,
    ordering as ordering,
    reductions,
    scans as scans,
    scattering as scattering,
    subscripts,
)
from tinytorch.functions.publish import METHODS
from tinytorch.history import write_clock
from tinytorch.replay import holds, replayed
from tinytorch.values import array_of

Hook = Callable[["Tensor"], "Tensor | None"]

_add, _sub, _mul, _div = ops.add, ops.sub, ops.mul, ops.div  # looked up once, not at every `+`


class Tensor:
    """A multi-dimensional array of one number type, which may remember where it came from.

    Args:
        data: a nested list, a number, a NumPy array or a tensor; it is copied. Several whole
            numbers are a shape, as in PyTorch: `Tensor(2, 3)`, of zeros.
        dtype: by default float32 for Python numbers (`tinytorch.tensor` takes the numbers' own
            type), and what it is for an array or a tensor.
        requires_grad: whether `backward` is to find the gradient for this tensor.

    Raises:
        ShapeError: a nested list is ragged.
        DTypeError: the numbers cannot be held, or a gradient is asked of an integer tensor.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> y = (x @ x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([[ 7., 11.],
            [ 9., 13.]])
    """

    __slots__ = ("__weakref__", "_data", "_hooks", "_requires_grad", "grad", "history", "meta")

    __array_ufunc__ = array_ufunc  # NumPy leaves `array + tensor` to the tensor

    _data: Any
    meta: TensorMeta
    _requires_grad: bool  # read on the hot path; `requires_grad` checks what it is set to
    grad: Tensor | None
    history: Any

    def __init__(self, *data: Any, dtype: Any = None, requires_grad: bool = False) -> None:
        if len(data) == 2 and is_dtype(data[1]):
            data, dtype = data[:1], data[-1]
        is_shape = all(isinstance(n, int) and not isinstance(n, bool) for n in data)
        value: Any = np.zeros(data or (0,), np.float32) if is_shape else next(iter(data))
        if len(data) > 1 and not is_shape:
            raise TypeError(f"Tensor takes data, or whole numbers that are a shape, not {data}")
        if dtype is None and not isinstance(value, (np.ndarray, np.generic, Tensor)):
            dtype = float32
        self._data, self.meta = array_of(value, None if dtype is None else as_dtype(dtype))
        self._requires_grad = False
        self.grad = None
        self.history = None
        if requires_grad:
            self.requires_grad_()

    @classmethod
    def from_data(cls, data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """The tensor that `tinytorch.tensor` makes: Python's whole numbers and bools keep their
        type."""
        out = wrap(*array_of(data, None if dtype is None else as_dtype(dtype)))
        return out.requires_grad_(requires_grad) if requires_grad else out

    @classmethod
    def from_numpy(cls, array: Array) -> Tensor:
        """A tensor that shares memory with the array.

        Raises:
            TypeError: it is no NumPy array.
            DTypeError: its dtype is not one of TinyTorch's.
        """
        if not isinstance(array, np.ndarray):
            raise TypeError(f"from_numpy takes a NumPy array, not {type(array).__name__}")
        if not array.dtype.isnative:
            raise DTypeError(f"from_numpy: {array.dtype} is not in this machine's byte order")
        return wrap(array, meta_of_array(array))

    # -- what it is --------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Sizes of the dimensions, a plain tuple; `numel` is the method that multiplies them."""
        return self.meta.shape

    @property
    def dtype(self) -> DType:
        """Number type of the elements."""
        return self.meta.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.meta.shape)

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.meta.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of dimension `dim`."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """Number of elements."""
        return self.meta.size

    nelement = numel

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        return self.meta.nbytes

    def is_floating_point(self) -> bool:
        """The dtype is a float."""
        return self.dtype.is_floating_point

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from something that requires a gradient."""
        return self.history is None

    @property
    def grad_fn(self) -> Any:
        """The record of the op that made it (its `op`, `params`, `edges`), or None for a leaf."""
        return self.history

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def element_size(self) -> int:
        """Bytes of one element: `itemsize`."""
        return self.itemsize

    @property
    def T(self) -> Tensor:
        """The dimensions in reverse order."""
        return self.permute(*range(self.ndim)[::-1])

    @property
    def mT(self) -> Tensor:
        """(..., m, n) as (..., n, m); ShapeError for fewer dimensions than two."""
        if self.ndim < 2:
            raise ShapeError(f".mT needs at least two dimensions, not shape {self.shape}")
        return movement.transpose(self, -1, -2)

    # -- gradients ---------------------------------------------------------------------------------

    backward = backward

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` finds the gradient for it, or passes it on."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient, or no longer.

        Raises:
            DTypeError: the tensor is not floating-point.
            AutogradError: it is not a leaf.
        """
        if requires_grad and not self.dtype.is_floating_point:
            raise DTypeError(f"only floating-point tensors have gradients, not {self.dtype.name}")
        if self.history is not None and not requires_grad:
            raise AutogradError("this tensor was computed; use t.detach() to cut its history")
        self._requires_grad = bool(requires_grad)
        return self

    @property
    def data(self) -> Tensor:
        """The same values, sharing memory, without history."""
        return apply(ops.detach, self)

    @data.setter
    def data(self, value: Tensor) -> None:
        """Take over the memory of another tensor; history and gradient stay.

        Raises:
            DTypeError, ShapeError: it has another dtype, or this one a gradient of another shape.
        """
        if not isinstance(value, Tensor):
            raise TypeError(f".data is a tensor, not {type(value).__name__}")
        if value.dtype is not self.dtype and self.requires_grad:
            raise DTypeError(f".data: {value.dtype.name} in place of {self.dtype.name}")
        if value.shape != self.shape and (self.grad is not None or self.history is not None):
            raise ShapeError(f".data: shape {value.shape} in place of {self.shape}")
        mine, theirs = self._data, value._data
        if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
            if _same_memory(mine, theirs):
                return  # t.data -= x has written it already
            self._data, self.meta = theirs, value.meta
            write_clock.write(theirs)  # gradients that kept this tensor for its old value notice
        elif getattr(theirs, "storage", self) is not getattr(self.data._data, "storage", None):
            write(self.data, ops.copy, value)  # in a trace: unrecorded, into the same memory

    register_hook, retain_grad = register_hook, retain_grad

    @property
    def hooks(self) -> list[Hook] | None:
        """Hooks of a leaf; those of a computed tensor belong to its history."""
        return getattr(self, "_hooks", None)

    @hooks.setter
    def hooks(self, hooks: list[Hook]) -> None:
        self._hooks = hooks

    # -- other libraries ---------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Array:
        """A NumPy array that shares memory.

        Args:
            force: give a copy where the values cannot be shared, instead of an error.

        Raises:
            AutogradError: the tensor requires a gradient; use t.detach().numpy().
            DTypeError: NumPy does not have the dtype (bfloat16); use t.float().numpy().
        """
        if force:
            return np.array(self.detach().float() if self.dtype is bfloat16 else self.detach())
        if self.requires_grad:
            raise AutogradError(
                "numpy() on a tensor that requires a gradient would lose it; use t.detach().numpy()"
            )
        if self.dtype is bfloat16:
            raise DTypeError("NumPy has no bfloat16; use t.float().numpy()")
        return self._concrete("numpy")

    def _concrete(self, asked: str) -> Array:
        """The values as an array; a traced tensor has none and says so."""
        data = self._data
        if isinstance(data, np.ndarray):
            for mode in active_modes():
                mode.values_asked(self, asked)
            return data
        return data.concrete(asked)  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._values("numpy") if self.dtype is bfloat16 else self.numpy()
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(f"{self.dtype.name} cannot become {dtype} without a copy")
        return array.astype(dtype or array.dtype, copy=bool(copy))

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()

    def is_contiguous(self) -> Any:
        """Whether its elements are in memory in row-major order, without gaps."""
        return self._concrete("is_contiguous").flags.c_contiguous

    def item(self) -> Any:
        """The one element as a Python number.

        Raises:
            ShapeError: there is not exactly one.
        """
        if self.meta.size != 1:
            raise ShapeError(f"item() needs exactly one element, not shape {self.shape}")
        return self._values("item").item()

    def _values(self, asked: str) -> Array:
        """The elements as numbers that NumPy has: those of bfloat16 as float32."""
        array = self._concrete(asked)
        return array if self.dtype is not bfloat16 else bfloat16_values(array)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self._values("tolist").tolist()

    # -- Python's operators ------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return apply(_add, self, other)

    def __radd__(self, other: Any) -> Tensor:
        return apply(ops.add, other, self)

    def __sub__(self, other: Any) -> Tensor:
        return apply(_sub, self, other)

    def __rsub__(self, other: Any) -> Tensor:
        """other - self"""
        return apply(ops.sub, other, self)

    def __mul__(self, other: Any) -> Tensor:
        return apply(_mul, self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return apply(ops.mul, other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return apply(_div, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        """other / self"""
        return apply(ops.div, other, self)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return apply(ops.floor_divide, other, self)

    def __rmod__(self, other: Any) -> Tensor:
        return apply(ops.remainder, other, self)

    def __rpow__(self, other: Any) -> Tensor:
        return apply(ops.pow_, other, self)

    def __rmatmul__(self, other: Any) -> Tensor:
        return linalg.matmul(_as_operand(other), self)

    def __matmul__(self, other: Any) -> Tensor:
        return linalg.matmul(self, other if isinstance(other, Tensor) else _as_operand(other))

    def __rlshift__(self, other: Any) -> Tensor:
        return bitwise.bitwise_left_shift(other, self)

    def __rrshift__(self, other: Any) -> Tensor:
        return bitwise.bitwise_right_shift(other, self)

    __lshift__, __rshift__ = bitwise.bitwise_left_shift, bitwise.bitwise_right_shift
    __floordiv__ = elementwise.floor_divide
    __mod__ = elementwise.remainder
    __pow__ = elementwise.pow
    __neg__ = elementwise.neg
    __pos__ = elementwise.positive
    __abs__ = elementwise.abs
    __and__ = __rand__ = bitwise.bitwise_and
    __or__ = __ror__ = bitwise.bitwise_or
    __xor__ = __rxor__ = bitwise.bitwise_xor
    __invert__ = bitwise.bitwise_not
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        """Where the elements are equal; False for None and other things that are no numbers."""
        return apply(ops.eq, self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        """Where the elements differ; True for None and other things that are no numbers."""
        return apply(ops.ne, self, other) if _is_operand(other) else NotImplemented

    __getitem__, __setitem__ = subscripts.getitem, inplace.setitem
    __iadd__, __isub__, __imul__ = inplace.iadd, inplace.isub, inplace.imul
    __itruediv__, __ifloordiv__, __imod__ = inplace.itruediv, inplace.ifloordiv, inplace.imod
    __ipow__, __iand__, __ior__ = inplace.ipow, inplace.bitwise_and_, inplace.bitwise_or_
    __ixor__, __ilshift__ = inplace.bitwise_xor_, inplace.bitwise_left_shift_
    __irshift__ = inplace.bitwise_right_shift_
    __hash__ = object.__hash__

    def __len__(self) -> Any:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return iter(self.unbind(0))

    def __bool__(self) -> Any:
        if self.meta.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous; use t.all() or t.any()"
            )
        return bool(self._values("bool"))

    def __float__(self) -> Any:
        return float(self.item())

    def __int__(self) -> Any:
        return int(self.item())

    def __index__(self) -> Any:
        if self.dtype.is_floating_point:
            raise TypeError(f"a {self.dtype.name} tensor is not an index")
        return int(self.item())

    def __contains__(self, element: Any) -> Any:
        return bool(reductions.any(elementwise.eq(self, element)))

    def __format__(self, spec: str) -> str:
        """A 0-d tensor as its number; any other as `str`."""
        if self.shape:
            return format(str(self), spec)
        return format(self.item(), spec)

    def __repr__(self) -> str:
        from tinytorch.formatting import format_tensor

        return format_tensor(self)

    def __reduce__(self) -> Any:
        if self.history is not None:
            raise AutogradError("a tensor with history cannot be pickled; use t.detach()")
        array = np.array(self._concrete("pickle"))
        return (_rebuild, (array, self.requires_grad, self.dtype.name))

    def __deepcopy__(self, memo: Any) -> Tensor:
        if self.history is not None:
            raise AutogradError("a tensor with history cannot be deep-copied; use t.detach()")
        copy = type(self).__new__(type(self))
        copy._data, copy.meta = np.array(self._concrete("deepcopy"), order="C"), self.meta
        copy._requires_grad, copy.grad, copy.history = self.requires_grad, None, None
        memo[id(self)] = copy
        if self.grad is not None:
            copy.grad = self.grad.detach().clone()
        return copy

    if TYPE_CHECKING:  # the functions of `tinytorch/functions`; `publish` says which

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...

    @replayed
    def view(self, *given: Any, size: Any = None) -> Tensor:
        """`reshape` that shares memory.

        Raises:
            ShapeError: the elements would have to be copied.
        """
        out = movement.reshape(self, *given, shape=size)
        if holds(self, lambda a: a.flags.c_contiguous, traced=True):  # then it is never copied
            return out
        if not np.may_share_memory(self._data, out._data) and self.meta.size:
            raise ShapeError(
                f"view: shape {self.shape} cannot become {out.shape} without copying, as its "
                f"elements are not in order; use reshape"
            )
        return out


for _name, _function in METHODS.items():
    setattr(Tensor, _name, _function)
Tensor.T, Tensor.mT = map(property, map(replayed, (Tensor.T.fget, Tensor.mT.fget)))  # type: ignore
add_foreign_names(Tensor, "torch.Tensor")


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tensor, int, float, np.ndarray, np.generic))


def _as_operand(value: Any) -> Tensor:
    """A NumPy array or a list as a tensor, in the numbers' own dtype."""
    return wrap(*array_of(value, None))


def _same_memory(a: Array, b: Array) -> bool:
    return (
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


def _rebuild(array: Array, requires_grad: bool, dtype: str) -> Tensor:
    tensor = wrap(array, tensor_meta(array.shape, as_dtype(dtype)))
    return tensor.requires_grad_(requires_grad)


set_tensor_class(Tensor)
