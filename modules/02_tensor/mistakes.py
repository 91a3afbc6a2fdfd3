"""Wrong solutions that students write, with the points that they lose, and other right ones."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

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
        loses={"broadcast-shapes-values": 3, "broadcast-shapes-edges": 2},
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
        exercise="elementwise-loop",
        name="takes the type of the first array, which may be a condition",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def elementwise(self, op, *operands):
        dtype = next(x.dtype for x in operands if isinstance(x, np.ndarray))
        numbers = [x if isinstance(x, np.ndarray) else scalar_of(x, dtype) for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in numbers))
        columns = [np.broadcast_to(x, shape).ravel().tolist() for x in numbers]
        values = list(map(op.scalar, *columns))
        return to_array(values, shape, np.dtype(bool) if answers_bool(op) else dtype)
""",
        loses={"elementwise-loop-dtypes": 2},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="takes the highest of all",
        source="""
def promote(*metas):
    return _widest([dtype_of(m) for m in metas])
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
            strongest = _widest(group)
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
        loses={"flatten-shapes": 2, "transpose-and-flatten-edges": 1},
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
        loses={"reduce-loop-values": 2, "reduce-loop-dims": 2, "reduce-loop-edges": 1},
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
def mean(x, dim=None, keepdim=False, *, dtype=None):
    x = _converted(x, dtype)
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
def mean(x, dim=None, keepdim=False, *, dtype=None):
    x = _converted(x, dtype)
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
    Mistake(
        exercise="broadcast-shapes",
        name="compares each shape with the first only",
        source="""
def broadcast(name, shapes, params=None):
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    result = list(padded[0])
    for other in padded[1:]:
        for i, (mine, theirs) in enumerate(zip(padded[0], other)):
            if mine != 1 and theirs != 1 and mine != theirs:
                raise ShapeError(f"{name}: {shapes}: {mine} and {theirs} at {i - ndim}")
            result[i] = theirs if result[i] == 1 else result[i]
    return tuple(result)
""",
        loses={"broadcast-shapes-errors": 2},
    ),
    Mistake(
        exercise="elementwise-loop",
        name="takes the first operand's dtype",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def elementwise(self, op, *operands):
        dtype = np.asarray(operands[0]).dtype
        numbers = [x if isinstance(x, np.ndarray) else scalar_of(x, dtype) for x in operands]
        shape = np.broadcast_shapes(*(np.shape(x) for x in numbers))
        columns = [np.broadcast_to(x, shape).ravel().tolist() for x in numbers]
        values = list(map(op.scalar, *columns))
        return to_array(values, shape, np.dtype(bool) if answers_bool(op) else dtype)
""",
        loses={"elementwise-loop-dtypes": 2},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="looks at two operands only",
        source="""
def promote(first, *others):
    result = dtype_of(first)
    for other in others[:1]:
        mine, theirs = strength_of(first), strength_of(other)
        if mine == theirs:
            result = max(result, dtype_of(other), key=lambda d: d.rank)
        elif category_of(dtype_of(other)) > category_of(result):
            result = dtype_of(other)
        elif theirs < mine and category_of(dtype_of(other)) == category_of(result):
            result = dtype_of(other)
    return result
""",
        loses={"promote-dtypes-tensors": 2, "promote-dtypes-zero-d": 1},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="refuses one dimension",
        source="""
def flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = normalize_dim(start_dim, x.ndim), normalize_dim(end_dim, x.ndim)
    if start >= end:
        raise ShapeError(f"flatten: start_dim {start_dim} is not before end_dim {end_dim}")
    merged = math.prod(x.shape[start : end + 1])
    return reshape(x, (*x.shape[:start], merged, *x.shape[end + 1 :]))
""",
        loses={"transpose-and-flatten-edges": 1},
    ),
    Mistake(
        exercise="matmul-shapes",
        name="looks at the first operand's dimensions only",
        source="""
def matmul(name, shapes, params):
    a, b = shapes
    if len(a) < 2:
        raise ShapeError(f"{name}: shapes {a} and {b} must have two dimensions or more")
    if a[-1] != b[-2]:
        raise ShapeError(f"{name}: shapes {a} and {b} do not fit")
    return (*broadcast(name, [a[:-2], b[:-2]]), a[-2], b[-1])
""",
        loses={"matmul-shapes-errors": 2},
    ),
    Mistake(
        exercise="matmul-loop",
        name="multiplies element by element where the shapes are equal",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def matmul(self, a, b):
        if a.shape == b.shape:
            return a * b
        return np.matmul(a, b)
""",
        loses={"matmul-loop-values": 3},
    ),
    Mistake(
        exercise="broadcast-shapes",
        name="makes the caller's shapes longer",
        source="""
def broadcast(name, shapes, params=None):
    ndim = max(map(len, shapes))
    for i, shape in enumerate(shapes):
        shapes[i] = (1,) * (ndim - len(shape)) + tuple(shape)
    result = []
    for position, extents in enumerate(zip(*shapes)):
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            raise ShapeError(f"{name}: {shapes}: at {position - ndim} there are {extents}")
        result.append(wide.pop() if wide else 1)
    return tuple(result)
""",
        loses={"broadcast-shapes-edges": 2},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="flattens to a size of -1, which an empty batch does not have",
        source="""
def flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return reshape(x, (1,))
    start, end = normalize_dim(start_dim, x.ndim), normalize_dim(end_dim, x.ndim)
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} is after end_dim {end_dim}")
    return reshape(x, (*x.shape[:start], -1, *x.shape[end + 1 :]))
