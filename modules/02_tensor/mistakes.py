"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Mistake

MISTAKES = [
    Mistake(
        exercise="broadcast-shapes",
        name="takes the larger size and never refuses",
        source="""
def broadcast(name, shapes, params=None):
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + s for s in shapes]
    return tuple(max(extents) for extents in zip(*padded))
""",
        loses={"broadcast-shapes-errors": 2, "broadcast-shapes-edges": 2},
    ),
    Mistake(
        exercise="broadcast-shapes",
        name="aligns at the first dimension",
        source="""
def broadcast(name, shapes, params=None):
    ndim = max(map(len, shapes))
    result = []
    for position in range(ndim):
        extents = {s[position] for s in shapes if position < len(s)} - {1}
        if len(extents) > 1:
            raise ShapeError(
                f"{name}: shapes {shapes} do not broadcast: {sorted(extents)} at dimension "
                f"{position - ndim}"
            )
        result.append(extents.pop() if extents else 1)
    return tuple(result)
""",
        loses={"broadcast-shapes-values": 3},
    ),
    Mistake(
        exercise="broadcast-shapes",
        name="refuses with a message that does not help",
        source="""
def broadcast(name, shapes, params=None):
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + s for s in shapes]
    result = []
    for extents in zip(*padded):
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            raise ShapeError("shapes do not match")
        result.append(wide.pop() if wide else 1)
    return tuple(result)
""",
        loses={"broadcast-shapes-errors": 2},
    ),
    Mistake(
        exercise="elementwise-loop",
        name="does not repeat the smaller operand",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def elementwise(self, op, *operands):
        dtype = np.result_type(*operands)
        numbers = [x if isinstance(x, np.ndarray) else scalar_of(x, dtype) for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in numbers))
        columns = [np.resize(x, shape).ravel().tolist() for x in numbers]
        values = list(map(op.scalar, *columns))
        return to_array(values, shape, np.dtype(bool) if answers_bool(op) else dtype)
""",
        loses={"elementwise-loop-broadcast": 2},
    ),
    Mistake(
        exercise="elementwise-loop",
        name="gives a comparison the type of its operands",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def elementwise(self, op, *operands):
        dtype = np.result_type(*operands)
        numbers = [x if isinstance(x, np.ndarray) else scalar_of(x, dtype) for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in numbers))
        columns = [np.broadcast_to(x, shape).ravel().tolist() for x in numbers]
        return to_array(list(map(op.scalar, *columns)), shape, dtype)
""",
        loses={"elementwise-loop-dtypes": 2},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="takes the highest of all",
        source="""
def promote(*metas):
    return max([dtype_of(m) for m in metas], key=lambda d: d.rank)
""",
        loses={"promote-dtypes-numbers": 2, "promote-dtypes-zero-d": 1},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="takes a 0-d tensor for one with dimensions",
        source="""
def promote(*metas):
    result = None
    for numbers in (False, True):
        group = [dtype_of(m) for m in metas if isinstance(m, type) is numbers]
        if group:
            strongest = max(group, key=lambda d: d.rank)
            if result is None or category_of(strongest) > category_of(result):
                result = strongest
    return result
""",
        loses={"promote-dtypes-zero-d": 1},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="reshapes where it should permute",
        source="""
def transpose(x, dim0, dim1):
    if x.ndim == 0:
        return x
    sizes = list(x.shape)
    sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
    return reshape(x, tuple(sizes))
""",
        loses={"transpose-moves": 2},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="leaves end_dim out, as a slice would",
        source="""
def flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = normalize_dim(start_dim, x.ndim), normalize_dim(end_dim, x.ndim)
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} is after end_dim {end_dim}")
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start:end]), *x.shape[end:]))
""",
        loses={"flatten-shapes": 2},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="does not look at the order of start and end",
        source="""
def flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = normalize_dim(start_dim, x.ndim), normalize_dim(end_dim, x.ndim)
    return reshape(x, (*x.shape[:start], -1, *x.shape[end + 1:]))
""",
        loses={"transpose-and-flatten-edges": 1},
    ),
    Mistake(
        exercise="operators",
        name="keeps the operands on their sides",
        source="""
class Tensor(tinytorch.Tensor):
    def __rsub__(self, other):
        return apply(ops.sub, self, other)

    def __rtruediv__(self, other):
        return apply(ops.div, self, other)
""",
        loses={"operators-order": 2},
    ),
    Mistake(
        exercise="operators",
        name="reverses all dimensions",
        source="""
class Tensor(tinytorch.Tensor):
    @property
    def mT(self):
        if self.ndim < 2:
            raise ShapeError(f".mT needs at least two dimensions, not {self.shape}")
        return movement.permute(self, *reversed(range(self.ndim)))
""",
        loses={"operators-transpose": 2},
    ),
    Mistake(
        exercise="reduce-loop",
        name="starts every fold at 0",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def reduction(self, op, a, *, dims, keepdim):
        kept = [d for d in range(a.ndim) if d not in dims]
        shape = tuple(a.shape[d] for d in kept)
        size = int(np.prod([a.shape[d] for d in dims], dtype=np.int64))
        rows = a.transpose(*kept, *dims).reshape(int(np.prod(shape, dtype=np.int64)), size).tolist()
        values = [reduce(op.scalar, row, 0) for row in rows]
        if keepdim:
            shape = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        return to_array(values, shape, a.dtype)
""",
        loses={"reduce-loop-values": 2, "reduce-loop-dims": 2},
    ),
    Mistake(
        exercise="reduce-loop",
        name="forgets keepdim",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def reduction(self, op, a, *, dims, keepdim):
        kept = [d for d in range(a.ndim) if d not in dims]
        shape = tuple(a.shape[d] for d in kept)
        size = int(np.prod([a.shape[d] for d in dims], dtype=np.int64))
        rows = a.transpose(*kept, *dims).reshape(int(np.prod(shape, dtype=np.int64)), size).tolist()
        start = [] if op.initial is None else [op.initial]
        return to_array([reduce(op.scalar, row, *start) for row in rows], shape, a.dtype)
""",
        loses={"reduce-loop-dims": 2},
    ),
    Mistake(
        exercise="reduce-loop",
        name="always starts at the first element",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def reduction(self, op, a, *, dims, keepdim):
        kept = [d for d in range(a.ndim) if d not in dims]
        shape = tuple(a.shape[d] for d in kept)
        size = int(np.prod([a.shape[d] for d in dims], dtype=np.int64))
        rows = a.transpose(*kept, *dims).reshape(int(np.prod(shape, dtype=np.int64)), size).tolist()
        values = [reduce(op.scalar, row) for row in rows]
        if keepdim:
            shape = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        return to_array(values, shape, a.dtype)
""",
        loses={"reduce-loop-edges": 1},
    ),
    Mistake(
        exercise="mean",
        name="divides by the number of all elements",
        source="""
def mean(x, dim=None, keepdim=False):
    if not x.dtype.is_floating_point:
        raise DTypeError("mean takes floating-point tensors")
    dims = normalize_dims(dim, x.ndim)
    return apply(ops.div, apply(ops.sum, x, dims=dims, keepdim=keepdim), x.numel())
""",
        loses={"mean-values": 2},
    ),
    Mistake(
        exercise="mean",
        name="takes integers too",
        source="""
def mean(x, dim=None, keepdim=False):
    dims = normalize_dims(dim, x.ndim)
    total = apply(ops.sum, x, dims=dims, keepdim=keepdim)
    return apply(ops.div, total, math.prod(x.shape[d] for d in dims))
""",
        loses={"mean-types": 1},
    ),
    Mistake(
        exercise="matmul-shapes",
        name="compares the last dimensions of both",
        source="""
def matmul(name, shapes, params):
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"{name}: shapes {a} and {b} must have two dimensions or more")
    if a[-1] != b[-1]:
        raise ShapeError(f"{name}: shapes {a} and {b} do not fit")
    return (*broadcast(name, [a[:-2], b[:-2]]), a[-2], b[-2])
