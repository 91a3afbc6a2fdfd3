"""Attention and its gradient as calls of their symbols."""

from __future__ import annotations

import math
from typing import Any

from tinytorch.backends.optimized.attention.loops import Sizes, backward_plan, forward_plan
from tinytorch.backends.optimized.attention.weights import BOOL_MASK, FLOAT_MASK, NO_MASK
from tinytorch.backends.optimized.symbols.records import AttentionRecord
from tinytorch.dtypes import bool_
from tinytorch.graph.compiler.native import copies
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.layout import StridedView

BACKWARD = "scaled_dot_product_attention_backward"


def write(code: Code, step: Step) -> None:
    """The symbol takes any strides; only the elements of a row must be adjacent.

    Raises:
        Unsupported: there is a mask, and more than one dimension before the heads.
    """
    is_backward, out, params = step.op.name == BACKWARD, step.output, step.params
    given = list(step.inputs)
    upper = [contiguous(code, _view(given.pop(0)))] if is_backward else []
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
        m = mask.strides
        mask_steps = {"mask_batch": m[0], "mask_head": m[1] * group, "mask_group": m[1]}
        mask_steps |= {"mask_row": m[2], "mask_column": m[3]}
    sizes = Sizes(
        queries=q.shape[2], keys=keys, e=e, v=v.shape[3],
        is_causal=params["is_causal"], mask=kind, scale=float(params["scale"]),
        dropout_p=float(params["dropout_p"]), seed=0, block=0, pitch=0,
    )  # fmt: skip
    plan = backward_plan if is_backward else forward_plan
    sizes, nbytes = plan(sizes, out.dtype.itemsize)
    record = AttentionRecord(
        batch=batch, heads=heads, group=group,
        queries=sizes.queries, keys=sizes.keys, e=sizes.e, v=sizes.v,
        is_causal=int(sizes.is_causal), mask=kind, block=sizes.block, pitch=sizes.pitch,
        q_batch=q.strides[0], q_head=q.strides[1] * group, q_group=q.strides[1], q_row=q.strides[2],
        k_batch=k.strides[0], k_head=k.strides[1], k_row=k.strides[2],
        v_batch=v.strides[0], v_head=v.strides[1], v_row=v.strides[2], **mask_steps,
    )  # fmt: skip
    addresses = [code.address(view) for view in (*upper, q, k, v)]
    seed = code.address(_view(given[4])) if params["dropout_p"] else "0"
    code.call(
        step.op.name, real_of(out), code.record(record), sizes.scale, sizes.dropout_p, *addresses,
        "0" if mask is None else code.address(mask), seed, code.address(out),
        code.workspace(nbytes),
    )  # fmt: skip


def _view(value: Any) -> StridedView:
    if not isinstance(value, StridedView):
        raise Unsupported(f"attention of the number {value}")
    return value


def _four(code: Code, view: StridedView) -> StridedView:
    """As (batch, heads, rows, columns), the elements of a row being adjacent."""
    adjacent = not view.size or view.shape[-1] == 1 or view.strides[-1] == view.dtype.itemsize
    if not adjacent or len(view.shape) > 4:
        view = contiguous(code, view)
    front = len(view.shape) - 3
    if front > 1:
        shape = (math.prod(view.shape[:front]), *view.shape[front:])
        return view_at(view, shape, view.strides[front - 1 :])
    missing = 4 - len(view.shape)
    return view_at(view, (1,) * missing + view.shape, (0,) * missing + view.strides)


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
