"""From a trace to a function of arrays that calls the kernels of a backend and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.replay.fusion import LARGEST, fuse_steps
from tinytorch.replay.joining import join_loops, part_of
from tinytorch.replay.packing import pack_weights
from tinytorch.replay.products import join_products
from tinytorch.replay.slices import slice_early, with_kernels
from tinytorch.replay.trace import Guard, NotReplayable, Slot, Step, Trace

CONSTANTS = 2**18  # bytes that a program may keep

#: What short kernels of the reference do, written in a program in place of a call: a form of their
#: operands and of one value, and that value.
_INLINE: dict[Any, Callable[..., tuple[str, Any]]] = {
    reference.reshape: lambda shape: ("{0}.reshape({1})", shape),
    reference.permute: lambda dims: ("{0}.transpose({1})", dims),
    reference.slice_: lambda bounds: ("{0}[{1}]", (*reference.slices(bounds), ...)),
    reference.cat: lambda dim: ("in_rows(concatenate(({0},), {1}))", dim),
    reference.copy: lambda: ("{0}.copy()", None),
    reference.detach: lambda: ("{0}.view()", None),
    part_of: lambda i: ("{0}[{1}]", i),
}

_VIEWS = frozenset((ops.expand, ops.slice_, ops.permute))
_BY_INDEX = frozenset((ops.gather, ops.scatter))


def compile_trace(
    trace: Trace,
    inputs: Sequence[int],
    outputs: Sequence[int],
    guards: Sequence[Guard],
    backend: ComputeBackend,
    given: Sequence[int] = (),
) -> Callable[..., Any]:
    """A function of tensors that returns the array of the output, or a tuple of several.

    It returns None where a guard does not hold. Creation ops, and views of constants, run once,
    here; an output that is their result is a copy of it.

    Args:
        inputs: the slots of the tensors.
        given: slots that are handed over as arrays, after the tensors; they are not computed.
    """
    arrays = [*outputs, *(g.slot for g in guards)]
    steps = join_products(trace, trace.needed(arrays, given), arrays)
    steps = fuse_steps(slice_early(trace, steps, arrays, backend.fusible), arrays, backend.fusible)
    steps = join_loops(trace, steps, arrays, backend.fusible)
    names: dict[str, Any] = {"copy": np.array, "concatenate": np.concatenate, "empty": np.empty}
    names["in_rows"] = np.ascontiguousarray
    names |= {f"t{index}": array for index, array in trace.constants.items()}
    created = [s for s in steps if not s.args]
    constants = {*trace.constants, *(s.out for s in created)}
    kept = [a.nbytes for a in trace.constants.values()] + [s.plan.meta.nbytes for s in created]
    if sum(kept) > CONSTANTS:
        raise NotReplayable("large arrays that are the same at each call would be kept")
    body = [f"t{n} = x{n}._data" for n in inputs]
    asked: dict[int, list[str]] = {}
    for i, (index, condition, args) in enumerate(guards):
        names[f"g{i}"], names[f"a{i}"] = backend.replacement_of(condition), args
        asked.setdefault(index, []).append(f"if not g{i}(t{index}, *a{i}): return None")
    body += [line for index in (*inputs, *given) for line in asked.pop(index, ())]
    steps, kernels, cut = with_kernels(steps, backend)
    # but for what a result is a view of
    cut -= constants | {trace.root(n) for n in outputs}
    body += [f"t{n} = in_rows(t{n})" for n in sorted(cut)]
    steps, kernels = _without_views(*_views_at_once(steps, kernels), arrays)
    steps, kernels = pack_weights(trace, steps, kernels, backend)
    last = {index: i for i, step in enumerate(steps) for index in step.reads}
    copied = _copied_views(steps, kernels, arrays)
    for i, (step, kernel) in enumerate(zip(steps, kernels, strict=True)):
        if step.out in constants or (step.plan.op.view and constants.issuperset(step.reads)):
            constants.add(step.out)
            array = kernel(*[names[f"t{n}"] for n in step.reads], **step.params)
            names[f"t{step.out}"] = array.copy() if step.out in copied else array
            continue
        names[f"k{i}"] = kernel
        values = [_argument(a, names) for a in step.args]
        inline = _INLINE.get(kernel)
        if step.out in copied and step.plan.op is ops.expand:
            names[f"p{i}"] = step.plan.meta.shape, step.plan.meta.dtype.dtype
            body += [f"t{step.out} = empty(*p{i})", f"t{step.out}[...] = {values[0]}"]
        elif inline is not None:
            form, names[f"p{i}"] = inline(**step.params)
            form += ".copy()" * (step.out in copied)
            body.append(f"t{step.out} = {form.format(', '.join(values), f'p{i}')}")
        else:
            for name, value in () if getattr(kernel, "flat", False) else step.params.items():
                names[f"p{i}_{name}"] = value
                values.append(f"{name}=p{i}_{name}")
            copy = ".copy()" * (step.out in copied)
            body.append(f"t{step.out} = k{i}({', '.join(values)}){copy}")
        body += asked.pop(step.out, [])
        dead = {n for n in step.reads if last[n] == i} - {*constants, *outputs}
        if dead and i < len(steps) - 1:
            body.append(f"del {', '.join(f't{n}' for n in sorted(dead))}")
    body += [line for lines in asked.values() for line in lines]  # of constants
    results = [f"copy(t{n})" if trace.root(n) in constants else f"t{n}" for n in outputs]
    body.append(f"return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ',)'}")
    parameters = ", ".join([*(f"x{n}" for n in inputs), *(f"t{n}" for n in given)])
    source = f"def program({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, "<tinytorch program>", "exec"), names)
    program: Callable[..., Any] = names.pop("program")  # a function refers to its globals
    return program


def _views_at_once(steps: Sequence[Step], kernels: Sequence[Any]) -> tuple[list[Step], list[Any]]:
    """Let views of windows be made in one step of what they are views of, through other views.

    The windows of anything but the last dimension are between two views that turn dimensions. (A
    reshape or an expand stays as it is: `_without_views` and copies look at what is before it.)
    """
    chains: dict[int, list[tuple[Step, Any]]] = {}  # of views, by the slot of the last
    found, made = [], []
    for step, kernel in zip(steps, kernels, strict=True):
        if step.plan.op.view:
            ((first, _), *_) = chain = [*chains.get(step.reads[0], ()), (step, kernel)]
            chains[step.out] = chain
            are_windows = len(chain) > 1 and any(s.plan.op is ops.unfold for s, _ in chain)
            may_end = step.plan.op in (ops.permute, ops.slice_, ops.unfold)
            if may_end and are_windows and (at_once := _at_once(chain)) is not None:
                step, kernel = Step(step.plan, first.args, step.params, step.out), at_once
        found.append(step)
        made.append(kernel)
    return found, made


def _at_once(chain: Sequence[tuple[Step, Any]]) -> Any:
    """The kernel that makes a chain of views as one; None if there are no elements, or a copy."""

    def one_by_one(array: Array, **_: Any) -> Array:
        for step, kernel in chain:
            array = kernel(array, **step.params)
        return array

    (x,) = chain[0][0].plan.operands
    assert isinstance(x, TensorMeta)
    whole = np.empty(x.shape, x.dtype.dtype)
    view = one_by_one(whole)
    if not np.may_share_memory(whole, view):
        return None
    start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return reference.view_maker(view.shape, view.strides, start, one_by_one)


def _without_views(
    steps: Sequence[Step], kernels: Sequence[Any], kept: Sequence[int]
) -> tuple[list[Step], list[Any]]:
    """Let steps read what views are of, where their kernels take that as well.

    An index that is a line is taken as it was before it was expanded; and by a kernel that is
    `flat`, which reads its arrays in C order, what is in it as it was before it was reshaped.
    """
    made, pairs = {step.out: step for step in steps}, []

    def before_reshapes(arg: Any, must_be_in_order: bool = True) -> Any:
        before, is_in_order = arg, True
        while type(before) is Slot and (step := made.get(before.index)) is not None:
            is_in_order = not step.plan.op.view
            if step.plan.op is not ops.reshape:
                break
            (before,), (x,) = step.args, step.plan.operands
            is_in_order = isinstance(x, TensorMeta) and x.ndim <= 1  # if it is an input
        return before if is_in_order or not must_be_in_order else arg

    for step, kernel in zip(steps, kernels, strict=True):
        args = step.args
        of_line: Any = getattr(kernel, "of_line", None)
        index = made.get(args[1].index) if of_line else None
        if index and index.plan.op is ops.expand and _is_line(index, step.params["dim"]):
            kernel = of_line()
            args = (args[0], before_reshapes(index.args[0], False), *args[2:])
        if getattr(kernel, "flat", False):
            args = tuple(map(before_reshapes, args))
        pairs.append((Step(step.plan, args, step.params, step.out), kernel))
    read, used = set(kept), []
    for step, kernel in reversed(pairs):
        if step.out in read or not step.plan.op.view:
            read.update(step.reads)
            used.append((step, kernel))
    return [step for step, _ in reversed(used)], [kernel for _, kernel in reversed(used)]


def _is_line(expansion: Step, dim: int) -> bool:
    """Whether what is expanded has elements along `dim` alone, and all of them."""
    (x,), shape = expansion.plan.operands, expansion.plan.meta.shape
    assert isinstance(x, TensorMeta)
    sizes = (1,) * (len(shape) - x.ndim) + x.shape
    return sizes[dim] == shape[dim] == x.size


def _copied_views(steps: Sequence[Step], kernels: Sequence[Any], kept: Sequence[int]) -> set[int]:
    """The small views that are copied as they are made.

    A compiled kernel takes arrays in C order. Of any other it would find out by an error, at each
    call, and then copy it. So what such kernels alone read is in order from the first.
    """
    copied = {
        step.out
        for step in steps
        if step.plan.op in _VIEWS
        and step.out not in kept
        and step.plan.meta.nbytes <= LARGEST
        and not _is_in_order(step)
    }
    for step, kernel in zip(steps, kernels, strict=True):
        op = step.plan.op
        is_compiled = op.kind in ("elementwise", "reduction", "index") or op in _BY_INDEX
        if not (is_compiled and isinstance(kernel, FunctionType)):
            copied.difference_update(step.reads)
    return copied


def _is_in_order(step: Step) -> bool:
    """Whether the view is in C order if what it views is."""
    (x,), shape = step.plan.operands, step.plan.meta.shape
    assert isinstance(x, TensorMeta)
    if step.plan.op is ops.expand:
        return False
    if step.plan.op is ops.permute:
        dims = [d for d in step.params["dims"] if x.shape[d] != 1]
        return dims == sorted(dims)
    steps = {by for (_, _, by), n in zip(step.params["bounds"], shape, strict=True) if n != 1}
    first = next((d for d, n in enumerate(shape) if n != 1), len(shape))
    return steps <= {1} and shape[first + 1 :] == x.shape[first + 1 :]


def _argument(value: Any, names: dict[str, Any]) -> str:
    if type(value) is Slot:
        return f"t{value.index}"
    name = f"c{len(names)}"
    names[name] = value
    return name
