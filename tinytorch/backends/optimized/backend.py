"""`OptimizedBackend`: which kernel runs which op."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.backends import reference, reference_out
from tinytorch.backends.base import Kernel, Slice
from tinytorch.backends.blocked import batch_norm, optimizers
from tinytorch.backends.blocked.elementwise import UNCOMPILED, compiled_or, looped
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized.attention import attention
from tinytorch.backends.optimized.by_shape import BY_SHAPE
from tinytorch.backends.optimized.conv import conv2d, conv2d_input, conv2d_weight
from tinytorch.backends.optimized.conv.winograd import MATRICES, conv2d_winograd, pays
from tinytorch.backends.optimized.elementwise import activations
from tinytorch.backends.optimized.elementwise.loops import Scalar
from tinytorch.backends.optimized.elementwise.scalars import LIMITED_OPS
from tinytorch.backends.optimized.elementwise.several import one_by_one, specialize_several
from tinytorch.backends.optimized.elementwise.specialized import specialize, specialize_slices
from tinytorch.backends.optimized.elementwise.stepwise import step_by_step
from tinytorch.backends.optimized.gemm import small as small_products
from tinytorch.backends.optimized.gemm.matmul import (
    linear,
    linear_weight,
    matmul,
    own_affine,
)
from tinytorch.backends.optimized.pooling import average, maximum
from tinytorch.backends.optimized.quantized import linear as quantized
from tinytorch.backends.optimized.rows import (
    bisection,
    cross,
    cross_entropy,
    ctc,
    embedding,
    extremes,
    group_norm,
    layer_norm,
    movement,
    order,
    program_sums,
    reductions,
    scans,
    selection,
    small_index,
    softmax,
    uniform,
)
from tinytorch.dtypes import Array, Shape, TensorMeta, bool_, int64
from tinytorch.jit.contiguous import contiguous
from tinytorch.op import OPS, Op, Plan
from tinytorch.program import Program, Step

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

# Elementwise ops whose definition branches too much for a vector unit to gain, or calls the C
# library; and those that NumPy has in vector code: NumPy runs them.
_BRANCHING = frozenset(("pow",))
_BY_NUMPY = _BRANCHING | frozenset(
    ("eq", "ne", "lt", "le", "logical_not", "logical_and", "logical_or", "floor", "round")
)

#: Kernels for fewer numbers are compiled as they are made, and others when they are called.
_COMPILED_AT_ONCE = 2**13

_VIEWS = frozenset((reference.reshape, reference.permute, reference.slice_))

_PRODUCTS = {"matmul": matmul, "linear": linear, "linear_weight": linear_weight}


class OptimizedBackend(NumpyBackend):
    """Kernels for this machine's CPU, in float32 and float64; the rest by NumPy.

    Args:
        winograd: None for exact convolution; 4 or 2 to run 3x3 convolutions of stride 1 and padding
            1 forward by Winograd's F(4, 3) or F(2, 3), where that pays: fewer multiplications,
            larger rounding errors (`conv.winograd` says how large).
        own_kernels_only: compute large matrix products by these kernels also where the BLAS that
            NumPy ships is faster on this machine (`gemm.library`); for comparing kernels.

    Raises:
        ValueError: there is no such Winograd transform.

        tinytorch.set_backend(OptimizedBackend(winograd=4))
    """

    trusted = True
    replays = True
    own_kernels_only = False

    def __init__(self, *, winograd: int | None = None, own_kernels_only: bool = False) -> None:
        if own_kernels_only:
            self.own_kernels_only = True
            for name, kernel in _PRODUCTS.items():
                if getattr(type(self), name) is kernel:  # not overridden
                    setattr(self, name, partial(kernel, affine=own_affine))
        if winograd is not None:
            if winograd not in MATRICES:
                raise ValueError(f"winograd must be None or one of {sorted(MATRICES)}: {winograd}")
            self.conv2d = partial(_winograd_where_it_fits, winograd)

    matmul = staticmethod(matmul)
    linear = staticmethod(linear)
    linear_weight = staticmethod(linear_weight)

    conv2d = staticmethod(conv2d.conv2d)  # type: ignore[assignment]
    conv2d_input = staticmethod(conv2d_input.conv2d_input)  # type: ignore[assignment]
    conv2d_weight = staticmethod(conv2d_weight.conv2d_weight)  # type: ignore[assignment]
    max_pool2d = staticmethod(maximum.max_pool2d)
    max_pool2d_backward = staticmethod(maximum.max_pool2d_backward)
    max_pool2d_select = staticmethod(maximum.max_pool2d_select)
    avg_pool2d = staticmethod(average.avg_pool2d)
    avg_pool2d_backward = staticmethod(average.avg_pool2d_backward)

    # In each group the op named as its module comes last: from there on the name is the op.
    softmax_backward = staticmethod(softmax.softmax_backward)
    log_softmax = staticmethod(softmax.log_softmax)
    log_softmax_backward = staticmethod(softmax.log_softmax_backward)
    softmax = staticmethod(softmax.softmax)
    cross_entropy_backward = staticmethod(cross_entropy.cross_entropy_backward)
    cross_entropy = staticmethod(cross_entropy.cross_entropy)
    ctc_loss = staticmethod(ctc.ctc_loss)
    ctc_loss_backward = staticmethod(ctc.ctc_loss_backward)
    gelu = staticmethod(activations.gelu)
    gelu_backward = staticmethod(activations.gelu_backward)
    layer_norm_backward = staticmethod(layer_norm.layer_norm_backward)
    layer_norm_weight = staticmethod(layer_norm.layer_norm_weight)
    layer_norm = staticmethod(layer_norm.layer_norm)
    running_statistics = staticmethod(batch_norm.running_statistics)
    batch_norm_backward = staticmethod(batch_norm.batch_norm_backward)
    batch_norm_weight = staticmethod(batch_norm.batch_norm_weight)
    batch_norm = staticmethod(batch_norm.batch_norm)
    group_norm_backward = staticmethod(group_norm.group_norm_backward)
    group_norm_weight = staticmethod(group_norm.group_norm_weight)
    group_norm = staticmethod(group_norm.group_norm)
    scaled_dot_product_attention = staticmethod(attention.scaled_dot_product_attention)
    scaled_dot_product_attention_backward = staticmethod(
        attention.scaled_dot_product_attention_backward
    )
    quantized_linear = staticmethod(quantized.quantized_linear)  # type: ignore[assignment]

    sgd_step = staticmethod(optimizers.sgd_step)
    adam_step = staticmethod(optimizers.adam_step)

    argmax = staticmethod(extremes.argmax)
    argmin = staticmethod(extremes.argmin)

    @cached_property
    def fusible(self) -> frozenset[str]:  # type: ignore[override]
        """Those with vector code; none in a subclass with kernels of its own for such ops."""
        names = frozenset(op.name for op in OPS.values() if op.kind == "elementwise")
        has_own = any(hasattr(self, name) for name in ("elementwise", *names))
        if has_own:
            return frozenset()
        sums = {"sum"} if self._has_own(ops.sum) else set()
        return (names - _BRANCHING) | sums

    def sum(self, a: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        """Sum over `dims`."""
        return (reductions if _has_rows(a) else reference).sum(a, dims=dims, keepdim=keepdim)

    def amax(self, a: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        """Maximum over `dims`."""
        is_ours = _has_rows(a) or (a.dtype == np.bool_ and a.size > 0)
        return (reductions if is_ours else reference).amax(a, dims=dims, keepdim=keepdim)

    def amin(self, a: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
        """Minimum over `dims`."""
        is_ours = _has_rows(a) or (a.dtype == np.bool_ and a.size > 0)
        return (reductions if is_ours else reference).amin(a, dims=dims, keepdim=keepdim)

    def cumsum(self, a: Array, *, dim: int) -> Array:
        """Running sum along `dim`."""
        return (scans.cumsum if _is_common(a) else reference.cumsum)(a, dim=dim)

    def running_argmax(self, a: Array, *, dim: int) -> Array:
        """Index of the largest element so far along `dim`."""
        return (scans if _is_common(a) else reference).running_argmax(a, dim=dim)

    def running_argmin(self, a: Array, *, dim: int) -> Array:
        """Index of the smallest element so far along `dim`."""
        return (scans if _is_common(a) else reference).running_argmin(a, dim=dim)

    def cumprod(self, x: Array, *, dim: int) -> Array:
        """Running product along `dim`."""
        return (scans.cumprod if _is_common(x) else reference.cumprod)(x, dim=dim)

    def cumprod_backward(self, g: Array, x: Array, *, dim: int) -> Array:
        """The gradient of `cumprod`."""
        return (scans if _is_float(x) else reference).cumprod_backward(g, x, dim=dim)

    def cross(self, a: Array, b: Array, *, dim: int) -> Array:
        """Cross product along `dim`."""
        return (cross.cross if _is_common(a) else reference.cross)(a, b, dim=dim)

    def prod(self, x: Array, *, dim: int, keepdim: bool) -> Array:
        """Product along `dim`."""
        if _has_rows(x):
            return reductions.prod(x, dims=(dim,), keepdim=keepdim)
        return reference.prod(x, dim=dim, keepdim=keepdim)

    def gather(self, x: Array, index: Array, *, dim: int) -> Array:
        """An element for each index."""
        return (embedding.gather if _is_common(x) else reference.gather)(x, index, dim=dim)

    def scatter(self, x: Array, index: Array, src: Array, *, dim: int, reduce: str) -> Array:
        """Elements put or added at each index."""
        return (embedding if _is_common(x) else reference).scatter(
            x, index, src, dim=dim, reduce=reduce
        )

    def partial_argsort(
        self, a: Array, *, dim: int, descending: bool, start: int, length: int
    ) -> Array:
        """Some of the indices in the order of the elements."""
        kernel = selection.partial_argsort
        if not _is_float(a) and a.dtype.kind != "i":
            kernel = reference.partial_argsort
        return kernel(a, dim=dim, descending=descending, start=start, length=length)

    def argsort(self, a: Array, *, dim: int, descending: bool) -> Array:
        """Indices in the order of the elements."""
        is_sorted_here = _is_float(a) or a.dtype.kind == "i"
        return (order if is_sorted_here else reference).argsort(a, dim=dim, descending=descending)

    uniform = staticmethod(uniform.uniform)

    def copy(self, a: Array) -> Array:
        """A C-contiguous copy."""
        return reference.copy(a) if a.flags.c_contiguous else contiguous(a)

    def reshape(self, a: Array, *, shape: Shape) -> Array:
        """The elements in another shape; a view, where memory allows."""
        return movement.reshaped(a, shape=shape)

    def take(self, a: Array, index: Array) -> Array:
        """Rows of `a`."""
        return embedding.take(a, index)

    def scatter_add(self, a: Array, index: Array, *, length: int) -> Array:
        """Rows of `a` added up at `index`."""
        return (embedding if _is_float(a) else reference).scatter_add(a, index, length=length)

    def add_kernel(self, plan: Plan) -> Kernel:
        """As every backend does; but a kernel that `gives_arrays` is not checked for it at each
        call whose result has no dimensions."""
        kernel = super().add_kernel(plan)
        if not plan.meta.shape and "trusted" in vars(type(self)):
            own = self.specialize(plan)
            if own in _VIEWS or getattr(own, "gives_arrays", False):
                self.kernels[plan] = kernel = own
        return kernel

    def replacement_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Guards of indices, and what looks at many rows one by one, are compiled."""
        return _REPLACEMENTS.get(function, function)

    def specialize(self, plan: Plan) -> Kernel:
        """Elementwise ops are compiled from their definition, and by shape; others as usual."""
        op = plan.op
        if isinstance(op.scalar, Program):
            make = partial(_summed if "dims" in plan.params else _fused, op.scalar, plan)
            return _or_else(make, plan, partial(self._by_steps, op.scalar, plan))
        by_shape = BY_SHAPE.get(op.name)
        if by_shape is not None and self._has_own(op):
            kernel = by_shape(plan)
            if kernel is not None:
                return kernel
        if op is ops.pow_ and not self._is_overridden(op):
            return _power(plan, super().specialize(plan))
        definition = self._definition(plan)
        if definition is None:
            return super().specialize(plan)
        given = *_real_operands(plan), _bools(plan), _EXACT.get(op.name)
        return _or_else(partial(specialize, definition, *given), plan, partial(looped, op))

    def _by_steps(self, program: Program, plan: Plan, _: Exception) -> Kernel:
        """A program that is not compiled, by the kernels of its ops."""
        run = step_by_step(program, plan, lambda p: self.kernels.get(p) or self.add_kernel(p))
        if "dims" not in plan.params:
            return run
        return lambda *arrays, **params: self.sum(run(*arrays), **params)

    def specialize_slices(self, plan: Plan, slices: Mapping[int, Slice]) -> Kernel | None:
        """The loop of an elementwise plan walks along the rows of the arrays that it cuts from."""
        definition = None if plan.params else self._definition(plan)
        if definition is None:
            return None
        is_several = isinstance(definition, Program) and definition.others
        make: Any = specialize_several if is_several else specialize_slices
        kernel: Kernel | None = make(definition, *_real_operands(plan), _bools(plan), slices)
        return kernel

    def specialize_packed(self, plan: Plan) -> tuple[Kernel, Kernel] | None:
        """A weight in the order in which its tiles are read."""
        return small_products.packed_linear(plan) if self._has_own(plan.op) else None

    def specialize_out(self, plan: Plan) -> Kernel | None:
        """Copies, too, fill memory that they are given."""
        into = movement.INTO.get(plan.op.name)
        if into is None or not self._has_own(plan.op):
            return super().specialize_out(plan)
        return into(plan) or reference_out.find_kernel(plan.op)

    def _definition(self, plan: Plan) -> Scalar | None:
        """What is compiled as a loop for an elementwise plan; None where something else runs."""
        op, dtype = plan.op, plan.meta.dtype
        if isinstance(op.scalar, Program):
            return op.scalar
        is_ours = op.kind == "elementwise" and op.name not in _BY_NUMPY
        # of whole numbers NumPy branches at each element, where it does not have vector code
        is_common = dtype.dtype in (_F32, _F64) or (op is ops.where and dtype is int64)
        if not is_ours or self._is_overridden(op) or not is_common:
            return None
        assert op.scalar is not None
        if op not in LIMITED_OPS:
            return op.scalar
        inputs = tuple(f"x{i}" for i in range(len(op.inputs)))  # a loop looks at arguments first
        return Program(len(inputs), (Step(op, inputs),), "t0", False)

    def _is_overridden(self, op: Op) -> bool:
        return any(getattr(self, name, None) is not None for name in (op.name, op.kind))

    def _has_own(self, op: Op) -> bool:
        """Whether no subclass has a kernel of this name in place of ours."""
        own = getattr(type(self), op.name, None)
        if own is None and getattr(self, op.kind, None) is not None:
            return False
        return own is getattr(OptimizedBackend, op.name, None) and op.name not in vars(self)


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    reference.is_within: small_index.is_within,
    reference.bisected: bisection.bisected,
    reference.compressed: bisection.compressed,
    reference.drawn: bisection.drawn,
    reference.write_places: bisection.write_places,
    np.bincount: bisection.counted,
    np.copyto: movement.written,
    reference.write_positions: bisection.write_positions,
}
#: NumPy's functions whose results are those of our loops, bit for bit.
_EXACT: Any = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative
}  # fmt: skip


