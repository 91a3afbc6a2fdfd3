"""What each op becomes: a symbol to call, a loop, or a copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinytorch.backends.optimized.elementwise import activations
from tinytorch.backends.optimized.rows import reductions
from tinytorch.graph.compiler.native import attention, copies, groups, images, quantized
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous
from tinytorch.graph.compiler.native.groups import CONVOLUTIONS, PRODUCTS
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.compiler.native.products import PLAIN
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.layout import Memory, StridedView

Writer = Callable[[Code, Step], None]
_WRITERS: dict[str, Writer] = {}

GELU: dict[str, dict[str, Callable[..., Any]]] = {
    "gelu": {"none": activations.gelu_scalar, "tanh": activations.gelu_tanh_scalar},
    "gelu_backward": {
        "none": activations.gelu_backward_scalar,
        "tanh": activations.gelu_tanh_backward_scalar,
    },
}


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Register the writer of these ops."""

    def enter(writer: Writer) -> Writer:
        _WRITERS.update(dict.fromkeys(names, writer))
        return writer

    return enter


def knows(name: str) -> bool:
    """Whether there is native code for the op of this name as a whole."""
    return any(name in table for table in (_WRITERS, PRODUCTS, CONVOLUTIONS, GELU))


def loop_of(step: Step) -> Loop | None:
    """The step as a loop that others may join; None if it is something else.

    Raises:
        Unsupported: no loop is generated for such elements.
    """
    op, body = step.op, groups.body_of(step.op)
    if body is not None:
        return None if groups.head_of(body) else groups.group_loop(step, body)
    loop, out = Loop(step.output.shape), step.output
    if op.name in GELU:
        method = step.params["approximate"]
        name = op.name if method == "none" else f"{op.name}_{method}"
        loop.store(loop.op(name, GELU[op.name][method], step.inputs, out.dtype), out)
    elif op.kind == "elementwise":
        assert op.scalar is not None
        loop.store(loop.op(op.name, op.scalar, step.inputs, out.dtype), out)
    elif op.name == "cast":
        loop.store(loop.convert(step.inputs[0], out.dtype), out)
    elif op.name == "copy":
        loop.store(_only_view(step), out)
    elif op.name == "full":
        loop.store(loop.convert(step.params["value"], out.dtype), out)
    else:
        return None
    return loop


def write(code: Code, step: Step) -> None:
    """Statements for a step that is no loop.

    Raises:
        Unsupported: there is no native code for it; the message says why.
    """
    name, body = step.op.name, groups.body_of(step.op)
    if body is not None:
        head = groups.head_of(body)
        assert head is not None
        groups.with_head(code, step, body, head)
    elif name in PRODUCTS:
        PRODUCTS[name](code, list(step.inputs), step.output, PLAIN)
    elif name in CONVOLUTIONS:
        CONVOLUTIONS[name](code, list(step.inputs), step.output, step.params)
    elif name in _WRITERS:
        _WRITERS[name](code, step)
    else:
        raise Unsupported(f"there is no native code for {name}")


def _views(step: Step) -> list[StridedView]:
    for value in step.inputs:
        if not isinstance(value, StridedView):
            raise Unsupported(f"{step.op.name} of the number {value}")
    return [value for value in step.inputs if isinstance(value, StridedView)]


def _only_view(step: Step) -> StridedView:
    (view,) = _views(step)
    return view


# -- rows ------------------------------------------------------------------------------------------