""",
        loses={"transpose-and-flatten-edges": 1},
    ),
    Mistake(
        exercise="transpose-and-flatten",
        name="wraps a dimension that is not there",
        source="""
def transpose(x, dim0, dim1):
    if x.ndim == 0:
        return x
    order = list(range(x.ndim))
    dim0, dim1 = dim0 % x.ndim, dim1 % x.ndim
    order[dim0], order[dim1] = dim1, dim0
    return apply(ops.permute, x, dims=tuple(order))
""",
        loses={"transpose-and-flatten-edges": 1},
    ),
    Mistake(
        exercise="operators",
        name="computes with NumPy, and the result has no history",
        source="""
class Tensor(tinytorch.Tensor):
    def __rsub__(self, other):
        return Tensor(other - self.detach().numpy())
""",
        loses={"operators-order": 2},
    ),
    Mistake(
        exercise="reduce-loop",
        name="gives the element first",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def reduction(self, op, a, *, dims, keepdim):
        kept = [d for d in range(a.ndim) if d not in dims]
        shape = tuple(a.shape[d] for d in kept)
        size = math.prod(a.shape[d] for d in dims)
        rows = a.transpose(*kept, *dims).reshape(math.prod(shape), size).tolist()
        start = [] if op.initial is None else [op.initial]
        values = [reduce(lambda so_far, x: op.scalar(x, so_far), row, *start) for row in rows]
        if keepdim:
            shape = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        return to_array(values, shape, a.dtype)
""",
        loses={"reduce-loop-edges": 1},
    ),
    Mistake(
        exercise="mean",
        name="divides by the size of one of the dimensions",
        source="""
def mean(x, dim=None, keepdim=False, *, dtype=None):
    x = _converted(x, dtype)
    _only_floating("mean", x)
    dims = normalize_dims(dim, x.ndim)
    elements = math.prod(x.shape) if dim is None else x.shape[dims[0]]
    return apply(ops.sum, x, dims=dims, keepdim=keepdim) / elements
""",
        loses={"mean-values": 2},
    ),
    Mistake(
        exercise="mean",
        name="asks NumPy, and the result has no history",
        source="""
def mean(x, dim=None, keepdim=False, *, dtype=None):
    x = _converted(x, dtype)
    _only_floating("mean", x)
    dims = normalize_dims(dim, x.ndim)
    elements = math.prod(x.shape[d] for d in dims)
    total = x.detach().numpy().sum(dims, keepdims=keepdim)
    return tinytorch.tensor(total, dtype=x.dtype) / elements
""",
        loses={"mean-values": 2},
    ),
    Mistake(
        exercise="matmul-shapes",
        name="lets the inner sizes broadcast",
        source="""
def matmul(name, shapes, params):
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"{name}: shapes {a} and {b} must have two dimensions or more")
    broadcast(f"{name} of {a} and {b}", [a[-1:], b[-2:-1]])
    return (*broadcast(name, [a[:-2], b[:-2]]), a[-2], b[-1])
""",
        loses={"matmul-shapes-errors": 2},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="takes the higher rank, which cannot hold both",
        source="""
def promote(*metas):
    result = None
    for strength in range(3):
        group = [dtype_of(m) for m in metas if strength_of(m) == strength]
        if group:
            strongest = max(group, key=lambda d: d.rank)
            if result is None or category_of(strongest) > category_of(result):
                result = strongest
    return result
""",
        loses={"promote-dtypes-tensors": 2},
    ),
    Mistake(
        exercise="promote-dtypes",
        name="stops at the first strength that changes the answer",
        source="""
def promote(*metas):
    result = None
    for strength in range(3):
        group = [dtype_of(m) for m in metas if strength_of(m) == strength]
        if group:
            strongest = _widest(group)
            if result is None:
                result = strongest
            elif category_of(strongest) > category_of(result):
                return strongest
    return result
""",
        loses={"promote-dtypes-zero-d": 1},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="broadcast-shapes",
        name="folds one shape after the other into the result, from the end",
        source="""
def broadcast(name, shapes, params=None):
    common = []
    for shape in shapes:
        for place, size in enumerate(reversed(shape)):
            if place == len(common):
                common.append(1)
            if common[place] == 1:
                common[place] = size
            elif size not in (1, common[place]):
                pair = f"{common[place]} against {size}"
                raise ShapeError(f"cannot {name} {shapes}; at place {-place - 1}: {pair}")
    return tuple(reversed(common))
""",
    ),
    Alternative(
        exercise="elementwise-loop",
        name="goes through the indices of the result",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def elementwise(self, op, *operands):
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        kind = np.result_type(*(a.dtype for a in arrays)) if arrays else np.result_type(*operands)
        full = [
            x if isinstance(x, np.ndarray) else np.asarray(scalar_of(x, kind), kind)
            for x in operands
        ]
        views = np.broadcast_arrays(*full)
        values = []
        for index in np.ndindex(views[0].shape):
            values.append(op.scalar(*[view[index].item() for view in views]))
        return to_array(values, views[0].shape, np.dtype(bool) if answers_bool(op) else kind)
""",
    ),
    Alternative(
        exercise="promote-dtypes",
        name="lets one group after the other speak, the strongest first",
        source="""
def promote(*metas):
    by_strength = {}
    for meta in metas:
        by_strength.setdefault(strength_of(meta), []).append(dtype_of(meta))
    winners = [_widest(by_strength[key]) for key in sorted(by_strength)]
    answer = winners[0]
    for winner in winners[1:]:
        answer = winner if category_of(answer) < category_of(winner) else answer
    return answer
""",
    ),
    Alternative(
        exercise="transpose-and-flatten",
        name="looks each dimension up, and counts the merged elements",
        source="""
def transpose(x, dim0, dim1):
    if not x.ndim:
        return x
    swap = {normalize_dim(dim0, x.ndim): dim1, normalize_dim(dim1, x.ndim): dim0}
    order = [normalize_dim(swap.get(d, d), x.ndim) for d in range(x.ndim)]
    return apply(ops.permute, x, dims=tuple(order))


def flatten(x, start_dim=0, end_dim=-1):
    sizes = x.shape or (1,)
    start = normalize_dim(start_dim, len(sizes))
    end = normalize_dim(end_dim, len(sizes))
    if end < start:
        raise ShapeError(f"nothing lies between {start} and {end}")
    count = 1
    for size in sizes[start : end + 1]:
        count *= size
    return reshape(x, sizes[:start] + (count,) + sizes[end + 1 :])
""",
    ),
    Alternative(
        exercise="operators",
        name="by other operators, and by a permutation",
        source="""
class Tensor(tinytorch.Tensor):
    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return apply(ops.div, other, self)

    @property
    def mT(self):
        n = self.ndim
        if n >= 2:
            return movement.permute(self, *range(n - 2), n - 1, n - 2)
        raise ShapeError("a matrix, please")
""",
    ),
    Alternative(
        exercise="reduce-loop",
        name="keeps an accumulator for each place of the result",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def reduction(self, op, a, *, dims, keepdim):
        small = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        cells = {index: [] for index in np.ndindex(small)}
        for index in np.ndindex(a.shape):
            place = tuple(0 if d in dims else i for d, i in enumerate(index))
            cells[place].append(a[index].item())
        totals = []
        for found in cells.values():
            total = found.pop(0) if op.initial is None else op.initial
            for value in found:
                total = op.scalar(total, value)
            totals.append(total)
        shape = small if keepdim else tuple(n for d, n in enumerate(a.shape) if d not in dims)
        return to_array(totals, shape, a.dtype)
""",
    ),
    Alternative(
        exercise="mean",
        name="divides the numbers of elements",
        source="""
def mean(x, dim=None, keepdim=False, *, dtype=None):
    x = _converted(x, dtype)
    _only_floating("an average", x)
    along = normalize_dims(dim, x.ndim)
    total = apply(ops.sum, x, dims=along, keepdim=keepdim)
    count = 1
    for d in along:
        count = count * x.shape[d]
    return total / count
""",
    ),
    Alternative(
        exercise="matmul-shapes",
        name="takes the shapes apart first",
        source="""
def matmul(name, shapes, params):
    try:
        (*left, m, k), (*right, rows, n) = shapes
    except ValueError:
        raise ShapeError(f"{name} takes matrices: {shapes}") from None
    if k != rows:
        raise ShapeError(f"{name}: {k} columns meet {rows} rows in {shapes[0]} @ {shapes[1]}")
    return broadcast(name, [tuple(left), tuple(right)]) + (m, n)
""",
    ),
    Alternative(
        exercise="matmul-loop",
        name="three loops for each matrix of the batch",
        source="""
class NaiveBackend(tinytorch.backends.naive.NaiveBackend):
    def matmul(self, a, b):
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a = np.broadcast_to(a, batch + a.shape[-2:])
        b = np.broadcast_to(b, batch + b.shape[-2:])
        values = []
        for index in np.ndindex(batch):
            left, right = a[index].tolist(), b[index].tolist()
            for row in left:
                for j in range(b.shape[-1]):
                    total = 0
                    for k, number in enumerate(row):
                        total += number * right[k][j]
                    values.append(total)
        return to_array(values, (*batch, a.shape[-2], b.shape[-1]), np.result_type(a, b))
""",
    ),
]

