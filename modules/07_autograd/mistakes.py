"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Mistake

MISTAKES = [
    Mistake(
        exercise="lines-that-read-inputs",
        name="multiplies by the input itself",
        source="""
gradient("mul", a=lambda g, a: g * a, b=lambda g, b: g * b)
""",
        loses={"product-and-difference": 2},
    ),
    Mistake(
        exercise="lines-that-read-inputs",
        name="forgets the sign of the difference",
        source="""
gradient("sub", a=lambda g: g, b=lambda g: g)
""",
        loses={"product-and-difference": 2},
    ),
    Mistake(
        exercise="lines-that-read-inputs",
        name="forgets the square of the quotient",
        source="""
gradient("div", a=lambda g, b: g / b, b=lambda g, a, b: -g * (a / b))
""",
        loses={"quotient": 1, "quotient-twice": 1},
    ),
    Mistake(
        exercise="lines-that-read-inputs",
        name="takes the values out of the history",
        source="""
gradient("div", a=lambda g, b: g / b, b=lambda g, a, b: -g * (a / b / b).detach())
""",
        loses={"quotient-twice": 1},
    ),
    Mistake(
        exercise="lines-that-read-the-result",
        name="reads the input of exp",
        source="""
gradient("exp", a=lambda g, a: g * a.exp())
""",
        loses={"only-the-result": 2},
    ),
    Mistake(
        exercise="lines-that-read-the-result",
        name="forgets the 2 of the root",
        source="""
gradient("sqrt", a=lambda g, out: g / out)
""",
        loses={"four-derivatives": 3, "only-the-result": 2},
    ),
    Mistake(
        exercise="lines-that-read-the-result",
        name="forgets to multiply by g",
        source="""
gradient("sigmoid", a=lambda g, out: out * (1.0 - out))
""",
        loses={"four-derivatives": 3},
    ),
    Mistake(
        exercise="sums-of-what-was-repeated",
        name="sums only the dimensions in front",
        source="""
def sum_to(x, shape):
    if x.shape == shape:
        return x
    return sum(x, tuple(range(x.ndim - len(shape))))
""",
        loses={"summed-to-shapes": 2, "products-of-batches": 2},
    ),
    Mistake(
        exercise="sums-of-what-was-repeated",
        name="forgets the batch in the product",
        source="""
gradient(
    "matmul",
    a=lambda g, b: apply(ops.matmul, g, b.mT),
    b=lambda g, a: apply(ops.matmul, a.mT, g),
)
""",
        loses={"products-of-batches": 2},
    ),
    Mistake(
        exercise="sums-of-what-was-repeated",
        name="takes the factors in the wrong order",
        source="""
gradient(
    "matmul",
    a=lambda g, a_shape, b: sum_to(apply(ops.matmul, b.mT, g), a_shape),
    b=lambda g, a, b_shape: sum_to(apply(ops.matmul, g, a.mT), b_shape),
)
""",
        loses={"products-of-matrices": 2, "products-of-batches": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="gives the whole gradient to each of several winners",
        source="""
def _extremum(g, a, out, dims, keepdim):
    kept = _unreduce(out, dims, keepdim, a.ndim)
    chosen = ((a == kept) | (a != a)).to(g.dtype)
    return _unreduce(g, dims, keepdim, a.ndim) * chosen
""",
        loses={"maximum-backwards": 2, "maximum-of-nan": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="looks for the maximum, whatever `out` is",
        source="""
def _extremum(g, a, out, dims, keepdim):
    kept = a.detach().amax(dims, keepdim=True)
    chosen = ((a == kept) | (a != a)).to(g.dtype)
    share = chosen / chosen.sum(dims, keepdim=True)
    return _unreduce(g, dims, keepdim, a.ndim) * share
""",
        loses={"maximum-backwards": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="forgets NaN",
        source="""
def _extremum(g, a, out, dims, keepdim):
    chosen = (a == _unreduce(out, dims, keepdim, a.ndim)).to(g.dtype)
    share = chosen / chosen.sum(dims, keepdim=True)
    return _unreduce(g, dims, keepdim, a.ndim) * share
""",
        loses={"maximum-of-nan": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="divides the gradient of a sum among its elements",
        source="""
def _sum(g, a_shape, dims, keepdim):
    count = 1
    for d in dims:
        count *= a_shape[d]
    return expand(_unreduce(g, dims, keepdim, len(a_shape)) / count, a_shape)
""",
        loses={"sums-backwards": 2},
    ),
    Mistake(
        exercise="inputs-first",
        name="recurses",
        source="""
def _topological_order(roots):
    order, seen = [], set()

    def visit(source):
        if source is None or source in seen:
            return
        seen.add(source)
        for edge in getattr(source, "edges", ()):
            visit(edge)
        order.append(source)

    for root in roots:
        visit(root)
    return order
""",
        loses={"no-depth-is-too-deep": 2},
    ),
    Mistake(
        exercise="inputs-first",
        name="lists a source when it is first met",
        source="""
def _topological_order(roots):
    order, seen, stack = [], set(), list(roots)
    while stack:
        source = stack.pop()
        if source not in seen:
            seen.add(source)
            order.append(source)
            if type(source) is Record:
                stack += [edge for edge in source.edges if edge is not None]
    return order[::-1]
""",
        loses={"inputs-before-results": 2},
    ),
    Mistake(
        exercise="inputs-first",
        name="does not remember what it has seen",
        source="""
def _topological_order(roots):
    order, stack = [], list(roots)
    while stack and len(order) < 200_000:
        source = stack.pop()
        if source is None:
            order.append(stack.pop())
        elif type(source) is Record:
            stack += (source, None)
            stack += [edge for edge in source.edges if edge is not None]
        else:
            order.append(source)
    return order
""",
        loses={"inputs-before-results": 2, "each-source-once": 1},
    ),
    Mistake(
        exercise="one-step-back",
        name="replaces what was there",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        if edge is None or (relevant is not None and edge not in relevant):
            continue
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        gradient = None if vjp is None else vjp(g, record, output, i)
        if gradient is None:
            continue
        if op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        pending[edge] = gradient
""",
        loses={"a-step-adds": 2, "a-step-is-sparing": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="leaves the shape that broadcasting made",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        if edge is None or (relevant is not None and edge not in relevant):
            continue
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        gradient = None if vjp is None else vjp(g, record, output, i)
        if gradient is not None:
            before = pending.get(edge)
            pending[edge] = gradient if before is None else before + gradient
""",
        loses={"a-step-undoes-broadcasting": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="computes what nobody asked for",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        if edge is None or vjp is None:
            continue
        gradient = vjp(g, record, output, i)
        if op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        before = pending.get(edge)
        pending[edge] = gradient if before is None else before + gradient
""",
        loses={"a-step-is-sparing": 2},
    ),
    Mistake(
        exercise="recording-on-and-off",
        name="switches recording on when it leaves",
        source="""
class set_grad_enabled(tinytorch.set_grad_enabled):
    def __exit__(self, *error):
        self._open.pop().__exit__(*error)
        grad_mode(True).__enter__()
""",
        loses={"blocks-in-blocks": 2},
    ),
    Mistake(
        exercise="recording-on-and-off",
        name="leaves the first that was opened",
        source="""
class set_grad_enabled(tinytorch.set_grad_enabled):
    def __exit__(self, *error):
        self._open.pop(0).__exit__(*error)
""",
        loses={"blocks-in-blocks": 2},
    ),
    Mistake(
        exercise="recording-on-and-off",
        name="swallows the error",
        source="""
class set_grad_enabled(tinytorch.set_grad_enabled):
    def __exit__(self, *error):
        self._open.pop().__exit__(*error)
        return True
""",
        loses={"inside-the-block": 2},
    ),
    Mistake(
        exercise="central-difference",
        name="takes the one-sided difference",
        source="""
def _central_difference(function, inputs, checked, directions, weight, eps):
    def along(step):
        moved = list(inputs)
        for i, v in zip(checked, directions):
            moved[i] = (inputs[i].detach() + v * step).requires_grad_()
        return (function(*moved) * weight).sum().item()

    return (along(eps) - along(0.0)) / eps
""",
        loses={"slopes-of-known-functions": 2, "slopes-with-weights": 2},
    ),
    Mistake(
        exercise="central-difference",
        name="forgets the weight",
        source="""
def _central_difference(function, inputs, checked, directions, weight, eps):
    def along(step):
        moved = list(inputs)
        for i, v in zip(checked, directions):
            moved[i] = (inputs[i].detach() + v * step).requires_grad_()
        return function(*moved).sum().item()

    return (along(eps) - along(-eps)) / (2 * eps)
""",
        loses={"slopes-with-weights": 2},
    ),
]