@writes("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
def _rows(code: Code, step: Step) -> None:
    """The dimension is moved to the end if it is not there."""
    out, dim = step.output, step.params["dim"]
    if not out.size:
        return
    order = [d for d in range(len(out.shape)) if d != dim] + [dim][: len(out.shape)]

    def moved(view: StridedView) -> StridedView:
        return view_at(
            view, tuple(view.shape[d] for d in order), tuple(view.strides[d] for d in order)
        )

    inputs = [contiguous(code, moved(view)) for view in _views(step)]
    last = moved(out)
    target = last if last.is_contiguous else code.temporary(last.shape, last.dtype)
    n = last.shape[-1] if last.shape else 1
    addresses = [code.address(view) for view in (*inputs, target)]
    code.call(step.op.name, real_of(out), last.size // n, n, *addresses)
    if target is not last:
        copies.copy(code, target, last)


@writes("cross_entropy")
def _cross_entropy(code: Code, step: Step) -> None:
    x, target = (contiguous(code, view) for view in _views(step))
    n, classes = x.shape
    real, addresses = real_of(step.output), [code.address(p) for p in (x, target, step.output)]
    if not x.size:
        copies.copy(code, math.nan, step.output)
        return
    code.check_index(target, classes)
    scratch = code.workspace(n * x.dtype.itemsize)
    code.call("cross_entropy", real, n, classes, *addresses, scratch)


@writes("cross_entropy_backward")
def _cross_entropy_backward(code: Code, step: Step) -> None:
    g, x, target = (contiguous(code, view) for view in _views(step))
    if not x.size:
        return
    code.check_index(target, x.shape[1])
    addresses = [code.address(view) for view in (g, x, target, step.output)]
    code.call("cross_entropy_backward", real_of(step.output), *x.shape, *addresses)


def write_both(code: Code, forward: Step, backward: Step) -> bool:
    """Cross entropy with its gradient in one pass, if that is what the two steps are."""
    if (forward.op.name, backward.op.name) != ("cross_entropy", "cross_entropy_backward"):
        return False
    g, *same = _views(backward)
    x, target = _views(forward)
    is_one = g.buffer.memory is Memory.CONSTANT and bool(
        (code.schedule.constants[g.buffer.index] == 1).all()
    )
    if same != [x, target] or not is_one or not (x.is_contiguous and target.is_contiguous):
        return False
    code.check_index(target, x.shape[1])
    code.name_output(backward)
    addresses = [code.address(p) for p in (x, target, forward.output, backward.output)]
    code.call("cross_entropy_and_gradient", real_of(x), *x.shape, *addresses)
    return True


@writes("layer_norm", "layer_norm_backward", "layer_norm_weight")
def _layer_norm(code: Code, step: Step) -> None:
    inputs = [contiguous(code, view) for view in _views(step)]
    *front, d = max((view.shape for view in inputs), key=len)
    if not math.prod(front) * d:
        copies.copy(code, 0.0, step.output)
        return
    addresses = [code.address(view) for view in inputs]
    code.call(
        step.op.name, real_of(step.output), math.prod(front), d, *addresses,
        float(step.params["eps"]), code.address(step.output),
    )  # fmt: skip


@writes("batch_norm", "batch_norm_backward", "batch_norm_weight")
def _batch_norm(code: Code, step: Step) -> None:
    inputs = [contiguous(code, view) for view in _views(step)]
    n, c, *rest = max((view.shape for view in inputs), key=len)
    if not n * c * math.prod(rest):
        copies.copy(code, 0.0, step.output)
        return
    addresses = [code.address(view) for view in inputs]
    code.call(
        step.op.name, real_of(step.output), n, c, math.prod(rest), *addresses,
        float(step.params["eps"]), code.address(step.output),
    )  # fmt: skip


writes("scaled_dot_product_attention", attention.BACKWARD)(attention.write)
writes("quantized_linear")(quantized.write)


# -- reductions ------------------------------------------------------------------------------------


@writes("sum", "amax", "amin")
def _reduce(code: Code, step: Step) -> None:
    """As `reductions` does it: runs of adjacent dimensions, the last first."""
    view, out = _only_view(step), step.output
    real = real_of(view)
    if view.dtype is not out.dtype:
        raise Unsupported(f"{step.op.name} of {view.dtype.name}")
    steps, _ = reductions.runs_of(view.shape, step.params["dims"], step.params["keepdim"])
    if not steps:
        copies.copy(code, view, out)
        return
    if not view.size:
        copies.copy(code, 0.0, out)
        return
    source = contiguous(code, view)
    for i, (outer, reduced, inner) in enumerate(steps):
        is_last = i == len(steps) - 1
        target = out if is_last else code.temporary((outer, inner), out.dtype)
        way, sizes = ("rows", ()) if inner == 1 else ("columns", (inner,))
        addresses = (code.address(source), code.address(target))
        code.call(f"{step.op.name}_{way}", real, outer, reduced, *sizes, *addresses)
        source = target


# -- images ----------------------------------------------------------------------------------------


@writes("max_pool2d", "avg_pool2d", "max_pool2d_select")
def _pool(code: Code, step: Step) -> None:
    views = _views(step)
    images.pool(code, step.op.name, views, step.output, views[0], step.output, step.params)


@writes("max_pool2d_backward", "avg_pool2d_backward")
def _pool_backward(code: Code, step: Step) -> None:
    views = _views(step)
    images.pool(code, step.op.name, views, step.output, step.output, views[0], step.params)


# -- index, movement, creation ---------------------------------------------------------------------


def _indices(code: Code, index: StridedView, extent: int) -> StridedView:
    if index.dtype.name != "int64":
        raise Unsupported(f"an index of {index.dtype.name}")
    index = contiguous(code, index)
    code.check_index(index, extent)
    return index


@writes("take")
def _take(code: Code, step: Step) -> None:
    x, index = _views(step)
    length, width = x.shape[0], math.prod(x.shape[1:])
    if not step.output.size:
        return
    addresses = [
        code.address(p) for p in (contiguous(code, x), _indices(code, index, length), step.output)
    ]
    code.call("take", real_of(step.output), index.size, length, width, *addresses)


@writes("scatter_add")
def _scatter_add(code: Code, step: Step) -> None:
    g, index = _views(step)
    length, out = step.params["length"], step.output
    width = math.prod(out.shape[1:])
    if not out.size:
        return
    addresses = [code.address(p) for p in (contiguous(code, g), _indices(code, index, length), out)]
    code.call("scatter_add", real_of(out), index.size, length, width, *addresses)


@writes("uniform")
def _uniform(code: Code, step: Step) -> None:
    seed, out = _only_view(step), step.output
    if out.size:
        code.call("uniform", real_of(out), out.size, code.address(seed), code.address(out))


@writes("dynamic_update_slice")
def _dynamic_update_slice(code: Code, step: Step) -> None:
    """The whole is copied first, unless the result is in its place: then only the slice moves."""
    whole, update, start = _views(step)
    out, dim = step.output, step.params["dim"]
    places = _indices(code, start, out.shape[dim] - update.shape[dim] + 1)
    if whole != out:
        copies.copy(code, whole, out)
    if update.size:
        copies.copy_to(code, contiguous(code, update), out, dim, places)


@writes("unslice")
def _unslice(code: Code, step: Step) -> None:
    copies.unslice(code, _only_view(step), step.output, step.params["bounds"])


@writes("cat")
def _cat(code: Code, step: Step) -> None:
    copies.cat(code, _views(step), step.output, step.params["dim"])
