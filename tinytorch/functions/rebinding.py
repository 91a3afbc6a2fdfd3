"""In-place writes that autograd records: a tensor takes over the value and history of another.

    out[t] = h      # out's history is an update of the slice, of its old history and that of h

`inplace` has the methods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import SCALAR_TYPES, active_modes, apply, is_tensor, wrap
from tinytorch.dtypes import float32, float64, is_narrower, meta_of_array, tensor_meta
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions import scattering, subscripts
from tinytorch.history import Record, keeps_gradient, owner_of, write_clock
from tinytorch.jit.buffers import pool
from tinytorch.state import STATE, is_recording, ops_are_unseen

Tensor = Any
Compute = Callable[..., Tensor]


def records(*values: Any) -> bool:
    """Whether a computation with these is being recorded."""
    return is_recording() and any([is_tensor(v) and v._requires_grad for v in values])


def rebind(x: Tensor, name: str, compute: Compute, *args: Any, **options: Any) -> None:
    """Make `compute(x, *args, **options)` the value and history of x itself.

    An operand that is x stands for its old value. What used x before is unaffected: its history
    goes on from the old value. A gradient that reads that value raises, as it would be looked for
    in x.

    Raises:
        AutogradError: x is a leaf that requires a gradient, or its memory is shared.
    """
    _check_may_be_rebound(x, name)
    old = wrap(x._data, x.meta)  # x is about to be another; this one stays
    if x.history is not None:
        old.requires_grad, old.history = True, x.history
    args = tuple([old if v is x else v for v in args])
    options = {k: old if v is x else v for k, v in options.items()}
    new = fitted(x, name, compute(old, *args, **options))
    if new.history is None or new.history.op.view or np.may_share_memory(_array(new), _array(old)):
        new = apply(ops.copy, new)
    x._data, before, x.history = new._data, x.history, new.history
    x._requires_grad = new.requires_grad
    _note_rebound(x, before)


def _check_may_be_rebound(x: Tensor, name: str) -> None:
    if x.requires_grad and x.history is None:
        raise AutogradError(
            f"in-place {name} on a leaf that requires a gradient (shape {x.shape}) would falsify "
            f"the recorded history; write `t = t + x` instead, or update it under `with no_grad():`"
        )
    if not _is_private(x):
        raise AutogradError(
            f"in-place {name} on a tensor of shape {x.shape} that shares memory with another "
            f"tensor or array (it is a view, or has one) cannot be recorded; write into a copy, "
            f"t = t.clone(), or compute a new tensor"
        )


def _note_rebound(x: Tensor, before: Record | None) -> None:
    """x has another value and history than before."""
    write_clock.write(_array(x))  # so that gradients that kept x for its old value notice
    if x.history is not None:
        x.history.clock = write_clock.now  # its own is the new one
        hooks = before.hooks if before is not None else None
        if hooks and keeps_gradient(hooks):
            x.history.hooks = [hooks.pop()]


def rebind_part(x: Tensor, index: Any, value: Any) -> bool:
    """`rebind` for x[index] = value, where that is a slice along one dimension: it is written in
    x's memory, and nothing else is moved. Whether it was done."""
    if not ops_are_unseen(STATE.get()):
        return False
    meta, taken = x.meta, subscripts.part_taken(x, index)
    if taken is None or meta.dtype not in (float32, float64) or _is_kept(x):
        return False
    bounds, shape = taken
    sizes = tuple([end - start for start, end in bounds])
    dims = [d for d, n in enumerate(meta.shape) if sizes[d] != n]
    if len(dims) > 1:
        return False
    source, data = None, value
    if type(value) not in SCALAR_TYPES:
        part = scattering.as_part(scattering.as_value(x, value), shape, bounds)
        data, source = part._data, part.history or (part if part._requires_grad else None)
    if source is None and not x._requires_grad:
        return False
    _check_may_be_rebound(x, "t[...] = value")
    dim, before = dims[0] if dims else 0, x.history
    first = np.array(bounds[dim][0])
    start = wrap(first, meta_of_array(first))
    x._data[tuple([slice(*bound) for bound in bounds])] = data
    x.history = Record(
        ops.dynamic_update_slice,
        {"dim": dim},
        (before, source, None),
        (None, None, start),  # all that its gradients read
        (meta, tensor_meta(sizes, meta.dtype), start.meta),
        meta,
    )
    x._requires_grad = True
    _note_rebound(x, before)
    return True


def _is_kept(x: Tensor) -> bool:
    """Whether its history keeps its values for a gradient, which would be lost."""
    record = x.history
    while type(record) is Record:
        if record.output is not None:
            return True
        record = record.edges[0] if record.op.view else None
    return False


def _array(x: Tensor) -> Any:
    data = x._data
    return data if isinstance(data, np.ndarray) else data.base  # a traced tensor's memory


def _is_private(x: Tensor) -> bool:
    """Nobody but x holds its memory, nor the results that gradients keep of it.

    What is read-only stands for memory of another, even where it is a copy. Counted are the
    references known here: x's own, those of its history, and that of the pool which recycles the
    memory of large results. The argument `(data,)[0]` is one in every version of Python.
    """
    for mode in active_modes():
        if (answer := mode.is_private(x)) is not None:
            return answer
    data = x._data
    if not data.flags.writeable:
        return False
    known_data, known_owner = 3, 3  # x's, the name `data` and the argument; base, `owner`, argument
    owner = owner_of(data)
    record = x.history
    while type(record) is Record:
        if record.output is data:
            known_data += 1
        elif record.output is owner:
            known_owner += 1
        elif record.output is not None and owner_of(record.output) is owner:
            known_owner += sys.getrefcount(record.output) <= 2  # the record's, and the argument
        record = record.edges[0] if record.op.view else None
    if owner is data:
        return sys.getrefcount((data,)[0]) <= known_data + 1  # the name `owner`
    known_owner += pool.holds(owner)
    return sys.getrefcount((data,)[0]) <= known_data and sys.getrefcount((owner,)[0]) <= known_owner


def fitted(x: Tensor, name: str, value: Tensor) -> Tensor:
    """The value in x's dtype; of x's shape, or an error."""
    if value.meta is x.meta:
        return value
    if value.shape != x.shape:
        raise ShapeError(
            f"in-place {name}: a result of shape {value.shape} does not fit into a tensor of shape "
            f"{x.shape}"
        )
    if is_narrower(x.dtype, value.dtype):
        raise DTypeError(
            f"in-place {name}: a {value.dtype.name} result does not fit into a {x.dtype.name} "
            f"tensor; compute a new tensor, or use t.to(dtype)"
        )
    return value.to(x.dtype)
