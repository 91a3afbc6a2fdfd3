"""Products of vectors, matrices and tensors."""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import meta_of_array
from tinytorch.errors import ShapeError
from tinytorch.functions import arrangement, diagonals, elementwise, movement, reductions
from tinytorch.functions.dims import normalize_dim
from tinytorch.functions.publish import publish
from tinytorch.functions.value_checks import factor_of
from tinytorch.replay import replayed

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def matmul(a: Tensor, other: Tensor) -> Tensor:
    """Matrix product; a 1-d operand is a row on the left, a column on the right.

    Shapes: (..., m, k) with (..., k, n) gives (..., m, n); batch dimensions broadcast.

    Raises:
        ShapeError: the inner dimensions differ, or an operand is 0-d.

    >>> from tinytorch import ones
    >>> matmul(ones(5, 2, 3), ones(3, 4)).shape, matmul(ones(5, 2, 3), ones(3)).shape
    ((5, 2, 4), (5, 2))
    """
    if a.ndim >= 2 and other.ndim >= 2:
        return apply(ops.matmul, a, other)
    if a.ndim == 0 or other.ndim == 0:
        raise ShapeError(f"matmul: shapes {a.shape} and {other.shape}: an operand is 0-d; use *")
    if a.shape[-1] != other.shape[-2 if other.ndim > 1 else 0]:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {other.shape} do not fit: {a.shape[-1]} and "
            f"{other.shape[-2 if other.ndim > 1 else 0]} should be equal"
        )
    out: Tensor = _with_vector(a, other)
    return out


@replayed
def _with_vector(a: Tensor, b: Tensor) -> Tensor:
    left = movement.unsqueeze(a, 0) if a.ndim == 1 else a
    right = movement.unsqueeze(b, -1) if b.ndim == 1 else b
    out = apply(ops.matmul, left, right)
    *batch, m, n = out.shape
    return movement.reshape(out, (*batch, *[m] * (a.ndim > 1), *[n] * (b.ndim > 1)))


def dot(a: Tensor, tensor: Tensor) -> Tensor:
    """Inner product of two vectors: the sum of a[i] * tensor[i].

    Raises:
        ShapeError: an operand is not 1-d, or their sizes differ.
    """
    if a.ndim != 1 or tensor.ndim != 1:
        raise ShapeError(f"dot: shapes {a.shape} and {tensor.shape} must be 1-d; use matmul")
    return matmul(a, tensor)


def outer(a: Tensor, vec2: Tensor) -> Tensor:
    """out[i, j] = a[i] * vec2[j]: (n,) and (m,) give (n, m).

    Raises:
        ShapeError: an operand is not 1-d.
    """
    if a.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(f"outer: shapes {a.shape} and {vec2.shape} must be 1-d")
    return movement.unsqueeze(a, 1) * movement.unsqueeze(vec2, 0)


def mm(a: Tensor, mat2: Tensor) -> Tensor:
    """Matrix product of two matrices, without broadcasting: (m, k) and (k, n) give (m, n).

    Raises:
        ShapeError: an operand is no matrix, or the inner dimensions differ.
    """
    return _of_dims("mm", a, 2, mat2, 2)


def bmm(a: Tensor, mat2: Tensor) -> Tensor:
    """Matrix products of a batch: (n, m, k) and (n, k, p) give (n, m, p).

    Raises:
        ShapeError: an operand is not 3-d, or batch or inner dimensions differ.
    """
    if a.shape[:1] != mat2.shape[:1]:
        raise ShapeError(f"bmm: shapes {a.shape} and {mat2.shape} have different batches")
    return _of_dims("bmm", a, 3, mat2, 3)


