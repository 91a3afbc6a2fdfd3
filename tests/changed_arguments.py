"""Calls with one argument at a time made another, or with an option more; and what they give.

For tests that compare all functions with PyTorch's, or with themselves in another mode.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import tinytorch

#: What PyTorch says where it lacks a kernel, a type or a default, and nothing is wrong.
NO_KERNEL = (
    "not implemented for",
    "dtype",
    "data type",
    "scalar type",
    "Long",
    "int64_t",
    "long int",
    "Integral",
    "Integer",
    "must be int",
    "must be Number",
    "must be tuple of ints",
    "invalid combination of arguments",
    "missing 1 required positional argument",
)
#: Functions whose results are drawn at random, or have no numbers that mean anything.
DRAWN = (
    *("rand", "normal", "bernoulli", "multinomial", "dropout", "rrelu", "poisson", "gumbel"),
    *("empty", "trunc_normal"),
)
#: Errors that say what broke, and not what was wrong.
CRUDE = (AttributeError, AssertionError, KeyError, ZeroDivisionError, UnboundLocalError)


def _arrays(array: Any) -> Iterator[tuple[str, Any]]:
    """An array with other elements, and in other shapes."""
    odd = (np.nan, np.inf, -3.0, 0.0, 2.0) if array.dtype.kind == "f" else (-1, 10**6, -(10**6), 0)
    if array.dtype.kind in "fi" and array.size:
        for value in odd:
            other = array.copy()
            other.flat[0] = value
            yield f"an element {value}", other
    yield "a dimension more in front", array[None].copy()
    if array.ndim:
        yield "a dimension more at the end", array[..., None].copy()
        yield "no rows", array[:0].copy()
        yield "no columns", array[..., :0].copy()
        yield "one column", array[..., :1].copy()
        yield "a column less", array[..., :-1].copy()
    if array.ndim > 1 and array.shape[0]:
        yield "the first row", array[0].copy()
    if array.size:
        yield "a number", np.asarray(array.flat[0])


def changed(value: Any) -> Iterator[tuple[str, Any]]:
    """Arguments in the place of one, each with what was done to it."""
    if isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((repr(n), n) for n in (-1, -2, -100, 100, 0, 2.5))
    elif isinstance(value, float):
        yield from ((repr(n), n) for n in (float("nan"), float("inf"), -1.0, 0.0, 1.0, 2.0))
    elif isinstance(value, str):
        yield "another word", "no such word"
    elif isinstance(value, (tuple, list)):
        kind = type(value)
        for i, each in enumerate(value):
            for what, other in changed(each):
                yield f"[{i}] {what}", kind([*value[:i], other, *value[i + 1 :]])
        yield "nothing in it", kind()
        yield "one more", kind([*value, *value[:1]])
        yield "one less", value[:-1]


def error_of(run: Callable[[], Any]) -> Exception | None:
    """What a call raises, if it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run()
    except Exception as error:  # whatever PyTorch raises
        return error
    return None


def changed_calls(base: Any) -> Iterator[tuple[str, Any]]:
    """A call of `benchmarks/op_arguments.py` with one of its arguments changed, and what it is."""
    for i, value in enumerate(base.args):
        for what, other in changed(value):
            args = (*base.args[:i], other, *base.args[i + 1 :])
            yield f"argument {i}: {what}", type(base)(args, base.options)
    for name, value in base.options.items():
        for what, other in changed(value):
            yield f"{name}: {what}", type(base)(base.args, {**base.options, name: other})


