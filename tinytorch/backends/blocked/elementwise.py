"""Elementwise ops compiled from their definition in the op table, one by one or fused.

An op of the table is a function of Python scalars. Compiled, it becomes a machine-code function,
and a loop around it a kernel. The loop of a *fused* kernel calls one such function with the result
of another: what NumPy does in two passes over memory, with an intermediate array as large as the
data, it does in one pass with the intermediate value in a register.

    relu_of_sum = fuse(OPS["relu"], OPS["add"])      # relu(a + b), a and b read once
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from tinytorch.backends.naive import NaiveBackend
from tinytorch.dtypes import Array
from tinytorch.jit.buffers import empty
from tinytorch.jit.library import kernel
from tinytorch.jit.parallel import shared
from tinytorch.op import Op

Scalar = Callable[..., Any]
#: What numba raises for a definition that it cannot compile.
UNCOMPILED = (TypeError, RecursionError, NumbaError, UnsupportedBytecodeError)


def _loop(scalar: Scalar, arity: int) -> Callable[..., None]:
    """A loop over flat arrays that calls the compiled `scalar`; large ones threads share."""

    @kernel
    def loop1(a: Array, out: Array) -> None:
        for i in range(out.size):
            out[i] = scalar(a[i])

    @kernel
    def loop2(a: Array, b: Array, out: Array) -> None:
        for i in range(out.size):
            out[i] = scalar(a[i], b[i])

    @kernel
    def loop3(a: Array, b: Array, c: Array, out: Array) -> None:
        for i in range(out.size):
            out[i] = scalar(a[i], b[i], c[i])

    loops = {
        1: shared(loop1, "a[:], out[:]"),
        2: shared(loop2, "a[:], b[:], out[:]"),
        3: shared(loop3, "a[:], b[:], c[:], out[:]"),
    }
    return loops[arity]


def _over_same_shape(scalar: Scalar, arity: int) -> Callable[..., Array]:
    """A function of arrays of one shape and dtype, from a compiled function of scalars."""
    loop = _loop(scalar, arity)

    def run(*operands: Array) -> Array:
        out = empty(operands[0].shape, operands[0].dtype)
        loop(out.size, *[x.ravel() for x in operands], out.ravel())
        return out

    return run


def _over_arrays(scalar: Scalar, arity: int) -> Callable[..., Array]:
    """A function of arrays that broadcast, from a compiled function of scalars."""
    loop, over_same_shape = _loop(scalar, arity), _over_same_shape(scalar, arity)

    def run(*operands: Any) -> Array:
        if all(_as_first(x, operands[0]) for x in operands):
            return over_same_shape(*operands)
        dtype = np.result_type(*(x for x in operands if getattr(x, "dtype", None) != np.bool_))
        shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
        out = np.empty(shape, dtype)
        # One loop for all cases: an operand of another shape is first written out in full.
        flat = [np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(-1) for x in operands]
        loop(out.size, *flat, out.reshape(-1))
        return out

    return run


def _as_first(x: Any, first: Any) -> bool:
    return type(x) is np.ndarray and x.shape == first.shape and x.dtype == first.dtype != np.bool_


def _compiled(op: Op) -> Scalar:
    if op.scalar is None:
        raise ValueError(f"{op.name} is not an elementwise op: it has no scalar definition")
    return kernel(op.scalar)


@cache
def compile_op(op: Op) -> Callable[..., Array]:
    """The kernel of an elementwise op of one to three inputs, for arrays of one float dtype."""
    return _or_looped(op, _over_arrays(_compiled(op), len(op.inputs)))


@cache
def compile_same_shape(op: Op) -> Callable[..., Array]:
    """`compile_op` for arrays that all have the same shape and dtype."""
    return _or_looped(op, _over_same_shape(_compiled(op), len(op.inputs)))


def _or_looped(op: Op, run: Callable[..., Array]) -> Callable[..., Array]:
    return compiled_or(run, partial(looped, op))


def compiled_or(
    run: Callable[..., Any], otherwise: Callable[[Exception], Callable[..., Any]]
) -> Callable[..., Any]:
    """`run`, which compiles when it is called; from then on `otherwise`, where it cannot."""

    def run_or(*operands: Any, **params: Any) -> Any:
        nonlocal run
        try:
            return run(*operands, **params)
        except UNCOMPILED as error:  # the definition may be a student's
            run = otherwise(error)
            return run(*operands, **params)

    return run_or


def looped(op: Op, error: Exception) -> Callable[..., Array]:
    """The naive backend's loop over a definition that cannot be compiled, and a warning."""
    lines = [x for x in str(error).split("\n") if x.strip() and not x.startswith("Failed in")]
    warnings.warn(
        f"{op.name} runs as a slow loop in Python, as its definition cannot be compiled "
        f"({lines[0] if lines else type(error).__name__}): write it with arithmetic, comparisons, "
        f"`math` and functions of numbers",
        RuntimeWarning,
        stacklevel=2,
    )
    return partial(NaiveBackend().elementwise, op)


@cache
def fuse(outer: Op, inner: Op) -> Callable[..., Array]:
    """The kernel of `outer(inner(...))` in one pass; `outer` has one input.

    `_compiled(op)` is the machine code of an op's scalar function; `kernel(function)` compiles a
    function that calls such; `_over_arrays(scalar, arity)` puts a loop around one with that many
    inputs.

    Raises:
        ValueError: `outer` has more inputs than one.
    """
    if len(outer.inputs) != 1:
        raise ValueError(f"{outer.name} has {len(outer.inputs)} inputs; fuse an op of one around")
    last, first = _compiled(outer), _compiled(inner)
    return _over_arrays(kernel(lambda *xs: last(first(*xs))), len(inner.inputs))
