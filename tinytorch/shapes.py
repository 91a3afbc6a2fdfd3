"""Shape rules: the shape of an op's result, or an error that says what does not fit and what would.

A rule takes the op's name (for its messages), the shapes of its inputs and its parameters. It
speaks before any kernel, so every backend fails with the same words.
"""

from __future__ import annotations

from math import ceil, isfinite, prod

from tinytorch.dtypes import Shape
from tinytorch.errors import ShapeError
from tinytorch.op import Params, ShapeRule


def contiguous_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(n, 1)
    return tuple(reversed(strides))


def broadcast(name: str, shapes: list[Shape], params: Params | None = None) -> Shape:
    """The common shape of operands, aligned at the last dimension; a 1 stretches.

    Args:
        name: of the op, for the message.
        shapes: of one or more operands. Dimensions that a shorter one does not have count as 1.
        params: of the op; not read.

    Raises:
        ShapeError: two sizes at one place differ and neither is 1. The message gives the shapes,
            the place (counted from the end, -1 is the last) and the two sizes.

    >>> broadcast("add", [(4, 1), (3,)])
    (4, 3)
    """
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    ndim = max(map(len, shapes))
    result = []
    for position in range(ndim):
        extents = [s[position - ndim + len(s)] for s in shapes if position >= ndim - len(s)]
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            low, high = sorted(wide)[0], sorted(wide)[-1]
            raise ShapeError(
                f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast: counted from "
                f"the end, dimension {position - ndim} is {low} in one and {high} in the other; "
                f"sizes must be equal or 1"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def same(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of the first input."""
    return shapes[0]


def equal(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The one shape of all inputs."""
    if any(s != shapes[0] for s in shapes):
        raise ShapeError(f"{name}: shapes {' and '.join(map(str, shapes))} must be equal")
    return shapes[0]


def given(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape that the parameter `shape` says."""
    shape = tuple(params["shape"])
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"{name}: a shape cannot have negative sizes: {shape}")
    return shape


def reduced(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape without the dimensions `dims`, or with size 1 there if `keepdim`."""
    dims = params["dims"]
    if params["keepdim"]:
        return tuple(1 if i in dims else n for i, n in enumerate(shapes[0]))
    return tuple(n for i, n in enumerate(shapes[0]) if i not in dims)


def reduced_nonempty(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of `reduced`, for reductions that have no value over no elements."""
    dims: tuple[int, ...] = params["dims"]
    kept = [n for i, n in enumerate(shapes[0]) if i not in dims]
    if any(shapes[0][d] == 0 for d in dims) and 0 not in kept:
        raise ShapeError(f"{name}: shape {shapes[0]} has no elements along {dims}")
    return reduced(name, shapes, params)


def arg_reduced(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape without the dimension `dim`."""
    return reduced_nonempty(name, shapes, {"dims": (params["dim"],), "keepdim": params["keepdim"]})


def reshaped(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape asked for, of as many elements."""
    shape = given(name, shapes, params)
    if prod(shape) != prod(shapes[0]):
        raise ShapeError(
            f"{name}: shape {shapes[0]} has {prod(shapes[0])} elements, {shape} has {prod(shape)}"
        )
    return shape


def permuted(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Dimensions in the order `dims`."""
    dims = params["dims"]
    if sorted(dims) != list(range(len(shapes[0]))):
        raise ShapeError(
            f"{name}: dims {tuple(dims)} must name each of the {len(shapes[0])} dimensions of "
            f"shape {shapes[0]} once"
        )
    return tuple(shapes[0][d] for d in dims)


def expanded(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape asked for, into which the input broadcasts."""
    shape = given(name, shapes, params)
    have = shapes[0]
    fits = len(have) <= len(shape) and all(
        h == 1 or h == s for h, s in zip(reversed(have), reversed(shape), strict=False)
    )
    if not fits:
        raise ShapeError(
            f"{name}: shape {have} does not expand to {shape}; aligned at the end, each size must "
            f"be equal or 1"
        )
    return shape


def slice_length(start: int, stop: int, step: int) -> int:
    """Number of positions in `range(start, stop, step)`."""
    return len(range(start, stop, step))


def sliced(name: str, shapes: list[Shape], params: Params) -> Shape:
    """`bounds` has (start, stop, step) for each dimension, as `range` takes them."""
    return tuple(slice_length(*bound) for bound in params["bounds"])


def concatenated(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Sizes add along `dim`; all others are equal."""
    if () in shapes:
        raise ShapeError(f"{name}: a 0-d tensor has no dimension to join along; use stack")
    dim, first = params["dim"], shapes[0]
    for shape in shapes[1:]:
        others = shape[:dim] + shape[dim + 1 :]
        if len(shape) != len(first) or others != first[:dim] + first[dim + 1 :]:
            raise ShapeError(
                f"{name}: shapes {' and '.join(map(str, shapes))} must agree in all dimensions "
                f"but {dim}"
            )
    return (*first[:dim], sum(s[dim] for s in shapes), *first[dim + 1 :])


def taken(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Rows of the first input, in the shape of the index."""
    if not shapes[0]:
        raise ShapeError(f"{name}: a 0-d tensor has no rows to take")
    return shapes[1] + shapes[0][1:]


def gathered(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of the index, which is no larger than the first input but along `dim`."""
    x, index = shapes
    dim = params["dim"]
    fits = len(x) == len(index) and all(
        i == dim or n <= s for i, (n, s) in enumerate(zip(index, x, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"{name}: index {index} must have as many dimensions as {x}, and be no larger in "
            f"any but dim {dim}"
        )
    return index


def replaced(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of the first input; the values have the index's, which fits as in `gather`."""
    x, index, values = shapes
    gathered(name, [x, index], params)
    if values != index:
        raise ShapeError(f"{name}: values {values} must have the index's shape {index}")
    return x


def multiplied(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Without the dimension `dim`, or with size 1 there if `keepdim`."""
    return reduced(name, shapes, {"dims": (params["dim"],), "keepdim": params["keepdim"]})


def partly_sorted(name: str, shapes: list[Shape], params: Params) -> Shape:
    """`length` places along `dim`, which begin at `start` and are within it."""
    (shape,) = shapes
    dim, start, length = params["dim"], params["start"], params["length"]
    if not 0 <= dim < len(shape) or start < 0 or length < 0 or start + length > shape[dim]:
        raise ShapeError(
            f"{name}: places {start} to {start + length} are not within dimension {dim} of {shape}"
        )
    return (*shape[:dim], length, *shape[dim + 1 :])


def scattered(name: str, shapes: list[Shape], params: Params) -> Shape:
    """`length` rows; the values have the index's shape in front."""
    values, index = shapes
    if values[: len(index)] != index:
        raise ShapeError(f"{name}: values {values} must begin with the index's shape {index}")
    return (params["length"], *values[len(index) :])


def updated(name: str, shapes: list[Shape], params: Params) -> Shape:
    """A tensor, a part of it that is as large but along `dim`, and a 0-d position along that."""
    whole, part, start = shapes
    dim = params["dim"]
    fits = len(part) == len(whole) > dim and part[dim] <= whole[dim]
    if not fits or part != (*whole[:dim], part[dim], *whole[dim + 1 :]) or start:
        raise ShapeError(
            f"{name}: update {part} must be as large as {whole}, but for dimension {dim}, where it "
            f"may be smaller; and the start {start} must be 0-d"
        )
    return whole


def windowed(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Sliding windows of `size` every `step` along the last dimension, as a new last dimension."""
    *front, extent = shapes[0]
    if params["size"] < 1 or params["step"] < 1:
        raise ShapeError(
            f"{name}: size {params['size']} and step {params['step']} must be at least 1"
        )
    if params["size"] > extent:
        raise ShapeError(f"{name}: a window of {params['size']} is longer than {extent}")
    return (*front, (extent - params["size"]) // params["step"] + 1, params["size"])


def folded(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Windows added back into a last dimension of `length`."""
    return (*shapes[0][:-2], params["length"])


def matmul(name: str, shapes: list[Shape], params: Params) -> Shape:
    """(..., m, k) and (..., k, n) give (..., m, n); the batch dimensions broadcast.

    Args:
        name: of the op, for the message.
        shapes: the two operands'.
        params: of the op; not read.

    Raises:
        ShapeError: an operand has fewer than two dimensions, the columns of the first are not as
            many as the rows of the second, or the batch dimensions do not broadcast. The message
            gives the shapes, and columns and rows.

    >>> matmul("matmul", [(5, 2, 3), (3, 4)], {})
    (5, 2, 4)
    """
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"{name}: shapes {a} and {b} must have two dimensions or more")
    if a[-1] != b[-2]:
        raise ShapeError(
            f"{name}: shapes {a} and {b} do not fit: the first has {a[-1]} columns, the second "
            f"{b[-2]} rows"
        )
    batch = broadcast(f"{name} (batch dimensions)", [a[:-2], b[:-2]])
    return (*batch, a[-2], b[-1])


def crossed(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Vectors of three components along `dim`, in two arrays of one shape."""
    shape, dim = equal(name, shapes, params), params["dim"]
    if shape[dim] != 3:
        raise ShapeError(f"{name}: shape {shape} must have size 3 along dim {dim}")
    return shape


def linear(name: str, shapes: list[Shape], params: Params) -> Shape:
    """(..., in) with a weight (out, in) and a bias (out,) gives (..., out)."""
    x, w = shapes[0], shapes[1]
    if len(w) != 2 or not x or x[-1] != w[1]:
        raise ShapeError(
            f"{name}: input {x} and weight {w} do not fit: the input's last dimension must be the "
            f"weight's second, {w[1] if len(w) == 2 else '(weight must be 2-d)'}"
        )
    if len(shapes) == 3 and shapes[2] != (w[0],):
        raise ShapeError(f"{name}: bias {shapes[2]} must have shape {(w[0],)}")
    return (*x[:-1], w[0])


def linear_weight(name: str, shapes: list[Shape], params: Params) -> Shape:
    """A gradient (..., out) and an input (..., in) give the weight's (out, in)."""
    g, x = shapes
    if not g or not x or g[:-1] != x[:-1]:
        raise ShapeError(f"{name}: gradient {g} and input {x} must agree but in the last dimension")
    return (g[-1], x[-1])


def labelled(name: str, shapes: list[Shape], params: Params) -> Shape:
    """Logits (n, classes) and labels (n,) give a scalar."""
    logits, labels = shapes[-2:]
    if len(logits) != 2 or labels != logits[:1] or 0 in logits:
        raise ShapeError(
            f"{name}: logits {logits} and labels {labels} do not fit: they must be (n, classes) "
            f"and (n,), with n and classes at least 1"
        )
    return ()


def labelled_gradient(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of the logits."""
    labelled(name, shapes, params)
    return shapes[1]


def normalized(dim: int, data_inputs: int = 1) -> ShapeRule:
    """Inputs of one shape, then weight and bias as long as their dimension `dim`."""

    def rule(name: str, shapes: list[Shape], params: Params) -> Shape:
        x = equal(name, shapes[:data_inputs], params)
        if len(x) < (1 if dim < 0 else dim + 1):
            raise ShapeError(f"{name}: shape {x} has no dimension {dim}")
        if any(s != (x[dim],) for s in shapes[data_inputs:]):
            raise ShapeError(
                f"{name}: input {x} needs weight and bias of shape {(x[dim],)}, not "
                f"{' and '.join(map(str, shapes[data_inputs:]))}"
            )
        _check_groups(name, x[dim], params)
        return x

    return rule


def normalized_weight(dim: int) -> ShapeRule:
    """Gradient and input of one shape give a vector as long as their dimension `dim`."""

    def rule(name: str, shapes: list[Shape], params: Params) -> Shape:
        size = equal(name, shapes, params)[dim]
        _check_groups(name, size, params)
        return (size,)

    return rule


def _check_groups(name: str, channels: int, params: Params) -> None:
    groups = params.get("groups", 1)
    if groups < 1 or channels % groups:
        raise ShapeError(f"{name}: {channels} channels do not make {groups} groups")


def ranged(name: str, shapes: list[Shape], params: Params) -> Shape:
    """The shape of a range: `ceil((stop - start) / step)` elements."""
    start, stop, step = params["start"], params["stop"], params["step"]
    if step == 0 or not all(map(isfinite, (start, stop, step))):
        raise ShapeError(f"{name}: start {start}, stop {stop}, step {step} is not a range")
    return (max(0, ceil((stop - start) / step)),)
