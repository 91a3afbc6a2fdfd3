"""Products of vectors, matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinytorch import ops
from tinytorch.dispatch import apply
from tinytorch.errors import ShapeError
from tinytorch.functions import indexing, movement, reductions

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product; a 1-d operand is a row on the left, a column on the right.

    Shapes: (..., m, k) with (..., k, n) gives (..., m, n); batch dimensions broadcast.

    Raises:
        ShapeError: the inner dimensions differ, or an operand is 0-d.

    >>> from tinytorch import ones
    >>> matmul(ones(5, 2, 3), ones(3, 4)).shape, matmul(ones(5, 2, 3), ones(3)).shape
    ((5, 2, 4), (5, 2))
    """
    if a.ndim >= 2 and b.ndim >= 2:
        return apply(ops.matmul, a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul: shapes {a.shape} and {b.shape}: an operand is 0-d; use *")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape} do not fit: {a.shape[-1]} and "
            f"{b.shape[-2 if b.ndim > 1 else 0]} should be equal"
        )
    left = movement.unsqueeze(a, 0) if a.ndim == 1 else a
    right = movement.unsqueeze(b, -1) if b.ndim == 1 else b
    out = apply(ops.matmul, left, right)
    if b.ndim == 1:
        out = movement.squeeze(out, -1)
    return movement.squeeze(out, -1 if b.ndim == 1 else -2) if a.ndim == 1 else out


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of two vectors: the sum of a[i] * b[i].

    Raises:
        ShapeError: an operand is not 1-d, or their sizes differ.
    """
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"dot: shapes {a.shape} and {b.shape} must be 1-d; use matmul")
    return matmul(a, b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """out[i, j] = a[i] * b[j]: (n,) and (m,) give (n, m).

    Raises:
        ShapeError: an operand is not 1-d.
    """
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer: shapes {a.shape} and {b.shape} must be 1-d")
    return movement.unsqueeze(a, 1) * movement.unsqueeze(b, 0)


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Einstein summation: `einsum("bij,bjk->bik", x, y)` is a batched matrix product.

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
    """A letter that stands twice in one term means the diagonal."""
    for letter in sorted({c for c in term if term.count(c) > 1}):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            x = indexing.diagonal(x, first, second)
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
