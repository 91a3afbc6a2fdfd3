"""ATen ops in the terms of TinyTorch's op table, and back.

The rules of `graph/passes` are written once, in the names and parameters of the op table; this is
how they read and write ATen nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

aten = torch.ops.aten


class Signature(NamedTuple):
    """A node as a call of an op of the table.

    Attributes:
        name: of the op.
        operands: tensors (nodes) and numbers.
        parameters: the op's parameters by name.
    """

    name: str
    operands: tuple[Any, ...]
    parameters: dict[str, Any]


#: Ops that mean the same with the same operands in the same order.
SAME: dict[Any, str] = {
    aten.add.Tensor: "add", aten.add.Scalar: "add", aten.sub.Tensor: "sub", aten.sub.Scalar: "sub",
    aten.mul.Tensor: "mul", aten.mul.Scalar: "mul", aten.div.Tensor: "div", aten.div.Scalar: "div",
    aten.pow.Tensor_Scalar: "pow", aten.pow.Tensor_Tensor: "pow", aten.neg.default: "neg",
    aten.abs.default: "abs", aten.exp.default: "exp", aten.log.default: "log",
    aten.sqrt.default: "sqrt", aten.relu.default: "relu", aten.floor.default: "floor",
    aten.tanh.default: "tanh", aten.sigmoid.default: "sigmoid", aten.erf.default: "erf",
    aten.maximum.default: "maximum", aten.minimum.default: "minimum",
    aten.where.self: "where", aten.eq.Tensor: "eq", aten.eq.Scalar: "eq", aten.ne.Tensor: "ne",
    aten.ne.Scalar: "ne", aten.lt.Tensor: "lt", aten.lt.Scalar: "lt", aten.le.Tensor: "le",
    aten.le.Scalar: "le", aten.logical_and.default: "logical_and",
    aten.logical_or.default: "logical_or", aten.logical_not.default: "logical_not",
    aten.detach.default: "detach", aten.alias.default: "detach",
}  # fmt: skip
COMMUTATIVE = ("add", "mul", "eq", "ne", "logical_and", "logical_or")
#: By name, how an ATen node is made.
BUILD: dict[str, Callable[..., Any]] = {
    "add": aten.add.Tensor, "sub": aten.sub.Tensor, "mul": aten.mul.Tensor, "div": aten.div.Tensor,
    "neg": aten.neg.default, "abs": aten.abs.default, "sqrt": aten.sqrt.default,
    "exp": aten.exp.default, "log": aten.log.default, "relu": aten.relu.default,
    "floor": aten.floor.default, "maximum": aten.maximum.default, "minimum": aten.minimum.default,
    "where": aten.where.self, "detach": aten.detach.default, "tanh": aten.tanh.default,
    "sigmoid": aten.sigmoid.default, "erf": aten.erf.default,
    "permute": aten.permute.default, "reshape": aten.view.default, "expand": aten.expand.default,
}  # fmt: skip


def signature(node: Node) -> Signature | None:
    """The call of the op table that a node computes; None if the table has no such op."""
    if node.op != "call_function":
        return None
    if node.target in SAME:
        # a keyword is what the table's op does not have: alpha of add, out
        return None if node.kwargs else Signature(SAME[node.target], tuple(node.args), {})
    read = _READERS.get(node.target)
    value, source = node.meta.get("val"), _value(node)
    if read is None or not isinstance(value, Tensor) or not isinstance(source, Tensor):
        return None
    return read(node, value, source)


def build(name: str, operands: Sequence[Any], parameters: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The ATen op and its arguments for an op of the table.

    Raises:
        KeyError: there is none for it here.
    """
    if name == "pow":
        is_scalar = isinstance(operands[1], (int, float))
        return (aten.pow.Tensor_Scalar if is_scalar else aten.pow.Tensor_Tensor), list(operands)
    if name not in BUILD:
        raise KeyError(f"no ATen op is known for {name!r}; there are {', '.join(sorted(BUILD))}")
    return BUILD[name], [*operands, *(list(p) for p in parameters.values())]


def _value(node: Node) -> Any:
    source = node.args[0] if node.args else None
    return source.meta.get("val") if isinstance(source, Node) else None


def _permute(node: Node, value: Tensor, source: Tensor) -> Signature:
    dims = list(range(source.ndim))
    if node.target is aten.permute.default:
        order: Any = node.args[1]
        dims = [d % source.ndim for d in order]
    elif node.target is aten.transpose.int:
        a, b = (int(d) % source.ndim for d in node.args[1:3])  # type: ignore[arg-type]
        dims[a], dims[b] = dims[b], dims[a]
    else:
        dims.reverse()  # t of a matrix, or of a vector, which stays
    return Signature("permute", (node.args[0],), {"dims": tuple(dims)})


def _shaped(name: str) -> Callable[[Node, Tensor, Tensor], Signature | None]:
    def read(node: Node, value: Tensor, source: Tensor) -> Signature | None:
        # to compare open sizes would fix them
        if not all(isinstance(n, int) for n in (*value.shape, *source.shape)):
            return None
        return Signature(name, (node.args[0],), {"shape": tuple(value.shape)})

    return read


def _clone(node: Node, value: Tensor, source: Tensor) -> Signature | None:
    """A copy that lies in memory as its source does; another one changes what `view` may do."""
    same = str(value.stride()) == str(source.stride())
    return Signature("clone", (node.args[0],), {}) if same else None


def _cast(node: Node, value: Tensor, source: Tensor) -> Signature | None:
    only_dtype = set(node.kwargs) <= {"dtype"} and value.stride() == source.stride()
    return Signature("cast", (node.args[0],), {"dtype": value.dtype}) if only_dtype else None


_READERS: dict[Any, Callable[[Node, Tensor, Tensor], Signature | None]] = {
    aten.permute.default: _permute,
    aten.transpose.int: _permute,
    aten.t.default: _permute,
    aten.view.default: _shaped("reshape"),
    aten._unsafe_view.default: _shaped("reshape"),
    aten.reshape.default: _shaped("reshape"),
    aten.expand.default: _shaped("expand"),
    aten.clone.default: _clone,
    aten._to_copy.default: _cast,
}