def mv(a: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector: (m, k) and (k,) give (m,).

    Raises:
        ShapeError: the operands have other numbers of dimensions, or the inner ones differ.
    """
    return _of_dims("mv", a, 2, vec, 1)


def _of_dims(name: str, a: Tensor, a_dims: int, b: Tensor, b_dims: int) -> Tensor:
    if a.ndim != a_dims or b.ndim != b_dims:
        raise ShapeError(
            f"{name}: shapes {a.shape} and {b.shape} must have {a_dims} and {b_dims} dimensions; "
            f"matmul takes others"
        )
    return matmul(a, b)


def _scaled_sum(name: str, x: Tensor, beta: float, product: Tensor, alpha: float) -> Tensor:
    sizes = zip(reversed(x.shape), reversed(product.shape), strict=False)
    if x.ndim > product.ndim or any(n not in (1, m) for n, m in sizes):
        raise ShapeError(
            f"{name}: {x.shape} does not broadcast to {product.shape}, the shape of the product"
        )
    alpha = factor_of(f"{name}: alpha", alpha, product.dtype)
    beta = factor_of(f"{name}: beta", beta, x.dtype)
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # x does not count, not even its NaN
        return product
    return (x if beta == 1 else x * beta) + product


def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * (mat1 @ mat2), for matrices; x broadcasts."""
    return _scaled_sum("addmm", x, beta, mm(mat1, mat2), alpha)


def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * (mat @ vec), for a matrix and a vector; x broadcasts."""
    return _scaled_sum("addmv", x, beta, mv(mat, vec), alpha)


def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * outer(vec1, vec2); x broadcasts."""
    return _scaled_sum("addr", x, beta, outer(vec1, vec2), alpha)


def baddbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * bmm(batch1, batch2); x broadcasts."""
    return _scaled_sum("baddbmm", x, beta, bmm(batch1, batch2), alpha)


def addbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * the sum of bmm(batch1, batch2) over the batch; x broadcasts."""
    products = bmm(batch1, batch2)
    return _scaled_sum("addbmm", x, beta, reductions.sum(products, 0, dtype=products.dtype), alpha)


def inner(a: Tensor, other: Tensor) -> Tensor:
    """Sum of products over the last dimensions: (..., k) and (*others, k) give (..., *others).

    Raises:
        ShapeError: the last dimensions differ.
    """
    if not a.ndim or not other.ndim:
        return a * other
    if a.shape[-1] != other.shape[-1]:
        raise ShapeError(f"inner: shapes {a.shape} and {other.shape} differ in the last dimension")
    product = apply(ops.matmul, movement.rows(a), movement.rows(other).mT)
    return movement.reshape(product, a.shape[:-1] + other.shape[:-1])


def kron(a: Tensor, other: Tensor) -> Tensor:
    """Kronecker product: every element of a, times `other`, in a's place."""
    ndim = max(a.ndim, other.ndim)
    first, second = ((1,) * (ndim - t.ndim) + t.shape for t in (a, other))
    shape = tuple(m * n for m, n in zip(first, second, strict=True))
    if ndim > 1:  # rows of the result are made first, so that the product runs along them
        m, n = first[-1], second[-1]
        a = movement.expand(movement.reshape(a, (*first, 1)), (*first, n))
        other = movement.expand(movement.reshape(other, (*second[:-1], 1, n)), (*second[:-1], m, n))
        row: tuple[int, ...] = (m * n,)
        first, second = first[:-1], second[:-1]
    else:
        row = ()
    left = movement.reshape(a, (*(s for n in first for s in (n, 1)), *row))
    right = movement.reshape(other, (*(s for n in second for s in (1, n)), *row))
    return movement.reshape(left * right, shape)


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sum of products over several dimensions: the last `dims` of a and first of b, or those named.

    Raises:
        ShapeError: the dimensions that are summed have different sizes.
        ValueError: `dims` is negative.

    >>> from tinytorch import ones
    >>> tensordot(ones(2, 3, 4), ones(4, 3, 5), dims=([2, 1], [0, 1])).shape
    (2, 5)
    """
    if isinstance(dims, int):
        if dims < 0:
            raise ValueError(f"tensordot: dims must not be negative: {dims}")
        dims = (range(a.ndim - dims, a.ndim), range(dims))
    left, right = ([d % max(t.ndim, 1) for d in ds] for t, ds in zip((a, b), dims, strict=True))
    if [a.shape[d] for d in left] != [b.shape[d] for d in right]:
        raise ShapeError(f"tensordot: shapes {a.shape} and {b.shape} differ in {left} and {right}")
    kept_a = [d for d in range(a.ndim) if d not in left]
    kept_b = [d for d in range(b.ndim) if d not in right]
    summed = math.prod(a.shape[d] for d in left)
    rows, columns = (a.shape[d] for d in kept_a), (b.shape[d] for d in kept_b)
    shape = (*rows, *columns)
    m = math.prod(a.shape[d] for d in kept_a)
    n = math.prod(b.shape[d] for d in kept_b)
    first = movement.reshape(movement.permute(a, *kept_a, *left), (m, summed))
    second = movement.reshape(movement.permute(b, *right, *kept_b), (summed, n))
    return movement.reshape(apply(ops.matmul, first, second), shape)


def matrix_power(x: Tensor, n: int) -> Tensor:
    """x @ x @ ... @ x, n times, by squaring; the identity for n = 0.

    Raises:
        ShapeError: x is no square matrix (or batch of them).
        TypeError: n is not a whole number.
        ValueError: n is negative.
    """
    n = operator.index(n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power takes square matrices, not shape {x.shape}")
    if n < 0:
        raise ValueError(f"matrix_power: n must not be negative: {n}")
    if n == 1:
        return x.clone()
    eye = np.eye(x.shape[-1], dtype=x.dtype.dtype)
    result: Tensor | None = None
    while n:
        if n % 2:
            result = x if result is None else matmul(result, x)
        n //= 2
        x = matmul(x, x) if n else x
    if result is None:
        return movement.expand(wrap(eye, meta_of_array(eye)), x.shape).clone()
    return result


def dist(a: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of a - other."""
    return reductions.norm(a - other, p)


MANY = 25  # rows, from which on PyTorch takes a product
BY_PRODUCT = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist")


def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = BY_PRODUCT[0]
) -> Tensor:
    """The distance of each row of x1 (..., m, k) from each row of x2 (..., n, k): (..., m, n).

    As in PyTorch, for p = 2 and more than 25 rows in x1 or x2, |x - y|^2 is computed from a matrix
    product, as |x|^2 + |y|^2 - 2 x y. That is fast, and rounds off what is small beside |x|^2: of
    near rows the distance may be wrong by |x| times the square root of the precision.

    Args:
        p: of the norm.
        compute_mode: "use_mm_for_euclid_dist_if_necessary" (and None) for that rule;
            "use_mm_for_euclid_dist" for a product also of few rows, and
            "donot_use_mm_for_euclid_dist" for differences, whose distances are exact.

    Raises:
        ShapeError: an operand has no rows, or their lengths differ.
        ValueError: compute_mode is none of these.
    """
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: {x1.shape} and {x2.shape} must be rows of one length")
    mode = compute_mode or BY_PRODUCT[0]
    if mode not in (*BY_PRODUCT, "donot_use_mm_for_euclid_dist"):
        raise ValueError(
            f"cdist: compute_mode is {', '.join(map(repr, BY_PRODUCT))} or "
            f"'donot_use_mm_for_euclid_dist', not {compute_mode!r}"
        )
    is_many = max(x1.shape[-2], x2.shape[-2]) > MANY
    if p == 2 and (mode == BY_PRODUCT[1] or (mode == BY_PRODUCT[0] and is_many)):
        first, second = (reductions.sum(t * t, -1) for t in (x1, x2))
        products = apply(ops.matmul, x1, x2.mT) * 2.0
        squares = movement.unsqueeze(first, -1) + movement.unsqueeze(second, -2) - products
        return reductions.root(elementwise.clip(squares, 0.0), 2)
    differences = movement.unsqueeze(x1, -2) - movement.unsqueeze(x2, -3)
    return reductions.norm(differences, p, -1)


