"""Shape and dtype rules, and the cost, of attention."""

from __future__ import annotations

from math import prod

from tinytorch import dtype_rules
from tinytorch.dtypes import DEFAULT_INT, SCALAR_DTYPES, Shape, bool_
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.op import DTypeRule, Operand, Params


def attention(name: str, given: list[Shape], params: Params) -> Shape:
    """Query (..., l, e), key (..., s, e), value (..., s, v), a mask and a seed give (..., l, v).

    The dimensions in front are equal, but for the last of them, the heads: those of key and value
    may divide those of the query. The mask broadcasts to (..., l, s).
    """
    query, key, value = given[:3]
    fits = min(map(len, (query, key, value))) >= 2 and query[-1] == key[-1]
    if not fits or key[:-1] != value[:-1]:
        raise ShapeError(
            f"{name}: query {query} must be (..., l, e), key {key} (..., s, e) and value {value} "
            f"(..., s, v), key and value with the same dimensions in front"
        )
    _check_heads(name, query, key)
    if len(given) > 3:
        _check_mask(name, given[3], (*query[:-1], key[-2]))
    if len(given) > 4 and given[4] != ():
        raise ShapeError(f"{name}: the seed must be 0-d, not of shape {given[4]}")
    return (*query[:-1], value[-1])


def _check_heads(name: str, query: Shape, key: Shape) -> None:
    if query[:-2] == key[:-2]:
        return
    if len(query) != len(key) or query[:-3] != key[:-3]:
        raise ShapeError(
            f"{name}: query {query} and key {key} must have the same dimensions before the last two"
        )
    if key[-3] == 0 or query[-3] % key[-3]:
        raise ShapeError(
            f"{name}: {query[-3]} query heads cannot share the heads of key {key}: their number, "
            f"{key[-3]}, must divide {query[-3]}"
        )


def _check_mask(name: str, mask: Shape, scores: Shape) -> None:
    """It broadcasts to the scores (..., l, s), and they do not grow."""
    fits = len(mask) <= len(scores) and all(
        m in (1, n) for m, n in zip(reversed(mask), reversed(scores), strict=False)
    )
    if not fits:
        raise ShapeError(
            f"{name}: mask {mask} does not broadcast to the scores {scores} (..., l, s); aligned "
            f"at the end, each size must be equal or 1"
        )


def gradients(name: str, given: list[Shape], params: Params) -> Shape:
    """Flat: as many as query, key and value have elements together."""
    out = attention(name, given[1:], params)
    if given[0] != out:
        raise ShapeError(f"{name}: the gradient {given[0]} must be of the result's shape {out}")
    return (sum(map(prod, given[1:4])),)


def dtypes(floats: int) -> DTypeRule:
    """The rule for so many inputs of one floating-point type, a mask of it or of bool, an int64
    seed."""

    def rule(name: str, operands: list[Operand], params: Params) -> dtype_rules.Types:
        wanted, dtype = dtype_rules.only_floating(name, operands[:floats], params)
        for mask in operands[floats : floats + 1]:
            kind = SCALAR_DTYPES[mask] if isinstance(mask, type) else mask.dtype
            if kind is not bool_ and not kind.is_floating_point:
                raise DTypeError(
                    f"{name}: the mask must be bool, or floats to add, not {kind.name}; use "
                    f"mask.bool()"
                )
            wanted.append(bool_ if kind is bool_ else dtype)
        return [*wanted, *(DEFAULT_INT for _ in operands[floats + 1 :])], dtype

    return rule


def visible_pairs(length: int, size: int, is_causal: bool) -> int:
    """How many pairs of a query and a key there are: with `is_causal` query i has keys 0 to i.

    >>> visible_pairs(4, 4, False), visible_pairs(4, 4, True), visible_pairs(2, 4, True)
    (16, 10, 3)
    """
    if not is_causal:
        return length * size
    square = min(length, size)
    return square * (square + 1) // 2 + (length - square) * size


def flops(given: list[Shape], out: Shape, params: Params) -> int:
    """Two products and a softmax (5 for each score) for the pairs that are not masked by order."""
    return _flops(given[0], given[2], params, 1, 1, 5)


def backward_flops(given: list[Shape], out: Shape, params: Params) -> int:
    """Five products: the scores once more, the weights' gradient, and one for each result."""
    return _flops(given[1], given[3], params, 3, 2, 9)


def _flops(query: Shape, value: Shape, params: Params, by_e: int, by_v: int, each: int) -> int:
    pairs = visible_pairs(query[-2], value[-2], params["is_causal"])
    return prod(query[:-2]) * pairs * (2 * (by_e * query[-1] + by_v * value[-1]) + each)
