"""Steps that move values: copies between views of any strides, and what is made of such copies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tinytorch.graph.compiler.native.code import Code, real_of
from tinytorch.graph.compiler.native.loop_text import emit
from tinytorch.graph.compiler.native.loops import Loop, Operand
from tinytorch.graph.layout import StridedView


def copy(code: Code, source: Operand, target: StridedView) -> None:
    """Write the elements of one view (or a number, everywhere) to another, of any strides."""
    loop = Loop(target.shape)
    if isinstance(source, StridedView) and source.dtype is target.dtype:
        loop.store(source, target)
    else:
        loop.store(loop.convert(source, target.dtype), target)
    loop.comments = [code.comment]
    emit(code, loop)


def contiguous(code: Code, view: StridedView) -> StridedView:
    """The view, or a copy of its elements in C order that only this step can use."""
    if view.is_contiguous:
        return view
    target = code.temporary(view.shape, view.dtype)
    copy(code, view, target)
    return target


def copy_to(
    code: Code, source: StridedView, target: StridedView, dim: int, start: StridedView
) -> None:
    """Write a part, in C order, to where `start` says along a dimension of a whole in C order."""
    outer, inner = math.prod(source.shape[:dim]), math.prod(source.shape[dim:])
    row = math.prod(target.shape[dim + 1 :])
    addresses = [code.address(view) for view in (source, start, target)]
    code.call("copy_to", real_of(target), outer, inner, target.shape[dim] * row, row, *addresses)


def unslice(code: Code, source: StridedView, out: StridedView, bounds: Any) -> None:
    """Zeros, but for the elements that the bounds (start, stop, step) name."""
    copy(code, 0.0, out)
    copy(code, source, _sliced(out, bounds))


def cat(code: Code, sources: list[StridedView], out: StridedView, dim: int) -> None:
    """Copy operands one after the other along a dimension."""
    start = 0
    for source in sources:
        stop = start + source.shape[dim]
        bounds = [(0, n, 1) for n in out.shape]
        bounds[dim] = (start, stop, 1)
        copy(code, source, _sliced(out, bounds))
        start = stop


def _sliced(view: StridedView, bounds: Any) -> StridedView:
    offset = sum(b[0] * s for b, s in zip(bounds, view.strides, strict=True))
    return replace(
        view,
        offset=view.offset + offset,
        shape=tuple(len(range(*b)) for b in bounds),
        strides=tuple(b[2] * s for b, s in zip(bounds, view.strides, strict=True)),
    )