def cross(a: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross product of vectors of three components along `dim`; the other dimensions broadcast.

    Args:
        dim: None for the first dimension of `a` that has three elements, as in PyTorch.

    Raises:
        ShapeError: there are not three, or one operand has other dimensions.
    """
    if a.ndim != other.ndim:
        raise ShapeError(f"cross: {a.shape} and {other.shape} must have as many dimensions")
    if dim is None:
        dim = a.shape.index(3) if 3 in a.shape else -1
    place = normalize_dim(dim, a.ndim)
    if not a.shape[place] == other.shape[place] == 3:
        raise ShapeError(f"cross: {a.shape} and {other.shape} must have 3 elements along dim {dim}")
    if a.meta.shape != other.meta.shape:
        a, other = arrangement.broadcast_tensors(a, other)
    return apply(ops.cross, a, other, dim=place)


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Einstein summation: `einsum("bij,bjk->bik", x, y)` is a batched matrix product.

    Or `einsum(x, [0, 1, 2], y, [0, 2, 3], [0, 1, 3])`, with numbers and `...` in place of letters.

    Letters name dimensions; those not in the result are summed. "..." stands for dimensions that
    broadcast. Without "->" the result has the letters that occur once, in alphabetical order.
    Operands are contracted from left to right, each step as one matrix product.

    Raises:
        ValueError: the equation cannot be read, or does not have as many terms as operands.
        ShapeError: a letter stands for two different sizes.

    >>> from tinytorch import tensor
    >>> x = tensor([[1, 2], [3, 4]])
    >>> einsum("ij,j->i", x, tensor([1, 10])), einsum("ii->", x)
    (tensor([21, 43]), tensor(5))
    """
    if is_tensor(equation):
        equation, operands = _with_letters(equation, *operands)
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    terms, result = _parse(equation, operands)
    sizes = _sizes(terms, operands)
    term, value = _without_repeats(terms[0], operands[0])
    for i, (next_term, operand) in enumerate(zip(terms[1:], operands[1:], strict=True), start=2):
        next_term, operand = _without_repeats(next_term, operand)
        needed = set(result).union(*terms[i:])
        term, value = _contract(term, value, next_term, operand, needed, sizes)
    gone = tuple(i for i, letter in enumerate(term) if letter not in result)
    if gone:
        value = reductions.sum(value, gone)
        term = [letter for letter in term if letter in result]
    return movement.permute(value, *[term.index(letter) for letter in result]) if term else value


def _with_letters(*arguments: Any) -> tuple[str, tuple[Tensor, ...]]:
    """The equation and the operands, where a list of numbers follows each operand."""
    letters = string.ascii_uppercase + string.ascii_lowercase  # in this order they are sorted
    has_result = len(arguments) % 2 == 1
    lists = [*arguments[1::2], *arguments[-1:]] if has_result else arguments[1::2]
    terms = ["".join(["..." if i is ... else letters[i] for i in numbers]) for numbers in lists]
    count = len(arguments) // 2
    return ",".join(terms[:count]) + "->" * has_result + "".join(terms[count:]), arguments[:-1:2]


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(operands):
        raise ValueError(
            f"einsum: {equation!r} has {len(parts)} terms for {len(operands)} operands"
        )
    unused = [
        c for c in map(chr, (*range(65, 91), *range(97, 123))) if c not in equation
    ]  # A-Z a-z
    widest = 0
    for part, operand in zip(parts, operands, strict=True):
        widest = (
            max(widest, operand.ndim - len(part.replace("...", ""))) if "..." in part else widest
        )
    batch = unused[:widest]
    terms = [_expand(p, o, batch, equation) for p, o in zip(parts, operands, strict=True)]
    if arrow:
        before, dots, after = right.partition("...")
        result = [*before, *(batch if dots else []), *after]
    else:
        every = [c for part in parts for c in part.replace("...", "")]
        result = batch + sorted(c for c in set(every) if every.count(c) == 1)
    known = {c for term in terms for c in term}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ValueError(f"einsum: the result of {equation!r} repeats a letter or has a new one")
    return terms, result


def _expand(part: str, operand: Tensor, batch: list[str], equation: str) -> list[str]:
    before, dots, after = part.partition("...")
    letters = [*before, *after]
    extra = operand.ndim - len(letters)
    if not all(c.isalpha() for c in letters) or extra < 0 or (extra and not dots):
        raise ValueError(
            f"einsum: term {part!r} of {equation!r} does not fit an operand of {operand.ndim} "
            f"dimensions, shape {operand.shape}"
        )
    return [*before, *(batch[len(batch) - extra :] if dots else []), *after]


def _sizes(terms: list[list[str]], operands: Sequence[Tensor]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, extent in zip(term, operand.shape, strict=True):
            if sizes.setdefault(letter, extent) != extent:
                if 1 not in (sizes[letter], extent):
                    raise ShapeError(
                        f"einsum: {letter!r} is {sizes[letter]} in one operand and {extent} in "
                        f"another"
                    )
                sizes[letter] = max(sizes[letter], extent)
    return sizes


def _without_repeats(term: list[str], x: Tensor) -> tuple[list[str], Tensor]:
    """A letter that is twice in one term means the diagonal."""
    for letter in sorted({c for c in term if term.count(c) > 1}):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            x = diagonals.diagonal(x, 0, first, second)
            term = [c for i, c in enumerate(term) if i not in (first, second)] + [letter]
    return term, x


def _contract(
    term_a: list[str],
    a: Tensor,
    term_b: list[str],
    b: Tensor,
    needed: set[str],
    sizes: dict[str, int],
) -> tuple[list[str], Tensor]:
    """One matrix product: (batch, rows, summed) times (batch, summed, columns)."""
    shared = [c for c in term_a if c in term_b]
    batch = [c for c in shared if c in needed]
    summed = [c for c in shared if c not in needed]
    rows = [c for c in term_a if c not in shared]
    columns = [c for c in term_b if c not in shared]
    left = _arranged(term_a, a, batch, rows, summed, sizes)
    right = _arranged(term_b, b, batch, summed, columns, sizes)
    product = apply(ops.matmul, left, right)
    term = batch + rows + columns
    return term, movement.reshape(product, tuple(sizes[c] for c in term))


def _arranged(
    term: list[str], x: Tensor, batch: list[str], m: list[str], n: list[str], sizes: dict[str, int]
) -> Tensor:
    """x as (product of batch, product of m, product of n)."""
    order = batch + m + n
    x = movement.permute(x, *[term.index(c) for c in order]) if order else x
    x = movement.expand(x, tuple(sizes[c] for c in order))
    merged = []
    for group in (batch, m, n):
        extent = 1
        for letter in group:
            extent *= sizes[letter]
        merged.append(extent)
    return movement.reshape(x, tuple(merged))


publish(
    globals(),
    replayed="dot outer mm mv addmm addmv addr baddbmm addbmm inner kron matrix_power dist "
    "cdist cross einsum tensordot bmm",
    functions="einsum tensordot cdist",
    aliases={"ger": "outer"},
)
