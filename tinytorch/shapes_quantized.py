"""Shape and dtype rules, and the cost, of products with quantized weights."""

from __future__ import annotations

from math import prod

from tinytorch import dtype_rules
from tinytorch.dtypes import SCALAR_DTYPES, Shape, bfloat16, int8, uint8
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.op import Operand, Params

CODES = {4: uint8, 8: int8, 16: bfloat16}
"""What codes of so many bits are stored in; those of 16 bits are numbers, and their scale is 1."""

BLOCK = 32
"""Codes of 4 bits are packed in blocks of so many: byte j has codes j and j + 16 of its block."""

LEAST = 1e-30
"""The largest magnitude of what shares a scale counts as at least this, and so does the scale of a
row of activations: none is zero, and 127 / LEAST is finite."""

DYNAMIC_STEPS = 127
"""Steps between the ends of a row of activations that is rounded by its own range: 7 bits."""

MOST_DYNAMIC = DYNAMIC_STEPS + 1
"""The largest code of one: a step more, where both ends were halves that were rounded up."""

MOST_STATIC = 255
"""The largest code of an activation that is rounded by a range that is given: 8 bits."""

ACTIVATIONS = ("float", "dynamic", "static")
MOST_TERMS = 65_536
"""A sum of more products of an unsigned and a signed byte does not fit into 32 bits."""


def stored_columns(columns: int, bits: int, group_size: int) -> int:
    """Codes that a row is stored with: `columns`, and zeros up to a whole group and byte.

    Of 16 bits to a multiple of BLOCK, so that vectors of codes end where a row ends.

    >>> stored_columns(70, 8, 0), stored_columns(70, 4, 0), stored_columns(70, 4, 64)
    (70, 96, 128)
    """
    unit = group_size or (1 if bits == 8 else BLOCK)
    return -(-columns // unit) * unit


def linear(name: str, given: list[Shape], params: Params) -> Shape:
    """(..., in) with codes (out, stored), scales (out, groups) and a bias (out,) gives (..., out).

    `stored` is `stored_columns`, half of that for 4 bits. A range of activations is (2,).
    """
    x, weight, scale = given[:3]
    bits, group_size = params["bits"], params["group_size"]
    if bits not in CODES or params["activation"] not in ACTIVATIONS:
        raise ValueError(
            f"{name}: bits {bits} must be 4, 8 or 16, activation {params['activation']!r} one of "
            f"{', '.join(ACTIVATIONS)}"
        )
    if bits == 16 and (group_size or params["activation"] != "float"):
        raise ValueError(
            f"{name}: bfloat16 has no groups and rounds no input: group_size {group_size} must be "
            f"0, activation {params['activation']!r} must be 'float'"
        )
    if group_size < 0 or (bits == 4 and group_size % BLOCK):
        raise ValueError(
            f"{name}: group_size {group_size} must be 0 (a whole row), or positive and, with codes "
            f"of 4 bits, a multiple of {BLOCK}"
        )
    if not x or len(weight) != 2:
        raise ShapeError(f"{name}: input {x} must be (..., in) and weight {weight} (out, stored)")
    columns = stored_columns(x[-1], bits, group_size)
    groups = columns // group_size if group_size else 1
    stored = columns // 2 if bits == 4 else columns
    if weight[1] != stored or scale != (weight[0], groups):
        raise ShapeError(
            f"{name}: for input {x}, {bits} bits and groups of {group_size or 'a row'}, weight "
            f"{weight} must be (out, {stored}) and scale {scale} (out, {groups})"
        )
    if columns > MOST_TERMS and params["activation"] != "float":
        raise ShapeError(
            f"{name}: sums of {columns} products of codes may overflow 32 bits; the input {x} may "
            f"have {MOST_TERMS} columns, or use activation 'float'"
        )
    if len(given) > 3 and given[3] != weight[:1]:
        raise ShapeError(f"{name}: bias {given[3]} must have shape {weight[:1]}")
    if (len(given) > 4) != (params["activation"] == "static") or (given[4:] or [(2,)]) != [(2,)]:
        raise ShapeError(
            f"{name}: activation {params['activation']!r} with a range of shape "
            f"{given[4] if len(given) > 4 else None}; 'static', and nothing else, takes (2,): "
            f"scale and zero point"
        )
    return (*x[:-1], weight[0])


def dtypes(name: str, operands: list[Operand], params: Params) -> dtype_rules.Types:
    """Codes in what `CODES` says; all else in one floating-point type."""
    codes = CODES[params["bits"]]
    weight = operands[1]
    given = SCALAR_DTYPES[weight] if isinstance(weight, type) else weight.dtype
    if given is not codes:
        raise DTypeError(
            f"{name}: codes of {params['bits']} bits are stored in {codes.name}, not {given.name}"
        )
    others = [*operands[:1], *operands[2:]]
    wanted, dtype = dtype_rules.only_floating(name, others, params)
    return [wanted[0], codes, *wanted[1:]], dtype


def flops(given: list[Shape], out: Shape, params: Params) -> int:
    """The FLOPs of the product."""
    return 2 * prod(out) * given[0][-1]
