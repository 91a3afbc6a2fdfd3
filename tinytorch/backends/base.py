"""`ComputeBackend`: what executes ops. The contract, and how a kernel is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tinytorch.backends import reference, reference_out, reference_quantized
from tinytorch.dtypes import Array, Shape
from tinytorch.errors import BackendError
from tinytorch.op import Op, Plan
from tinytorch.ops import cast
from tinytorch.shapes import contiguous_strides

Kernel = Callable[..., Any]

KERNELS = 16_384  # plans whose kernel is remembered


class Slice(NamedTuple):
    """An operand that a kernel cuts from a larger array.

    Attributes:
        shape: of the array.
        bounds: for each of its dimensions where the slice begins and ends, and its step, which is
            positive.
    """

    shape: Shape
    bounds: tuple[tuple[int, int, int], ...]

    @property
    def begin(self) -> int:
        """How many elements are before its first."""
        return sum(b[0] * step for b, step in zip(self.bounds, self._steps(), strict=True))

    @property
    def strides(self) -> Shape:
        """In elements."""
        return tuple([b[2] * step for b, step in zip(self.bounds, self._steps(), strict=True)])

    def of(self, array: Array) -> Array:
        """The slice of such an array, in any order."""
        return array[tuple([slice(*b) for b in self.bounds])]

    def _steps(self) -> Shape:
        return contiguous_strides(self.shape, 1)


def _checking(kernel: Kernel, plan: Plan, backend: ComputeBackend) -> Kernel:
    """A kernel that calls the given one and checks its result against `plan.meta`.

    The result has the promised shape, and the dtype `plan.meta.dtype.dtype`. NumPy gives a scalar
    where a 0-d array is meant; that becomes an array first.

    Raises:
        BackendError: the returned kernel raises it where the result is not what was promised; the
            message names backend, op, what was returned and `plan.meta`.
    """
    meta = plan.meta

    def checked(*inputs: Any, **params: Any) -> Array:
        array = np.asarray(kernel(*inputs, **params))
        if array.shape != meta.shape or array.dtype != meta.dtype.dtype:
            raise BackendError(
                f"{type(backend).__name__}.{plan.op.name} returned "
                f"{array.dtype}{list(array.shape)}, but the op's rules say {meta}"
            )
        return array

    return checked


def _after_casts(kernel: Kernel, casts: Sequence[Any]) -> Kernel:
    """A kernel that calls the given one with arrays that it casts first.

    Args:
        casts: for each input what casts it, and to which dtype; or None.
    """
    if len(casts) == 1:
        ((run, dtype),) = casts
        return lambda a, **params: kernel(run(a, dtype=dtype), **params)

    def cast_first(*inputs: Any, **params: Any) -> Any:
        given = [c[0](x, dtype=c[1]) if c else x for x, c in zip(inputs, casts, strict=True)]
        return kernel(*given, **params)

    return cast_first


def _for_every_backend(op: Op) -> str:
    """What to write so that each backend can run an op."""
    if op.kind == "fused":
        return "say what it is made of in tinytorch/decompositions.py, below a line @decomposition"
    return "add its NumPy kernel to _FUNCTIONS in tinytorch/backends/reference.py"


class ComputeBackend(ABC):
    """Executes ops on NumPy arrays.

    A kernel is a method with the name of the op: arrays by position (or Python scalars, in
    elementwise ops), parameters by keyword; it returns a new array of the shape and dtype that the
    op's rules promise. Shapes are checked and dtypes are converted before it is called.

    Only the heavy ops are abstract. For every other op the kernel is looked for in three places: a
    method named as the op; a method named as its kind (`elementwise(op, *arrays)`,
    `reduction(op, array, *, dims, keepdim)`); the NumPy reference.

        class MyBackend(NumpyBackend):
            def matmul(self, a, b):
                return my_kernel(a, b)

        tinytorch.register_backend("mine", MyBackend)
        tinytorch.set_backend("mine")
    """

    #: The kernel of each plan that has run.
    kernels: dict[Plan, Kernel]

    #: Names of the elementwise ops of which it compiles a `Program` as one kernel
    #: (`functions/fusing.py`): such an op has a `Program` as its scalar definition.
    fusible: frozenset[str] = frozenset()

    #: A class that says `trusted = True` itself (it is not inherited) is not checked at every call.
    #: Only backends that the conformance suite covers do.
    trusted: ClassVar[bool]

    #: What functions that are called often run instead of themselves (see `tinytorch.replay`), by
    #: the kind of call; None on a backend whose class does not say `replays = True` itself.
    programs: dict[Any, Any] | None

    def __new__(cls, *args: Any, **kwargs: Any) -> ComputeBackend:
        # here and not in __init__, so that a subclass may forget super().__init__()
        self = super().__new__(cls)
        self.kernels = {}
        self.programs = {} if "replays" in vars(cls) else None
        return self

    @abstractmethod
    def matmul(self, a: Array, b: Array) -> Array:
        """(..., m, k) times (..., k, n); the batch dimensions broadcast."""

    @abstractmethod
    def conv2d(
        self,
        x: Array,
        w: Array,
        b: Array | None = None,
        *,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> Array:
        """x (n, c, h, w) with weight (o, c / groups, kh, kw) and bias (o,) -> (n, o, oh, ow)."""

    def conv2d_input(self, g: Array, w: Array, **params: Any) -> Array:
        """The gradient of `conv2d` for its input, computed with this backend's own `conv2d`."""
        return reference.conv2d_input_by(self.conv2d, g, w, **params)

    def conv2d_weight(self, x: Array, g: Array, **params: Any) -> Array:
        """The gradient of `conv2d` for its weight, computed with this backend's own `conv2d`."""
        return reference.conv2d_weight_by(self.conv2d, x, g, **params)

    def quantized_linear(self, x: Array, weight: Array, *others: Array, **params: Any) -> Array:
        """x times weights in codes, with this backend's own `matmul`."""
        return reference_quantized.linear_by(self.matmul, x, weight, *others, **params)

    def find_kernel(self, op: Op) -> Kernel:
        """The kernel that runs `op`, from the first of three places that has one.

        1. a method of this backend with the name `op.name`;
        2. a method with the name `op.kind`: it is called with the op as its first argument;
        3. `reference.find_kernel(op)`, the NumPy reference, which may be None.

        Raises:
            NotImplementedError: there is none; the message names backend and op and says what to
                write.
        """
        own = getattr(self, op.name, None)
        if own is not None:
            return own
        family = getattr(self, op.kind, None)
        if family is not None:
            return lambda *arrays, **params: family(op, *arrays, **params)
        kernel = reference.find_kernel(op)
        if kernel is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no kernel for {op.name}: write a method "
                f"{op.name}({', '.join(op.inputs)}, ...), or, for every backend, "
                f"{_for_every_backend(op)}"
            )
        return kernel

    def add_kernel(self, plan: Plan) -> Kernel:
        """Find the kernel for a plan that is run for the first time, and remember it.

        The kernel is that of `self.specialize(plan)`. It is checked at every call (`_checking`),
        unless the backend's own class says `trusted`, which is not inherited; and even then where
        the result has no dimensions. `self.kernels` remembers it under the plan; it is emptied
        first where it has `KERNELS` entries.
        """
        if len(self.kernels) >= KERNELS:
            self.kernels.clear()
        kernel = self.specialize(plan)
        if "trusted" not in vars(type(self)) or not plan.meta.shape:
            kernel = _checking(kernel, plan, self)
        self.kernels[plan] = kernel
        return kernel

    def add_kernel_after_casts(self, plan: Plan) -> None:
        """Remember for a plan with casts a kernel that casts its arrays, and runs the op on them.

        It is made of those of the ops, where these are remembered: they have run before.
        """
        kernel = self.kernels.get(plan.after_casts())
        casts = [
            dtype and (self.kernels.get(cast.plan((have,), {"dtype": dtype})), dtype)
            for have, dtype in zip(plan.operands, plan.casts or (), strict=True)
        ]
        if kernel is not None and not any(c and c[0] is None for c in casts):
            self.kernels[plan] = _after_casts(kernel, casts)

    def specialize(self, plan: Plan) -> Kernel:
        """The kernel for operands of the plan's shapes and dtypes: it is called with no others.

        Override to choose by shape once, instead of at every call.
        """
        return self.find_kernel(plan.op)

    def specialize_slices(self, plan: Plan, slices: Mapping[int, Slice]) -> Kernel | None:
        """The kernel of an elementwise plan that cuts some operands from larger arrays by itself.

        A program asks for it where it would make slices only to read them once. By default there is
        none, and it does.

        Args:
            slices: the operands that are cut, by position. What they are cut from is handed over
                in their place, an array in C order or not.
        """
        return None

    def specialize_packed(self, plan: Plan) -> tuple[Kernel, Kernel] | None:
        """Two kernels for a `linear` whose weight is multiplied several times in a program.

        The first takes the weight, and the bias if there is one, and packs them; the second is
        called as `kernel(x, packed)` and gives what the kernel of the plan does, bit for bit. By
        default there are none.
        """
        return None

    def specialize_out(self, plan: Plan) -> Kernel | None:
        """The kernel for a plan in a form that is given the memory of its result; None if none is.

        It is called as `kernel(*inputs, out, **params)` under `np.errstate(all="ignore")` and fills
        all of `out`, an array in C order, which for an elementwise op may be one of the inputs. A
        compiled graph calls it, and so allocates nothing. By default there is one wherever this
        backend runs NumPy's reference and NumPy can; override it if your kernels can too.
        """
        if self.specialize(plan) is not reference.find_kernel(plan.op):
            return None
        return reference_out.find_kernel(plan.op)

    def replacement_of(self, function: Kernel) -> Kernel:
        """What runs in place of a function on arrays that is no op, such as the condition that a
        program asks at each call: it means the same."""
        return function

    def has_kernel(self, op: Op) -> bool:
        """Whether a fused op runs as one kernel here; otherwise its decomposition runs."""
        return getattr(self, op.name, None) is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
