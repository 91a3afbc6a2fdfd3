"""Matrix products as calls of the GEMM symbols, with what they can do on the way out.

An operand of any strides is read where it is: a transposed weight costs nothing. A bias is what the
sums start from, relu is in the store, and a step of gradient descent

    W - lr * (g.T @ x)  =  W + (-lr * g).T @ x

is a product that starts from W and is stored into it: the gradient of W exists nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tinytorch.backends.optimized.elementwise.nest import collapse
from tinytorch.backends.optimized.gemm import library
from tinytorch.backends.optimized.gemm.blocking import L2_BYTES
from tinytorch.backends.optimized.gemm.matmul import choices
from tinytorch.backends.optimized.symbols import symbol
from tinytorch.backends.optimized.symbols.records import BatchRecord
from tinytorch.graph.compiler.native.code import Code, Unsupported, real_of, view_at
from tinytorch.graph.compiler.native.copies import contiguous, copy
from tinytorch.graph.compiler.native.loop_text import emit
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.layout import StridedView
from tinytorch.op import OPS


@dataclass(frozen=True)
class Epilogue:
    """What a product does beyond A @ B.

    Attributes:
        start: a row of the result's width (a bias), or the whole that the sums start from.
        relu: negative results become 0.
        factor: a 0-d view or a number; the product is multiplied by minus this.
    """

    start: StridedView | None = None
    relu: bool = False
    factor: StridedView | float | None = None


PLAIN = Epilogue()


def linear(code: Code, inputs: list[Any], out: StridedView, epilogue: Epilogue) -> None:
    """x (..., in) @ w.T, w (out, in), and a bias if there is a third input."""
    x, w, *bias = inputs
    if bias:
        epilogue = Epilogue(bias[0], epilogue.relu, epilogue.factor)
    product(code, _matrix(code, x), _turned(w), out, epilogue)


def linear_weight(code: Code, inputs: list[Any], out: StridedView, epilogue: Epilogue) -> None:
    """g.T @ x over all rows."""
    g, x = (_matrix(code, view) for view in inputs)
    product(code, _turned(g), x, out, epilogue)


def matmul(code: Code, inputs: list[Any], out: StridedView, epilogue: Epilogue) -> None:
    """(..., m, k) @ (..., k, n); the dimensions before the last two broadcast."""
    a, b = inputs
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise Unsupported(f"a product of shapes {a.shape} and {b.shape}")
    if math.prod(out.shape[:-2]) == 1:
        product(code, _last_two(a), _last_two(b), out, epilogue)
    elif len(b.shape) == 2 and _rows_merge(a):
        product(code, _matrix(code, a), b, out, epilogue)
    elif epilogue != PLAIN:
        raise Unsupported("a batch of products with an epilogue")
    else:
        _batch(code, a, b, out)


def product(
    code: Code, a: StridedView, b: StridedView, out: StridedView, epilogue: Epilogue
) -> None:
    """out (m, n) = start + a (m, k) @ b (k, n)."""
    (m, k), n = a.shape, b.shape[1]
    if not m * n:
        return
    if epilogue.factor is not None:
        a, b = _scaled(code, a, b, epilogue.factor)
    start, ld_start = "0", 0
    if epilogue.start is not None:
        first = epilogue.start
        if len(first.shape) == 1 and n != 1:
            first = contiguous(code, first)
        start, ld_start = code.address(first), first.strides[-2] if len(first.shape) > 1 else 0
    ld_out = out.strides[-2] if len(out.shape) > 1 else n * out.dtype.itemsize
    code.call_function(
        *_gemm(code, (m, n, k), a, b, real_of(out)), m, n, k, code.address(a), *a.strides,
        code.address(b), *b.strides, code.address(out), ld_out, start, ld_start,
        int(epilogue.relu), code.scratch,
    )  # fmt: skip


def _gemm(
    code: Code, shape: tuple[int, int, int], a: StridedView, b: StridedView, real: Any
) -> tuple[str, Any]:
    """The name of the product and what it calls: these kernels' or, where faster, the library's."""
    itemsize = a.dtype.itemsize
    if code.may_call_library:
        product = library.class_of(shape, a.strides, b.strides, itemsize, 1)
        if product is not None and choices().prefers_library(product):
            code.calls_library = True
            return f"gemm_library_f{8 * itemsize}", library.library_gemm(itemsize)
    return symbol("gemm", real)


def _scaled(
    code: Code, a: StridedView, b: StridedView, factor: StridedView | float
) -> tuple[StridedView, StridedView]:
    """The operands, with the smaller one times -factor."""
    smaller = a if a.size <= b.size else b
    is_turned = smaller.strides[0] < smaller.strides[1]
    source = _turned(smaller) if is_turned else smaller  # walk along memory
    target = code.temporary(source.shape, source.dtype)
    loop = Loop(source.shape)
    negative = loop.op("neg", OPS["neg"].scalar, [source], source.dtype)  # type: ignore[arg-type]
    value = loop.op("mul", OPS["mul"].scalar, [negative, factor], source.dtype)  # type: ignore[arg-type]
    loop.store(value, target)
    emit(code, loop)
    scaled = _turned(target) if is_turned else target
    return (scaled, b) if smaller is a else (a, scaled)


# -- layouts ---------------------------------------------------------------------------------------


def _turned(view: StridedView) -> StridedView:
    return view_at(view, view.shape[::-1], view.strides[::-1])


def _with_turned_matrices(view: StridedView) -> StridedView:
    """A batch of matrices as a batch of the transposed ones."""
    order = (*range(len(view.shape) - 2), len(view.shape) - 1, len(view.shape) - 2)
    return view_at(view, tuple(view.shape[d] for d in order), tuple(view.strides[d] for d in order))


def _last_two(view: StridedView) -> StridedView:
    return view_at(view, view.shape[-2:], view.strides[-2:])


def _rows_merge(view: StridedView) -> bool:
    """All dimensions but the last are walked through with one stride."""
    sizes, _ = collapse(view.shape[:-1], [view.strides[:-1]])
    return len(sizes) == 1


def _matrix(code: Code, view: StridedView) -> StridedView:
    """(..., k) as (rows, k): a view if one stride leads from row to row, else a copy."""
    shape = (math.prod(view.shape[:-1]), view.shape[-1])
    if len(view.shape) == 2:
        return view
    if not _rows_merge(view):
        view = contiguous(code, view)
    _, (steps,) = collapse(view.shape[:-1], [view.strides[:-1]])
    return view_at(view, shape, (steps[0], view.strides[-1]))


def _batch(code: Code, a: StridedView, b: StridedView, out: StridedView) -> None:
    """Products over batch dimensions, of which two are left when all are taken together.

    A result whose columns are adjacent is written as out.T = b.T @ a.T.
    """
    itemsize = out.dtype.itemsize
    if out.strides[-1] != itemsize and out.strides[-2] == itemsize:
        a, b, out = _with_turned_matrices(b), _with_turned_matrices(a), _with_turned_matrices(out)
    front = out.shape[:-2]
    operands = []
    for view in (a, b, out):
        missing = len(front) - (len(view.shape) - 2)
        own = [
            0 if n == 1 else stride
            for n, stride in zip(view.shape[:-2], view.strides[:-2], strict=True)
        ]
        operands.append((0,) * missing + tuple(own))
    sizes, steps = collapse(front, operands)
    if len(sizes) > 2:
        if not out.is_contiguous:
            target = code.temporary(out.shape, out.dtype)
            _batch(code, a, b, target)
            copy(code, target, out)
            return
        if a.is_contiguous and b.is_contiguous:
            raise Unsupported(f"batch dimensions {a.shape[:-2]} and {b.shape[:-2]}")
        _batch(code, contiguous(code, a), contiguous(code, b), out)
        return
    (m, k), n = a.shape[-2:], b.shape[-1]
    if not math.prod(sizes) * m * n:
        return
    sizes = (1,) * (2 - len(sizes)) + sizes
    pairs = [(0,) * (2 - len(own)) + own for own in steps]
    (a_outer, a_inner), (b_outer, b_inner), (c_outer, c_inner) = pairs
    record = code.record(
        BatchRecord(
            outer=sizes[0],
            inner=sizes[1],
            m=m,
            n=n,
            k=k,
            a_row=a.strides[-2],
            a_column=a.strides[-1],
            b_row=b.strides[-2],
            b_column=b.strides[-1],
            c_row=out.strides[-2],
            a_outer=a_outer,
            a_inner=a_inner,
            b_outer=b_outer,
            b_inner=b_inner,
            c_outer=c_outer,
            c_inner=c_inner,
            is_far=int(code.schedule.arena_bytes > L2_BYTES),
        )
    )
    addresses = [code.address(view) for view in (a, b, out)]
    code.call("gemm_batch", real_of(out), record, *addresses, code.scratch)
