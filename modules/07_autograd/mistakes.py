"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

MISTAKES = [
    Mistake(
        exercise="lines-that-read-inputs",
        name="multiplies by the input itself",
        source="""
gradient("mul", a=lambda g, a: g * a, b=lambda g, b: g * b)
""",
        loses={"product-and-difference": 2, "quotient-twice": 1},
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
        loses={"four-derivatives": 3, "only-the-result": 2},
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
        loses={
            "summed-to-shapes": 2,
            "products-of-batches": 2,
            "a-step-undoes-broadcasting": 2,
        },
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
class GradMode(tinytorch.autograd.modes.GradMode):
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
class GradMode(tinytorch.autograd.modes.GradMode):
    def __exit__(self, *error):
        self._open.pop(0).__exit__(*error)
""",
        loses={"blocks-in-blocks": 2},
    ),
    Mistake(
        exercise="recording-on-and-off",
        name="swallows the error",
        source="""
class GradMode(tinytorch.autograd.modes.GradMode):
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
    Mistake(
        exercise="one-step-back",
        name="calls a vjp that is None",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        if edge is None or (relevant is not None and edge not in relevant):
            continue
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        gradient = vjp(g, record, output, i)
        if gradient is None:
            continue
        if op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        before = pending.get(edge)
        pending[edge] = gradient if before is None else before + gradient
""",
        loses={"a-step-is-sparing": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="keeps None as a gradient",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        if edge is None or (relevant is not None and edge not in relevant):
            continue
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        gradient = None if vjp is None else vjp(g, record, output, i)
        if gradient is not None and op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        pending[edge] = pending[edge] + gradient if edge in pending else gradient
""",
        loses={"a-step-is-sparing": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="sums only where the number of dimensions differs",
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
        if op.kind == "elementwise" and gradient.ndim != record.metas[i].ndim:
            gradient = sum_to(gradient, record.metas[i].shape)
        before = pending.get(edge)
        pending[edge] = gradient if before is None else before + gradient
""",
        loses={"a-step-undoes-broadcasting": 2},
    ),
    Mistake(
        exercise="central-difference",
        name="keeps the history of what it moves",
        source="""
def _central_difference(function, inputs, checked, directions, weight, eps):
    def along(step):
        moved = list(inputs)
        for i, v in zip(checked, directions):
            moved[i] = (inputs[i] + v * step).requires_grad_()
        return (function(*moved) * weight).detach()

    with grad_mode(True):
        return ((along(eps) - along(-eps)) / (2 * eps)).sum().item()
""",
        loses={"slopes-with-weights": 2},
    ),
    Mistake(
        exercise="lines-that-read-inputs",
        name="detaches what a product reads",
        source="""
gradient("mul", a=lambda g, b: g * b.detach(), b=lambda g, a: g * a.detach())
""",
        loses={"quotient-twice": 1},
    ),
    Mistake(
        exercise="lines-that-read-the-result",
        name="detaches the result that it reads",
        source="""
gradient("exp", a=lambda g, out: g * out.detach())
gradient("tanh", a=lambda g, out: g * (1.0 - out.detach() * out.detach()))
""",
        loses={"only-the-result": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="counts the winners in float32",
        source="""
def _extremum(g, a, out, dims, keepdim):
    kept = _unreduce(out, dims, keepdim, a.ndim)
    chosen = ((a == kept) | (a != a)).float()
    share = chosen / apply(ops.sum, chosen, dims=dims, keepdim=True)
    return _unreduce(g, dims, keepdim, a.ndim) * share
""",
        loses={"maximum-of-nan": 2},
    ),
    Mistake(
        exercise="reductions-backwards",
        name="multiplies by ones of float32",
        source="""
def _sum(g, a_shape, dims, keepdim):
    return _unreduce(g, dims, keepdim, len(a_shape)) * tinytorch.ones(a_shape)
""",
        loses={"sums-backwards": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="adds into a tensor that another source has too",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        if edge is None or vjp is None or (relevant is not None and edge not in relevant):
            continue
        gradient = vjp(g, record, output, i)
        if gradient is None:
            continue
        if op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        if edge in pending:
            pending[edge] += gradient
        else:
            pending[edge] = gradient
""",
        loses={"a-step-adds": 2},
    ),
    Mistake(
        exercise="one-step-back",
        name="takes an empty set for all sources",
        source="""
def _step(record, g, pending, relevant):
    op = record.op
    output = _output_of(record) if op.saves_output else None
    for i, edge in enumerate(record.edges):
        vjp = op.vjps[i if len(op.vjps) > i else -1]
        if edge is None or vjp is None or (relevant and edge not in relevant):
            continue
        gradient = vjp(g, record, output, i)
        if gradient is None:
            continue
        if op.kind == "elementwise":
            gradient = sum_to(gradient, record.metas[i].shape)
        pending[edge] = pending[edge] + gradient if edge in pending else gradient
""",
        loses={"a-step-is-sparing": 2},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="lines-that-read-inputs",
        name="by the result, and with the factors on other sides",
        source="""
gradient("sub", a=lambda g: g * 1.0, b=lambda g: g * -1.0)
gradient("mul", a=lambda g, b: b * g, b=lambda g, a: a * g)
gradient("div", a=lambda g, b: g * (1.0 / b), b=lambda g, out, b: (g * out) / (-b))
""",
    ),
    Alternative(
        exercise="lines-that-read-the-result",
        name="multiplied out",
        source="""
gradient("exp", a=lambda g, out: out * g)
gradient("sqrt", a=lambda g, out: 0.5 * (g / out))
gradient("tanh", a=lambda g, out: g - g * out * out)
gradient("sigmoid", a=lambda g, out: g * out - g * out * out)
""",
    ),
    Alternative(
        exercise="sums-of-what-was-repeated",
        name="one dimension at a time",
        source="""
def sum_to(x, shape):
    if tuple(x.shape) == tuple(shape):
        return x
    while x.ndim > len(shape):
        x = sum(x, 0)
    for d, size in enumerate(shape):
        if size != x.shape[d]:
            x = sum(x, d, keepdim=True)
    return x


gradient(
    "matmul",
    a=lambda g, b, a_shape: sum_to(g @ movement.transpose(b, -2, -1), a_shape),
    b=lambda g, a, b_shape: sum_to(movement.transpose(a, -2, -1) @ g, b_shape),
)
""",
    ),
    Alternative(
        exercise="reductions-backwards",
        name="puts sizes of 1 in, and counts the winners",
        source="""
def _unreduce(g, dims, keepdim, ndim):
    if keepdim:
        return g
    sizes = list(g.shape)
    for d in sorted(dims):
        sizes.insert(d, 1)
    return in_shape(g, tuple(sizes))


def _sum(g, a_shape, dims, keepdim):
    column = _unreduce(g, dims, keepdim, len(a_shape))
    return column if column.shape == a_shape else expand(column, a_shape)


def _extremum(g, a, out, dims, keepdim):
    top, back = (_unreduce(t, dims, keepdim, a.ndim) for t in (out, g))
    winners = (a == top).to(g.dtype) + (a != a).to(g.dtype)
    count = apply(ops.sum, winners, dims=dims, keepdim=True)
    return winners * (back / count)
""",
    ),
    Alternative(
        exercise="inputs-first",
        name="keeps an iterator over the edges of each record on its way down",
        source="""
def _topological_order(roots):
    order, met = [], set()

    def edges_of(source):
        return iter(source.edges if isinstance(source, Record) else ())

    for root in roots:
        if root in met:
            continue
        met.add(root)
        path = [(root, edges_of(root))]
        while path:
            source, left = path[-1]
            edge = next((e for e in left if e is not None and e not in met), None)
            if edge is None:
                order.append(source)
                path.pop()
            else:
                met.add(edge)
                path.append((edge, edges_of(edge)))
    return order
""",
    ),
    Alternative(
        exercise="one-step-back",
        name="computes all gradients first, then adds them",
        source="""
def _step(record, g, pending, relevant):
    rules = record.op.vjps
    result = None
    if record.op.saves_output:
        result = _output_of(record)
    found = []
    for i in range(len(record.edges)):
        source = record.edges[i]
        wanted = source is not None and (relevant is None or source in relevant)
        rule = rules[min(i, len(rules) - 1)]
        if wanted and rule is not None:
            found.append((i, source, rule(g, record, result, i)))
    for i, source, part in found:
        if part is not None:
            if record.op.kind == "elementwise":
                part = sum_to(part, record.metas[i].shape)
            pending[source] = pending[source] + part if source in pending else part
""",
    ),
    Alternative(
        exercise="recording-on-and-off",
        name="with an index in place of pop and append",
        source="""
class GradMode(tinytorch.autograd.modes.GradMode):
    def __enter__(self):
        self._open += [grad_mode(self.mode)]
        self._open[-1].__enter__()

    def __exit__(self, kind, error, trace):
        newest = self._open[-1]
        del self._open[-1]
        newest.__exit__(kind, error, trace)
""",
    ),
    Alternative(
        exercise="central-difference",
        name="sums the two values, with a dictionary of what is moved",
        source="""
def _central_difference(function, inputs, checked, directions, weight, eps):
    total = 0.0
    for sign in (1.0, -1.0):
        placed = {
            i: (inputs[i].detach() + direction * (sign * eps)).requires_grad_(True)
            for i, direction in zip(checked, directions)
        }
        with grad_mode(True):
            result = function(*[placed.get(i, given) for i, given in enumerate(inputs)])
        total += sign * (result.detach() * weight.detach()).sum().item()
    return total / (2.0 * eps)
""",
    ),
]

# Changes of the reference that are right too, and why.
SUM_OF_ONE = "the sum over a size of 1 changes nothing"
RESHAPED = "the reshape below gives the shape in either case"
AS_IT_IS = "a short cut: the same shape comes out"
ASKED_AGAIN = "it is asked again when the source is taken from the stack"
ONE_RULE = "an op with fewer rules than inputs has one: the last is the first"
SHAPE_THERE = (
    "sum_to gives what has the shape already as it is, and only elementwise gradients have another"
)
AS_TENSORS = "tensors are subtracted and divided as arrays are"
NO_HISTORY = "a weight that requires a gradient is not promised"
IS_FLOAT = "NumPy's float64 is a float"
EQUIVALENT = [
    Equivalent(
        "sums-of-what-was-repeated",
        "sum_to: shape[i - new] == 1 and x.shape[i] != 1 -> shape[i - new] == 1",
        SUM_OF_ONE,
    ),
    Equivalent(
        "sums-of-what-was-repeated",
        "sum_to: apply(ops.sum, x, dims=dims, keepdim=False) -> apply(ops.sum, x, dims=dims, "
        "keepdim=True)",
        RESHAPED,
    ),
    Equivalent("reductions-backwards", "_unreduce: keepdim or not dims -> keepdim", AS_IT_IS),
    Equivalent(
        "inputs-first",
        "_topological_order: edge is not None and edge not in seen -> edge is not None",
        ASKED_AGAIN,
    ),
    Equivalent(
        "one-step-back",
        "_step: i if len(vjps) > i else -1 -> i if len(vjps) > i else 0",
        ONE_RULE,
    ),
    Equivalent(
        "one-step-back",
        "_step: if op.kind == 'elementwise' and gradient.meta is not record.metas[i]: -> if True:",
        SHAPE_THERE,
    ),
    Equivalent(
        "one-step-back",
        "_step: op.kind == 'elementwise' and gradient.meta is not record.metas[i] -> op.kind == "
        "'elementwise' or gradient.meta is not record.metas[i]",
        SHAPE_THERE,
    ),
    Equivalent(
        "one-step-back",
        "_step: op.kind == 'elementwise' and gradient.meta is not record.metas[i] -> "
        "gradient.meta is not record.metas[i]",
        SHAPE_THERE,
    ),
    Equivalent(
        "one-step-back",
        "_step: op.kind == 'elementwise' and gradient.meta is not record.metas[i] -> op.kind == "
        "'elementwise'",
        SHAPE_THERE,
    ),
    Equivalent(
        "central-difference",
        "_central_difference.along: np.asarray((out * weight.detach()).numpy()) -> (out * "
        "weight.detach()).numpy()",
        AS_TENSORS,
    ),
    Equivalent(
        "central-difference",
        "_central_difference.along: (out * weight.detach()).numpy() -> out * weight.detach()",
        AS_TENSORS,
    ),
    Equivalent(
        "central-difference",
        "_central_difference.along: weight.detach() -> weight",
        NO_HISTORY,
    ),
    Equivalent(
        "central-difference",
        "_central_difference: float(((along(eps) - along(-eps)) / (2 * eps)).sum()) -> "
        "((along(eps) - along(-eps)) / (2 * eps)).sum()",
        IS_FLOAT,
    ),
]