def _or_else(
    make: Callable[[], Kernel], plan: Plan, otherwise: Callable[[Exception], Kernel]
) -> Kernel:
    """A compiled kernel, or another where the definition, perhaps a student's, is not compiled."""
    try:
        kernel = make()
    except UNCOMPILED as error:
        return otherwise(error)
    gives_arrays = getattr(kernel, "gives_arrays", False)
    is_small = all(o.size < _COMPILED_AT_ONCE for o in plan.operands if isinstance(o, TensorMeta))
    if is_small and (gives_arrays or getattr(plan.op.scalar, "others", ())):
        return kernel
    late: Any = compiled_or(kernel, otherwise)
    late.gives_arrays = gives_arrays
    return late


def _exp2(b):  # type: ignore[no-untyped-def]
    return math.exp2(b)


def _fused(program: Program, plan: Plan) -> Kernel:
    """The loop of a program, for the plan's shapes."""
    given = *_real_operands(plan), _bools(plan)
    if program.others:
        return specialize_several(program, *given, {}) or one_by_one(program, *given)
    return specialize(program, *given)


def _summed(program: Program, plan: Plan) -> Kernel:
    """The loop that adds up what a program gives, for the plan's shapes."""
    return program_sums.specialize(
        program, *_real_operands(plan), **plan.params, bools=_bools(plan)
    )