# Changes of the reference that are right too, and why.
SAME_SHAPES = "a short cut for equal shapes, which the loop answers in the same way"
IN_SHAPES = "the sizes are in the shapes of the message too: its text cannot tell"
UNASKED = "the warning before a long loop is not asked for"
AS_LONG = "all columns are of one length"
DTYPE_OF_BOOL = "`to_array` takes a dtype by any name that NumPy knows"
THREE = "there are three strengths: the fourth group is empty"
ONE = "a short cut for one operand of a strength"
NOTHING_MERGED = "a short cut: where start is end, the reshape is to the same shape"
EXCHANGED = "an exchange has no order"
WHOLE = "the same whole number, in a type that reshape takes too"
SLOWER = "NumPy's numbers, of the same values and slower"
EQUIVALENT = [
    Equivalent("broadcast-shapes", "broadcast: shapes[0] -> shapes[-1]", SAME_SHAPES),
    Equivalent(
        "broadcast-shapes",
        "broadcast: if all((s == first for s in shapes)): -> if False:",
        SAME_SHAPES,
    ),
    Equivalent("broadcast-shapes", "broadcast: s == first -> s != first", SAME_SHAPES),
    Equivalent("broadcast-shapes", "broadcast: return first -> nothing", SAME_SHAPES),
    Equivalent("broadcast-shapes", "broadcast: sorted(wide)[0] -> sorted(wide)[1]", IN_SHAPES),
    Equivalent("broadcast-shapes", "broadcast: sorted(wide)[0] -> sorted(wide)[-1]", IN_SHAPES),
    Equivalent("broadcast-shapes", "broadcast: sorted(wide)[-1] -> sorted(wide)[0]", IN_SHAPES),
    Equivalent("broadcast-shapes", "broadcast: sorted(wide)[-1] -> sorted(wide)[-2]", IN_SHAPES),
    Equivalent(
        "elementwise-loop",
        "NaiveBackend.elementwise: warn_if_slow(op.name, 'elements', len(columns[0]), shape) -> "
        "nothing",
        UNASKED,
    ),
    Equivalent("elementwise-loop", "NaiveBackend.elementwise: columns[0] -> columns[-1]", AS_LONG),
    Equivalent(
        "elementwise-loop", "NaiveBackend.elementwise: np.dtype(bool) -> bool", DTYPE_OF_BOOL
    ),
    Equivalent("promote-dtypes", "promote: range(3) -> range(4)", THREE),
    Equivalent(
        "promote-dtypes",
        "promote: group[0] if len(group) == 1 else _widest(group) -> _widest(group)",
        ONE,
    ),
    Equivalent("promote-dtypes", "promote: len(group) -> group", ONE),
    Equivalent("promote-dtypes", "promote: len(group) == 1 -> len(group) == 0", ONE),
    Equivalent("promote-dtypes", "promote: group[0] -> group[-1]", ONE),
    Equivalent("transpose-and-flatten", "flatten: if start == end: -> if False:", NOTHING_MERGED),
    Equivalent("transpose-and-flatten", "flatten: return x -> nothing", NOTHING_MERGED),
    Equivalent("transpose-and-flatten", "flatten: start > end -> start >= end", NOTHING_MERGED),
    Equivalent(
        "operators",
        "Tensor.mT: movement.transpose(self, -1, -2) -> movement.transpose(self, -2, -1)",
        EXCHANGED,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: warn_if_slow(op.name, 'elements', a.size, a.shape) -> nothing",
        UNASKED,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: int(np.prod([a.shape[d] for d in dims], dtype=np.int64)) -> "
        "np.prod([a.shape[d] for d in dims], dtype=np.int64)",
        WHOLE,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: np.prod([a.shape[d] for d in dims], dtype=np.int64) -> "
        "np.prod([a.shape[d] for d in dims])",
        WHOLE,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: a.transpose(*kept, *dims).reshape(int(np.prod(shape, "
        "dtype=np.int64)), size).tolist() -> a.transpose(*kept, "
        "*dims).reshape(int(np.prod(shape, dtype=np.int64)), size)",
        SLOWER,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: int(np.prod(shape, dtype=np.int64)) -> np.prod(shape, "
        "dtype=np.int64)",
        WHOLE,
    ),
    Equivalent(
        "reduce-loop",
        "NaiveBackend.reduction: np.prod(shape, dtype=np.int64) -> np.prod(shape)",
        WHOLE,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: int(np.prod(batch, dtype=np.int64)) -> np.prod(batch, "
        "dtype=np.int64)",
        WHOLE,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: np.prod(batch, dtype=np.int64) -> np.prod(batch)",
        WHOLE,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: warn_if_slow('matmul', 'multiply-adds', count * m * k * n, "
        "(*batch, m, k, n)) -> nothing",
        UNASKED,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: count * m * k * n -> count * m * k / n",
        UNASKED,
    ),
    Equivalent("matmul-loop", "NaiveBackend.matmul: count * m -> count / m", UNASKED),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: np.broadcast_to(a, (*batch, m, k)).reshape(count, m, k).tolist() "
        "-> np.broadcast_to(a, (*batch, m, k)).reshape(count, m, k)",
        SLOWER,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: np.broadcast_to(b, (*batch, k, n)).swapaxes(-1, -2).reshape(count, "
        "n, k).tolist() -> np.broadcast_to(b, (*batch, k, n)).swapaxes(-1, -2).reshape(count, n, "
        "k)",
        SLOWER,
    ),
    Equivalent(
        "matmul-loop",
        "NaiveBackend.matmul: np.broadcast_to(b, (*batch, k, n)).swapaxes(-1, -2) -> "
        "np.broadcast_to(b, (*batch, k, n)).swapaxes(-2, -1)",
        EXCHANGED,
    ),
]
