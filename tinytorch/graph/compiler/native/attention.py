"""Attention and its gradient as calls of their symbols."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.backends.optimized.attention.loops import Sizes, backward_plan, forward_plan
from tinytorch.backends.optimized.attention.weights import BOOL_MASK, FLOAT_MASK, NO_MASK
from tinytorch.backends.optimized.elementwise.nest import collapse
from tinytorch.backends.optimized.symbols.records import AttentionRecord
from tinytorch.dtypes import Shape, bool_, tensor_meta
from tinytorch.graph.compiler.memory_order import readers_of_parts
from tinytorch.graph.compiler.native import copies
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import StridedView, contiguous_view, view_of
from tinytorch.op import OPS

NAMES = "scaled_dot_product_attention", "scaled_dot_product_attention_backward"
BACKWARD = NAMES[1]


def write(code: Code, step: Step) -> None:
    """The symbol takes any strides; only the elements of a row must be adjacent.

    Raises:
        Unsupported: there is a mask, and more than one dimension before the heads.
    """
    is_backward, out, params = step.op.name == BACKWARD, step.output, step.params
    given = list(step.inputs)
    upper = [_four(code, _view(given.pop(0)))] if is_backward else []
    q, k, v = (_four(code, _view(x)) for x in given[:3])
    mask = given[3] if len(given) > 3 and isinstance(given[3], StridedView) else None
    if mask is not None and len(_view(given[0]).shape) > 4:
        raise Unsupported("attention with a mask and more than four dimensions")
    if not math.prod((*q.shape, *k.shape, *v.shape)) or params["dropout_p"] == 1:
        if out.size:
            copies.copy(code, 0.0, out)
        return
    batch, heads, keys, e = k.shape
    group, kind = q.shape[1] // heads, NO_MASK
    mask_steps: dict[str, int] = {}
    if mask is not None:
        kind = BOOL_MASK if mask.dtype is bool_ else FLOAT_MASK
        mask = _full(code, mask, (*q.shape[:3], keys))
        mask_steps = _steps("mask", mask) | {"mask_column": mask.strides[3]}
    sizes = Sizes(
        queries=q.shape[2], keys=keys, e=e, v=v.shape[3],
        is_causal=params["is_causal"], mask=kind, scale=float(params["scale"]),
        dropout_p=float(params["dropout_p"]), seed=0, block=0, pitch=0,
    )  # fmt: skip
    plan = backward_plan if is_backward else forward_plan
    sizes, nbytes = plan(sizes, out.dtype.itemsize)
    shapes = [_view(x).shape for x in given[:3]]
    results = _gradients(code, step, shapes) if is_backward else [out]
    to, *others = found = [_four(code, view) for view in results]
    assert all(a.offset == b.offset for a, b in zip(found, results, strict=True)), "not a copy"
    steps = _steps("out", to)
    for view in upper:
        steps |= _steps("upper", view)
    for name, view in zip(("dk", "dv"), others, strict=False):
        steps |= _steps(name, view)
    record = AttentionRecord(
        batch=batch, heads=heads, group=group,
        queries=sizes.queries, keys=sizes.keys, e=sizes.e, v=sizes.v,
        is_causal=int(sizes.is_causal), mask=kind, block=sizes.block, pitch=sizes.pitch,
        **_steps("q", q), **_steps("k", k), **_steps("v", v), **steps, **mask_steps,
    )  # fmt: skip
    addresses = [code.address(view) for view in (*upper, q, k, v)]
    seed = code.address(_view(given[4])) if params["dropout_p"] else "0"
    code.call(
        step.op.name, real_of(out), code.record(record), sizes.scale, sizes.dropout_p, *addresses,
        "0" if mask is None else code.address(mask), seed, *map(code.address, (to, *others)),
        code.workspace(nbytes),
    )  # fmt: skip


def can_write(node: Node, *views: StridedView) -> bool:
    """Whether the value of a node of attention can be written to this view; or, of the gradient,
    its parts for query, key and value to three views."""
    if node.target.name != BACKWARD:
        return len(views) == 1 and _is_writable(views[0])
    shapes = [a.meta["tensor_meta"].shape for a in node.args[1:4]]
    found = [view_of(OPS["reshape"], v, {"shape": s}) for v, s in zip(views, shapes, strict=False)]
    return len(views) == len(shapes) and all(v is not None and _is_writable(v) for v in found)


def _is_writable(view: StridedView) -> bool:
    """The elements of a row are adjacent, and one stride leads from batch to batch."""
    front = view.shape[:-3]
    is_one_walk = len(collapse(front, [view.strides[:-3]])[0]) == 1
    return is_one_walk and view.strides[-1] == view.dtype.itemsize


def _gradients(code: Code, step: Step, shapes: list[Shape]) -> list[StridedView]:
    """Where the gradients of query, key and value are written: one after the other, unless they are
    parts of a concatenation (`memory_order`)."""
    views, offset = [], step.output.offset
    for i, shape in enumerate(shapes):
        if step.node.meta.get("in_parts"):
            place = code.schedule.views[readers_of_parts(step.node)[i]]
            part = view_of(OPS["reshape"], place, {"shape": shape})
            assert part is not None, "`can_write` has been asked"
        else:
            meta = tensor_meta(shape, step.output.dtype)
            part = contiguous_view(step.output.buffer, offset, meta)
            offset += meta.size * meta.dtype.itemsize
        views.append(part)
    return views


def _steps(name: str, view: StridedView) -> dict[str, int]:
    """The strides of a view of (batch, heads, rows, columns), as the record names them."""
    batch, head, row, _ = view.strides
    return {f"{name}_batch": batch, f"{name}_head": head, f"{name}_row": row}


def _view(value: Any) -> StridedView:
    if not isinstance(value, StridedView):
        raise Unsupported(f"attention of the number {value}")
    return value


def _four(code: Code, view: StridedView) -> StridedView:
    """As (batch, heads, rows, columns), the elements of a row being adjacent."""
    adjacent = view.shape[-1] == 1 or view.strides[-1] == view.dtype.itemsize
    sizes, (steps,) = collapse(view.shape[:-3], [view.strides[:-3]])
    if view.size and (not adjacent or len(sizes) > 1):
        return _four(code, contiguous(code, view))
    missing = max(0, 3 - len(view.shape))
    shape = (math.prod(view.shape[:-3]), *(1,) * missing, *view.shape[-3:])
    return view_at(view, shape, (steps[0], *(0,) * missing, *view.strides[-3:]))


def _full(code: Code, mask: StridedView, shape: tuple[int, ...]) -> StridedView:
    """The mask in the shape (batch, heads, l, s), repeated where it broadcasts."""
    missing = 4 - len(mask.shape)
    own = (1,) * missing + mask.shape
    strides = [
        0 if n == 1 else stride
        for n, stride in zip(own, (0,) * missing + mask.strides, strict=True)
    ]
    if shape[-1] != 1 and strides[-1] != mask.dtype.itemsize:
        rows = (*own[:-1], shape[-1])
        copied = contiguous(code, view_at(mask, rows, tuple(strides)))
        return _full(code, copied, shape)
    return view_at(mask, shape, tuple(strides))