def calls_with_options(base: Any, function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """A call with one argument more, or another one, of those that have a default."""
    for i, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.default is parameter.empty:
            continue
        for what, value in _in_place_of(parameter.default, base):
            if i < len(base.args):
                call = type(base)((*base.args[:i], value, *base.args[i + 1 :]), base.options)
            else:
                call = type(base)(base.args, {**base.options, parameter.name: value})
            yield f"{parameter.name}={what}", call


#: What the strings among the options of all functions can be.
WORDS = (
    *("sum", "none", "mean", "batchmean", "tanh", "reflect", "replicate", "circular", "nearest"),
    *("bilinear", "bicubic", "left", "lower", "floor", "trunc", "fro", "amax", "prod", "linear"),
)


def _in_place_of(default: Any, base: Any) -> list[tuple[str, Any]]:
    values: list[Any] = [0, 1, 2, -1, 0.5, 2.0, True, (0,), (1, 0), (2, 2), "floor", "sum"]
    if isinstance(default, bool):
        values = [not default]
    elif isinstance(default, str):
        values = list(WORDS)
    elif isinstance(default, (int, float)):
        values = [0, 1, 2, 3, -1, -2, 0.5, 2.5, -0.5]
    elif isinstance(default, tuple):
        values = [(0,), (1,), (0, 1), 1, 2]
    named = [(repr(v), v) for v in values]
    return [*named, *_arrays_for(base)] if default is None else named


def _arrays_for(base: Any) -> Iterator[tuple[str, Any]]:
    """Arrays as weights, masks and the like have them: along the rows, the columns, of all."""
    first = next((a for a in base.args if isinstance(a, np.ndarray)), np.ones(4, np.float32))
    rng = np.random.default_rng(1)
    for shape in dict.fromkeys((first.shape[:1], first.shape[1:2], first.shape[-1:], first.shape)):
        yield f"positive {shape}", np.abs(rng.standard_normal(shape)).astype(first.dtype)
    yield f"bool {first.shape}", rng.standard_normal(first.shape) > 0


def tensors_in(
    benchmark: Any, call: Any, *, ours: bool, requires_grad: bool = False
) -> tuple[Any, Any]:
    """The arguments and the options of a call, with tensors of one of two libraries for arrays."""
    library: Any = tinytorch if ours else torch
    make = partial(benchmark.ours_of if ours else benchmark.theirs_of, requires_grad=requires_grad)
    call = copy.deepcopy(call)
    options = {k: benchmark.as_tensors(v, make, library) for k, v in call.options.items()}
    return benchmark.as_tensors(call.args, make, library), options


def function_in(benchmark: Any, name: str, *, ours: bool) -> Callable[..., Any]:
    """The function of this name of one of two libraries."""
    library = benchmark.OURS if ours else (torch, torch.nn.functional)
    function: Callable[..., Any] = benchmark.of_library(name, *library)
    return function


def run_in(benchmark: Any, name: str, call: Any, *, ours: bool) -> Any:
    """What a call gives in one of two libraries."""
    args, options = tensors_in(benchmark, call, ours=ours)
    return function_in(benchmark, name, ours=ours)(*args, **options)


def gradients_of(benchmark: Any, out: Any, args: Any, options: Any, *, ours: bool) -> list[Any]:
    """The gradients of the arguments, for the same gradients of the results in both libraries."""
    leaves = [
        t for t in benchmark.tensors([*args, *options.values()]) if t.requires_grad and t.is_leaf
    ]
    outs = [t for t in benchmark.tensors(out) if t.requires_grad]
    if not leaves or not outs:
        return []
    rng = np.random.default_rng(2)
    library: Any = tinytorch if ours else torch
    gradients = benchmark.our_gradients if ours else benchmark.their_gradients
    seeds = [library.tensor(rng.standard_normal(tuple(t.shape)), dtype=t.dtype) for t in outs]
    return list(gradients(outs, leaves, seeds))


def arrays_of(tensors: list[Any]) -> list[Any]:
    """Their values; None where a gradient is missing."""
    dense = [t.to_dense() if isinstance(t, torch.Tensor) and t.is_sparse else t for t in tensors]
    return [None if t is None else np.array(t.detach().numpy()) for t in dense]


def difference(found: list[Any], wanted: list[Any], rtol: float, atol: float) -> str:
    """Where two lists of arrays differ, in words; no gradient is the same as one of zeros."""
    if len(found) != len(wanted):
        return f"{len(found)} tensors, not {len(wanted)}"
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a is None or b is None:
            if (given := b if a is None else a) is not None and given.any():
                return f"tensor {i}: a gradient, or none"
        elif a.shape != b.shape or a.dtype != b.dtype:
            return f"tensor {i}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        elif not np.allclose(a, b, rtol, atol, equal_nan=True):
            at = np.argmax(~np.isclose(a, b, rtol, atol, equal_nan=True))
            return f"tensor {i} of {a.shape}: element {at} is {a.flat[at]}, not {b.flat[at]}"
    return ""
