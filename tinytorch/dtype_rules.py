"""Dtype rules: which types an op's kernel is given, and which it returns.

A rule takes the op's name, its operands and its parameters; it returns the dtype that each operand
is to be cast to and the dtype of the result. Kernels therefore never convert.
"""

from __future__ import annotations

from tinytorch.dtypes import (
    DEFAULT_FLOAT,
    DEFAULT_INT,
    SCALAR_DTYPES,
    STORAGE_ONLY,
    DType,
    bfloat16,
    bool_,
    promote,
)
from tinytorch.errors import DTypeError
from tinytorch.op import DTypeRule, Operand, Params

Types = tuple[list[DType], DType]


def _common(name: str, operands: list[Operand]) -> DType:
    dtype = promote(*operands)
    if dtype in STORAGE_ONLY:
        raise DTypeError(f"{name}: {dtype.name} is for storage only; compute on x.float()")
    return dtype


def promoted(name: str, operands: list[Operand], params: Params) -> Types:
    """Inputs and result in the common type of the inputs."""
    dtype = _common(name, operands)
    return [dtype] * len(operands), dtype


def numeric(name: str, operands: list[Operand], params: Params) -> Types:
    """The rule `promoted`, but bool is refused: the op has no meaning for it."""
    dtype = _common(name, operands)
    if dtype is bool_:
        raise DTypeError(f"{name} is not defined for bool; use logical ops, or x.int()")
    return [dtype] * len(operands), dtype


def integral(name: str, operands: list[Operand], params: Params) -> Types:
    """Integers only: an op on their bits."""
    dtype = _common(name, operands)
    if dtype is bool_ or dtype.is_floating_point:
        raise DTypeError(f"{name} takes integers, not {dtype.name}; for bool there is logical_...")
    return [dtype] * len(operands), dtype


def floating(name: str, operands: list[Operand], params: Params) -> Types:
    """Integers and bool become the default float."""
    dtype = _common(name, operands)
    dtype = dtype if dtype.is_floating_point else DEFAULT_FLOAT
    return [dtype] * len(operands), dtype


def only_floating(name: str, operands: list[Operand], params: Params) -> Types:
    """Floating point only: integers are refused rather than converted."""
    dtype = _common(name, operands)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name} takes floating-point tensors, not {dtype.name}; use x.float()")
    return [dtype] * len(operands), dtype


def comparing(name: str, operands: list[Operand], params: Params) -> Types:
    """The inputs in their common type; the answer is bool."""
    return [_common(name, operands)] * len(operands), bool_


def logical(name: str, operands: list[Operand], params: Params) -> Types:
    """The inputs read as truth values; the answer is bool."""
    return [bool_] * len(operands), bool_


def accumulating(name: str, operands: list[Operand], params: Params) -> Types:
    """Integers and bool accumulate in the default integer."""
    dtype = _common(name, operands)
    dtype = dtype if dtype.is_floating_point else DEFAULT_INT
    return [dtype] * len(operands), dtype


def ordering(name: str, operands: list[Operand], params: Params) -> Types:
    """Any type in; positions out."""
    dtype = _common(name, operands)
    return [dtype] * len(operands), DEFAULT_INT


def any_type(name: str, operands: list[Operand], params: Params) -> Types:
    """Any type, unchanged, float16 included."""
    dtype = promote(*operands)
    return [dtype] * len(operands), dtype


def added(name: str, operands: list[Operand], params: Params) -> Types:
    """The type of the input, for ops that move and add up: as it is, but for bfloat16, of which
    only the bits are stored."""
    dtype = promote(*operands)
    if dtype is bfloat16:
        raise DTypeError(f"{name}: bfloat16 is for storage only; compute on x.float()")
    return [dtype] * len(operands), dtype


def replaced(name: str, operands: list[Operand], params: Params) -> Types:
    """The rule `promoted` where values are added, any type where they replace others."""
    return (promoted if params["reduce"] == "add" else any_type)(name, operands, params)


def indexed(position: int, values_rule: DTypeRule = any_type) -> DTypeRule:
    """The input at `position` holds int64 positions; the others follow a rule of their own."""

    def rule(name: str, operands: list[Operand], params: Params) -> Types:
        index = operands[position]
        given = SCALAR_DTYPES[index] if isinstance(index, type) else index.dtype
        if given.is_floating_point or given is bool_:
            raise DTypeError(f"{name}: an index must be of integers, not {given.name}")
        values = [o for i, o in enumerate(operands) if i != position]
        wanted, dtype = values_rule(name, values, params)
        return [*wanted[:position], DEFAULT_INT, *wanted[position:]], dtype

    return rule


def selecting(name: str, operands: list[Operand], params: Params) -> Types:
    """A condition, then two values in their common type."""
    dtype = promote(*operands[1:])
    if dtype is bfloat16 and any(isinstance(o, type) for o in operands):
        raise DTypeError(f"{name}: a number beside bfloat16, which is for storage; use x.float()")
    return [bool_, dtype, dtype], dtype


def converting(name: str, operands: list[Operand], params: Params) -> Types:
    """Any type in; the type asked for out."""
    return [promote(*operands)], params["dtype"]


def created(name: str, operands: list[Operand], params: Params) -> Types:
    """No tensor in; the type asked for out."""
    if name == "arange" and params["dtype"] is bfloat16:
        raise DTypeError("arange: bfloat16 is for storage only; count in float32 and convert")
    return [], params["dtype"]


def seeded(name: str, operands: list[Operand], params: Params) -> Types:
    """An int64 seed in; the floating-point type asked for out."""
    dtype: DType = params["dtype"]
    if not dtype.is_floating_point or dtype in STORAGE_ONLY:
        raise DTypeError(
            f"{name}: random numbers in [0, 1) are float32 or float64, not {dtype.name}; for whole "
            f"numbers use randint"
        )
    return [DEFAULT_INT], dtype
