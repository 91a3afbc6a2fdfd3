"""The gradient of a tensor from those of its slices, put together once all of them are there.

Zeros around each of the n parts of a split, added up one by one, would cost n times the whole.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.backends import reference
from tinytorch.dispatch import apply, wrap
from tinytorch.functions.copies import LARGE
from tinytorch.functions.movement import cat, transpose, unslice
from tinytorch.history import Record
from tinytorch.state import STATE, is_recording, no_mode_active

Tensor = Any
Part = tuple[Record, Tensor]  # of a slice, and its gradient


def may_wait(record: Record, g: Tensor) -> bool:
    """Whether nobody follows what is computed but a program of ops, as in `tinytorch.replay`, and
    the gradient is as the slice was."""
    if is_recording():
        return False
    mode = STATE.get().mode
    if mode is not None:
        return mode.fused and g.meta == record.meta
    return isinstance(g._data, np.ndarray) and g.meta is record.meta


def joined(whole: Tensor | None, parts: list[Part]) -> Tensor:
    """The gradient of what the parts were taken from, in memory of its own.

    Args:
        whole: what is to be added to it; stays as it is.
        parts: at least one, all of the same tensor.
    """
    if whole is None and (out := _side_by_side(parts)) is not None:
        return out
    if not no_mode_active():
        around = [_within_zeros(part) for part in parts]
        return reduce(partial(apply, ops.add), around if whole is None else [whole, *around])
    if whole is None:
        out, rest = _within_zeros(parts[0]), parts[1:]
    else:
        out, rest = wrap(np.array(whole._data), whole.meta), parts
    for record, g in rest:
        part = reference.slice_(out._data, **record.params)
        np.add(part, g._data, part)
    return out


def _within_zeros(part: Part) -> Tensor:
    record, g = part
    return unslice(g, record.metas[0].shape, record.params["bounds"])


def _side_by_side(parts: list[Part]) -> Tensor | None:
    """The parts joined along the one dimension that was cut; None if they are not all there is."""
    meta = parts[0][0].metas[0]
    if len(parts) == 1 or sum([g.meta.size for _, g in parts]) != meta.size or not meta.size:
        return None
    shape, cut = meta.shape, -1
    placed: list[tuple[int, Tensor]] = []
    for record, g in parts:
        bounds = record.params["bounds"]
        for dim, (_, _, step) in enumerate(bounds):
            if g.meta.shape[dim] == shape[dim] and step == 1:
                continue
            if cut not in (-1, dim) or step != 1:
                return None
            cut = dim
        placed.append((bounds[cut][0], g))
    placed.sort(key=lambda each: each[0])
    end = 0
    for start, g in placed:
        if start != end:
            return None
        end += g.meta.shape[cut]
    pieces = [g for _, g in placed]
    are_columns = meta.size == len(pieces) * math.prod(shape[:cut])
    if not are_columns or meta.nbytes < LARGE:
        return cat(pieces, cut)
    # one element of each row at a time would take as many walks through all of the memory
    rows = cat([transpose(g, 0, cut) for g in pieces], 0)
    return apply(ops.copy, transpose(rows, 0, cut))