""",
        loses={"matmul-shapes-values": 2, "matmul-shapes-errors": 2},
    ),
    Mistake(
        exercise="matmul-shapes",
        name="takes the batch of the first only",
        source="""
def matmul(name, shapes, params):
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"{name}: shapes {a} and {b} must have two dimensions or more")
    if a[-1] != b[-2]:
        raise ShapeError(f"{name}: shapes {a} and {b} do not fit")
    return (*a[:-1], b[-1])
""",
        loses={"matmul-shapes-values": 2, "matmul-shapes-errors": 2},
    ),
    Mistake(
        exercise="matmul-loop",
        name="pairs rows with rows",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def matmul(self, a, b):
        (m, k), n = a.shape[-2:], b.shape[-1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = int(np.prod(batch, dtype=np.int64))
        lefts = np.broadcast_to(a, (*batch, m, k)).reshape(count, m, k).tolist()
        rights = np.broadcast_to(b, (*batch, k, n)).reshape(count, n, k).tolist()
        products = [
            [[sum(map(operator.mul, row, column)) for column in columns] for row in rows]
            for rows, columns in zip(lefts, rights, strict=True)
        ]
        return to_array(products, (*batch, m, n), np.result_type(a, b))
""",
        loses={"matmul-loop-values": 3, "matmul-loop-batches": 2},
    ),
    Mistake(
        exercise="matmul-loop",
        name="knows single matrices only",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def matmul(self, a, b):
        columns = b.T.tolist()
        rows = [[sum(map(operator.mul, row, c)) for c in columns] for row in a.tolist()]
        return to_array(rows, (a.shape[0], b.shape[1]), np.result_type(a, b))
""",
        loses={"matmul-loop-batches": 2},
    ),
]
