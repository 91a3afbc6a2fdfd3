"""`Tensor`: an array, and operators that call ops through the door.

The methods are the functions of `tinytorch/functions`, taken into the class by name. What stands
here is what only a tensor has: construction, its slots, exchange with other libraries, in-place
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.autograd.engine import backward
from tinytorch.dispatch import active_modes, apply, set_tensor_class, wrap
from tinytorch.dtypes import (
    Array,
    DType,
    Shape,
    TensorMeta,
    as_dtype,
    bool_,
    float32,
    int64,
    meta_of_array,
)
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions import (
    conversion,
    elementwise,
    indexing,
    inplace,
    linalg,
    movement,
    reductions,
)

Hook = Callable[["Tensor"], "Tensor | None"]

_add, _sub, _mul, _div = ops.add, ops.sub, ops.mul, ops.div  # looked up once, not at every `+`


class Tensor:
    """A multi-dimensional array of one number type, which may remember where it came from.

    Args:
        data: a number, a nested list, a NumPy array or a tensor; it is copied.
        dtype: by default float32 for Python floats, int64 for ints, bool for bools, and what it is
            for an array.
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

    __slots__ = ("__weakref__", "_data", "_hooks", "grad", "history", "meta", "requires_grad")

    #: NumPy leaves `array + tensor` to the tensor.
    __array_ufunc__ = None

    _data: Any
    meta: TensorMeta
    requires_grad: bool
    grad: Tensor | None
    history: Any

    def __init__(self, data: Any, dtype: Any = None, requires_grad: bool = False) -> None:
        array = _array_of(data, None if dtype is None else as_dtype(dtype))
        self._data = array
        self.meta = meta_of_array(array)
        self.requires_grad = False
        self.grad = None
        self.history = None
        if requires_grad:
            self.requires_grad_()

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
        """Sizes of the dimensions."""
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

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        return self.meta.nbytes

    def is_floating_point(self) -> bool:
        """The dtype is a float."""
        return self.dtype.is_floating_point

    @property
    def is_leaf(self) -> bool:
        """It was not computed from something that requires a gradient."""
        return self.history is None

    @property
    def T(self) -> Tensor:
        """The dimensions in reverse order."""
        return movement.permute(self, *reversed(range(self.ndim)))

    @property
    def mT(self) -> Tensor:
        """(..., m, n) as (..., n, m); ShapeError for fewer dimensions than two."""
        if self.ndim < 2:
            raise ShapeError(f".mT needs at least two dimensions, not shape {self.shape}")
        return movement.transpose(self, -1, -2)

    # -- gradients ---------------------------------------------------------------------------------

    backward = backward

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
        self.requires_grad = requires_grad
        return self

    @property
    def data(self) -> Tensor:
        """The same values, sharing memory, without history."""
        return apply(ops.detach, self)

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call `hook(gradient)` when this tensor's gradient is known; what it returns replaces it.

        Returns:
            A function that removes the hook.

        Raises:
            AutogradError: the tensor does not require a gradient.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> remove = x.register_hook(lambda gradient: 10 * gradient)
        >>> x.sum().backward()
        >>> x.grad
        tensor([10.])
        """
        if not self.requires_grad:
            raise AutogradError("register_hook: this tensor does not require a gradient")
        holder = self if self.history is None else self.history
        if holder.hooks is None:
            holder.hooks = []
        hooks = holder.hooks
        hooks.append(hook)
        return lambda: hooks.remove(hook)

    @property
    def hooks(self) -> list[Hook] | None:
        """Hooks of a leaf; those of a computed tensor belong to its history."""
        return getattr(self, "_hooks", None)

    @hooks.setter
    def hooks(self, hooks: list[Hook]) -> None:
        self._hooks = hooks

    def retain_grad(self) -> None:
        """Keep the gradient of a computed tensor in `.grad`, as leaves do."""
        if self.history is None:
            return
        import weakref

        this = weakref.ref(self)  # the history must not hold its own result

        def keep(g: Tensor) -> None:
            tensor = this()
            if tensor is not None:
                tensor.grad = g.clone() if tensor.grad is None else tensor.grad + g

        self.register_hook(keep)

    # -- other libraries ---------------------------------------------------------------------------

    def numpy(self) -> Array:
        """A NumPy array that shares memory.

        Raises:
            AutogradError: the tensor requires a gradient; use t.detach().numpy().
        """
        if self.requires_grad:
            raise AutogradError(
                "numpy() on a tensor that requires a gradient would lose it; use t.detach().numpy()"
            )
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
        array = self.numpy()
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(f"{self.dtype.name} cannot become {dtype} without a copy")
        return array.astype(dtype or array.dtype, copy=bool(copy))

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()

    def is_contiguous(self) -> Any:
        """Its elements stand in memory in row-major order, without gaps."""
        return self._concrete("is_contiguous").flags.c_contiguous

    def item(self) -> Any:
        """The one element as a Python number.

        Raises:
            ShapeError: there is not exactly one.
        """
        if self.meta.size != 1:
            raise ShapeError(f"item() needs exactly one element, not shape {self.shape}")
        return self._concrete("item").item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self._concrete("tolist").tolist()

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
        return linalg.matmul(Tensor(other), self)

    def __matmul__(self, other: Any) -> Tensor:
        return linalg.matmul(self, other if isinstance(other, Tensor) else Tensor(other))

    __floordiv__ = elementwise.floor_divide
    __mod__ = elementwise.remainder
    __pow__ = elementwise.pow
    __neg__ = elementwise.neg
    __pos__ = elementwise.positive
    __abs__ = elementwise.abs
    __and__ = __rand__ = elementwise.bitwise_and
    __or__ = __ror__ = elementwise.bitwise_or
    __xor__ = __rxor__ = elementwise.bitwise_xor
    __invert__ = elementwise.bitwise_not
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge
    __eq__ = elementwise.eq  # type: ignore[assignment]
    __ne__ = elementwise.ne  # type: ignore[assignment]
    __getitem__, __setitem__ = indexing.getitem, inplace.setitem
    __iadd__, __isub__, __imul__, __itruediv__ = (
        inplace.iadd,
        inplace.isub,
        inplace.imul,
        inplace.itruediv,
    )
    __hash__ = object.__hash__

    def __len__(self) -> Any:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return iter(movement.unbind(self, 0))

    def __bool__(self) -> Any:
        if self.meta.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is ambiguous; use t.all() or t.any()"
            )
        return bool(self._concrete("bool"))

    def __float__(self) -> Any:
        return _python_float(self.item())

    def __int__(self) -> Any:
        return _python_int(self.item())

    def __index__(self) -> Any:
        if self.dtype.is_floating_point:
            raise TypeError(f"a {self.dtype.name} tensor is not an index")
        return _python_int(self.item())

    def __repr__(self) -> str:
        from tinytorch.formatting import format_tensor

        return format_tensor(self)

    def __reduce__(self) -> Any:
        if self.history is not None:
            raise AutogradError("a tensor with history cannot be pickled; use t.detach()")
        return (_rebuild, (np.array(self._concrete("pickle")), self.requires_grad))

    def __deepcopy__(self, memo: Any) -> Tensor:
        if self.history is not None:
            raise AutogradError("a tensor with history cannot be deep-copied; use t.detach()")
        copy = type(self)(self._concrete("deepcopy"), requires_grad=self.requires_grad)
        memo[id(self)] = copy
        if self.grad is not None:
            copy.grad = self.grad.detach().clone()
        return copy

    # -- methods that are functions elsewhere ------------------------------------------------------

    to, float, double, half = (
        conversion.to,
        conversion.to_float,
        conversion.to_double,
        conversion.to_half,
    )
    int, long, bool = conversion.to_int, conversion.to_long, conversion.to_bool
    detach, clone, contiguous = conversion.detach, conversion.clone, conversion.contiguous

    copy_, fill_, zero_, clamp_ = inplace.copy_, inplace.fill_, inplace.zero_, inplace.clamp_
    add_, sub_, mul_, div_ = inplace.add_, inplace.sub_, inplace.mul_, inplace.div_
    masked_fill_, uniform_, normal_ = inplace.masked_fill_, inplace.uniform_, inplace.normal_

    add, sub, mul, div = elementwise.add, elementwise.sub, elementwise.mul, elementwise.div
    pow, neg, remainder = elementwise.pow, elementwise.neg, elementwise.remainder
    floor_divide = elementwise.floor_divide
    maximum, minimum, clip = elementwise.maximum, elementwise.minimum, elementwise.clip
    clamp = elementwise.clip
    eq, ne, lt, le = elementwise.eq, elementwise.ne, elementwise.lt, elementwise.le
    gt, ge = elementwise.gt, elementwise.ge
    logical_and, logical_or = elementwise.logical_and, elementwise.logical_or
    logical_not, masked_fill = elementwise.logical_not, elementwise.masked_fill
    abs, sign, exp, expm1 = elementwise.abs, elementwise.sign, elementwise.exp, elementwise.expm1
    log, log1p, log2, sqrt = elementwise.log, elementwise.log1p, elementwise.log2, elementwise.sqrt
    rsqrt, square, sin, cos = (
        elementwise.rsqrt,
        elementwise.square,
        elementwise.sin,
        elementwise.cos,
    )
    tanh, sigmoid, erf = elementwise.tanh, elementwise.sigmoid, elementwise.erf
    relu, floor, ceil = elementwise.relu, elementwise.floor, elementwise.ceil
    round, reciprocal, isnan = elementwise.round, elementwise.reciprocal, elementwise.isnan
    isinf, isfinite = elementwise.isinf, elementwise.isfinite

    sum, mean, prod = reductions.sum, reductions.mean, reductions.prod
    max, min, amax, amin = reductions.max, reductions.min, reductions.amax, reductions.amin
    argmax, argmin, argsort = reductions.argmax, reductions.argmin, reductions.argsort
    sort, topk, cumsum = reductions.sort, reductions.topk, reductions.cumsum
    var, std, norm, all, any = (
        reductions.var,
        reductions.std,
        reductions.norm,
        reductions.all,
        reductions.any,
    )
    logsumexp, softmax = reductions.logsumexp, reductions.softmax
    log_softmax = reductions.log_softmax

    reshape, permute, transpose = movement.reshape, movement.permute, movement.transpose
    t, expand, expand_as = movement.t, movement.expand, movement.expand_as
    broadcast_to, view_as = movement.broadcast_to, movement.view_as
    squeeze, unsqueeze, flatten = movement.squeeze, movement.unsqueeze, movement.flatten
    unflatten, flip, narrow = movement.unflatten, movement.flip, movement.narrow
    split, chunk, unbind = movement.split, movement.chunk, movement.unbind
    repeat, unfold, roll = movement.repeat, movement.unfold, movement.roll

    def view(self, *shape: Any) -> Tensor:
        """`reshape` that shares memory.

        Raises:
            ShapeError: the elements would have to be copied.
        """
        out = movement.reshape(self, *shape)
        source, result = self._data, out._data
        copied = isinstance(result, np.ndarray) and not np.may_share_memory(source, result)
        if copied and self.meta.size:
            raise ShapeError(
                f"view: shape {self.shape} cannot become {out.shape} without copying, as its "
                f"elements do not stand in order; use reshape"
            )
        return out

    gather, scatter_add = indexing.gather, indexing.scatter_add
    index_select, tril, triu = indexing.index_select, indexing.tril, indexing.triu
    diagonal = indexing.diagonal

    matmul, dot, outer = linalg.matmul, linalg.dot, linalg.outer


# Inside the class these names mean its methods.
_python_float, _python_int = float, int


def _rebuild(array: Array, requires_grad: bool) -> Tensor:
    return Tensor(array, requires_grad=requires_grad)


def _array_of(data: Any, dtype: DType | None) -> Array:
    """A new array with the values of anything that can be made a tensor."""
    if isinstance(data, Tensor):
        data = data._concrete("tensor")
    given = isinstance(data, (np.ndarray, np.generic))
    if isinstance(data, (list, tuple)):
        data = _without_tensors(data)
    try:
        array = np.array(data, copy=True)
    except ValueError as error:
        raise ShapeError(f"a tensor's rows must be equally long: {error}") from None
    if dtype is None and not given:
        dtype = {"f": float32, "i": int64, "u": int64, "b": bool_}.get(array.dtype.kind)
    if array.dtype.kind not in "fiub":
        raise DTypeError(f"a tensor holds numbers, not {array.dtype} ({data!r:.60})")
    target = as_dtype(array.dtype if dtype is None else dtype).dtype
    converted = np.ascontiguousarray(array, dtype=target).reshape(array.shape)
    if not given and array.dtype.kind in "iu" and target.kind == "i":
        lost = array[converted != array]
        if lost.size:
            raise OverflowError(f"{lost.flat[0]} does not fit into {target}")
    return converted


def _without_tensors(data: Any) -> Any:
    """Nested lists with the values of the tensors in them."""
    if isinstance(data, Tensor):
        return data._concrete("tensor")
    if isinstance(data, (list, tuple)):
        return [_without_tensors(d) for d in data]
    return data


set_tensor_class(Tensor)
