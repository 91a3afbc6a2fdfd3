"""What each op becomes: a symbol to call, a loop, or a copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.backends.optimized.elementwise import activations
from tinytorch.backends.optimized.rows import reductions
from tinytorch.graph.compiler.native import attention, copies, groups, images, quantized
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous
from tinytorch.graph.compiler.native.groups import CONVOLUTIONS, PRODUCTS
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.compiler.native.products import PLAIN
from tinytorch.graph.compiler.native.strides import disjoint_extents
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


IN_PLACE = ("softmax", "softmax_backward")
"""Functions of rows for which there is code that writes to the memory of the first operand."""


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
        scalar = GELU[op.name][method]
        if step.node.meta.get("beside_gradient") and method == "none":
            name, scalar = "gelu_by_density", activations.gelu_by_density_scalar
        loop.store(loop.op(name, scalar, step.inputs, out.dtype), out)
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
    name, target = step.op.name, last
    is_free = [disjoint_extents(last, view) for view in inputs]
    if name in IN_PLACE and inputs[0] == last and all(is_free[1:]):
        name, inputs = f"{name}_in_place", inputs[1:]
    elif not last.is_contiguous or not all(is_free):
        target = code.temporary(last.shape, last.dtype)
    n = last.shape[-1] if last.shape else 1
    addresses = [code.address(view) for view in (*inputs, target)]
    code.call(name, real_of(out), last.size // n, n, *addresses)
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


def write_together(code: Code, steps: Sequence[Step]) -> int:
    """The first few of some steps in one pass, if there is code for that; how many they are."""
    for write_few in (_cross_entropy_and_gradient, _layer_norm_gradients):
        if count := write_few(code, steps):
            return count
    return 0


def _names(steps: Sequence[Step]) -> list[str]:
    return [step.op.name for step in steps]


def _cross_entropy_and_gradient(code: Code, steps: Sequence[Step]) -> int:
    if _names(steps[:2]) != ["cross_entropy", "cross_entropy_backward"]:
        return 0
    forward, backward = steps[:2]
    g, *same = _views(backward)
    x, target = _views(forward)
    is_one = g.buffer.memory is Memory.CONSTANT and bool(
        (code.schedule.constants[g.buffer.index] == 1).all()
    )
    if same != [x, target] or not is_one or not (x.is_contiguous and target.is_contiguous):
        return 0
    code.check_index(target, x.shape[1])
    code.name_output(backward)
    addresses = [code.address(p) for p in (x, target, forward.output, backward.output)]
    code.call("cross_entropy_and_gradient", real_of(x), *x.shape, *addresses)
    return 2


def _layer_norm_gradients(code: Code, steps: Sequence[Step]) -> int:
    """The gradients for x, b and w, which a pass has put in this order; then, if nobody else reads
    the first, what it is added to in place."""
    if code.count > 1 or _names(steps[:3]) != ["layer_norm_backward", "sum", "layer_norm_weight"]:
        return 0  # threads divide the first among themselves
    for_x, for_b, for_w = steps[:3]
    inputs = _views(for_x)
    (g, x, _), (summed,) = inputs, _views(for_b)
    rows = tuple(range(len(summed.shape) - 1))
    is_same = (
        (summed.buffer, summed.offset, summed.size) == (g.buffer, g.offset, g.size)
        and summed.shape[-1:] == g.shape[-1:]
        and for_b.params["dims"] == rows
        and _views(for_w) == [g, x]
        and for_w.params == for_x.params
    )
    total = _sum_in_place(for_x, steps[3]) if len(steps) > 3 else None
    out = for_x.output if total is None else total
    results = [out, for_b.output, for_w.output]
    if (
        not is_same
        or not g.size
        or not all(view.is_contiguous for view in (*inputs, summed, *results))
        or not all(
            disjoint_extents(a, b) for a in results for b in (*inputs, *results) if a is not b
        )
    ):
        return 0
    code.name_output(for_x if total is None else steps[3])
    n, d = g.size // g.shape[-1], g.shape[-1]
    addresses = [code.address(view) for view in (*inputs, out, for_w.output, for_b.output)]
    add, eps = int(total is not None), float(for_x.params["eps"])
    code.call("layer_norm_gradients", real_of(g), n, d, add, *addresses[:3], eps, *addresses[3:])
    return 3 + add


def _sum_in_place(made: Step, add: Step) -> StridedView | None:
    """Where a step adds what another has made, and nobody else reads, to what is there."""
    if add.op.name != "add" or list(made.node.users) != [add.node]:
        return None
    own = [view for view in add.inputs if view != made.output]
    return add.output if own == [add.output] else None


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


@writes(*(f"{of}_norm{part}" for of in ("batch", "group") for part in ("", "_backward", "_weight")))
def _channels_norm(code: Code, step: Step) -> None:
    inputs = [contiguous(code, view) for view in _views(step)]
    n, c, *rest = max((view.shape for view in inputs), key=len)
    if not n * c * math.prod(rest):
        copies.copy(code, 0.0, step.output)
        return
    sizes: tuple[int, ...] = (n, c, math.prod(rest))
    if groups := step.params.get("groups"):
        sizes = (n, groups, c // groups * math.prod(rest), c // groups)
    addresses = [code.address(view) for view in inputs]
    code.call(
        step.op.name, real_of(step.output), *sizes, *addresses, float(step.params["eps"]),
        code.address(step.output),
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


@writes("argmax", "argmin")
def _place(code: Code, step: Step) -> None:
    view, dim = _only_view(step), step.params["dim"]
    if not step.output.size:
        return
    outer, inner = math.prod(view.shape[:dim]), math.prod(view.shape[dim + 1 :])
    addresses = code.address(contiguous(code, view)), code.address(step.output)
    code.call(step.op.name, real_of(view), outer, view.shape[dim], inner, *addresses)


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