def _real_operands(plan: Plan) -> tuple[np.dtype[Any], tuple[tuple[int, ...] | None, ...]]:
    """The dtype of the operands that are not bool, and all shapes; None for a number."""
    real = next(o.dtype for o in plan.operands if not isinstance(o, type) and o.dtype is not bool_)
    return real.dtype, tuple(None if isinstance(o, type) else o.shape for o in plan.operands)


def _power(plan: Plan, power: Kernel) -> Kernel:
    """A power, which for an exponent of 3 is two products, and for a base of 2 vector code."""
    base, exponent = plan.operands
    real = plan.meta.dtype.dtype
    tensors = [o.dtype.dtype for o in plan.operands if isinstance(o, TensorMeta)]
    if tensors != [real] or real not in (_F32, _F64):
        return power
    if isinstance(base, TensorMeta):
        steps = Step(ops.mul, ("x0", "x0")), Step(ops.mul, ("t0", "x0"))
        cube = specialize(Program(1, steps, "t1", False), real, (base.shape,))
        return lambda a, b: cube(a) if b == 3 else power(a, b)
    if base is not float:
        return power
    assert isinstance(exponent, TensorMeta)
    of_two = specialize(_exp2, real, (exponent.shape,))
    return lambda a, b: of_two(b) if a == 2 else power(a, b)


def _bools(plan: Plan) -> frozenset[int]:
    """The positions of the operands that are bool."""
    return frozenset(
        i for i, o in enumerate(plan.operands) if isinstance(o, TensorMeta) and o.dtype is bool_
    )


def _winograd_where_it_fits(m: int, x: Array, w: Array, b: Array | None = None, **p: Any) -> Array:
    fits = w.shape[2:] == (3, 3) and p["groups"] == 1 and p["padding"] == (1, 1)
    fits = fits and p["stride"] == (1, 1) and p["dilation"] == (1, 1)
    if fits and pays(m, x.shape, w.shape[0], x.itemsize):
        return conv2d_winograd(x, w, b, m=m)
    return conv2d.conv2d(x, w, b, **p)


def _is_common(a: Array) -> bool:
    """Whether elements are of a type whose kernels are compiled: a float, or int64."""
    return _is_float(a) or a.dtype == np.int64


def _has_rows(a: Array) -> bool:
    """Whether `reductions` takes it; of no elements there is none to begin with, as integers do."""
    return _is_float(a) or (a.dtype == np.int64 and a.size > 0)


def _is_float(a: Array) -> bool:
    return a.dtype is _F32 or a.dtype is _F64
