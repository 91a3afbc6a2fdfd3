"""Loops for elementwise ops: instructions on the elements of views, and which loops become one.

Loops that follow one another over the same shape become one (the three updates of Adam), if no
element is read that another round has written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.dtypes import DType, Shape
from tinytorch.graph.compiler.native.code import Unsupported
from tinytorch.graph.compiler.native.strides import disjoint_extents
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import Memory, StridedView

COMPUTED_IN: dict[str, Any] = {
    "float64": np.float64, "float32": np.float32, "int64": np.int64, "int32": np.int32,
    "bool": np.int32,
}  # fmt: skip
"""The type in which an op computes, by the widest of its operands."""

ON_INTEGERS = frozenset(
    (
        *("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "where", "clip", "relu", "sign"),
        *("eq", "ne", "lt", "le", "logical_not", "logical_and", "logical_or"),
    )
)

MOST_OPERANDS = 12  # that a loop walks through side by side


@dataclass(frozen=True)
class Value:
    """The result of an instruction: its number, and the type of the result."""

    number: int
    dtype: DType


Operand = StridedView | Value | float  # float: any Python number


@dataclass(frozen=True)
class Instruction:
    """One op on the elements: `scalar` (None: nothing but a conversion) in the type `real`."""

    name: str
    scalar: Callable[..., Any] | None
    real: Any
    operands: tuple[Operand, ...]
    result: Value


class Loop:
    """Instructions for every element of a shape, and views that take results.

    Args:
        shape: of the loop. Views may have fewer dimensions, or 1, where they repeat.

    Attributes:
        nodes: of the graph, whose values the loop computes, and where each is stored.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.stores: list[tuple[Value | StridedView, StridedView]] = []
        self.comments: list[str] = []
        self.nodes: list[tuple[Node, StridedView]] = []

    def op(
        self, name: str, scalar: Callable[..., Any], operands: Sequence[Operand], dtype: DType
    ) -> Value:
        """The value of an op on operands; `dtype` is that of its result.

        Raises:
            Unsupported: there is no loop for these types.
        """
        types = [o.dtype for o in operands if isinstance(o, (StridedView, Value))]
        self._check(*types, dtype)
        real = COMPUTED_IN[max(types, key=lambda d: d.rank).name]
        if real in (np.int64, np.int32) and name not in ON_INTEGERS:
            raise Unsupported(f"no loop is generated for {name} of integers")
        result = Value(len(self.instructions), dtype)
        self.instructions.append(Instruction(name, scalar, real, tuple(operands), result))
        return result

    def convert(self, operand: Operand, dtype: DType) -> Value:
        """The operand in another type."""
        self._check(*[operand.dtype] if isinstance(operand, (StridedView, Value)) else [], dtype)
        result = Value(len(self.instructions), dtype)
        self.instructions.append(Instruction("cast", None, dtype, (operand,), result))
        return result

    @staticmethod
    def _check(*types: DType) -> None:
        for dtype in types:
            if dtype.name not in COMPUTED_IN:
                raise Unsupported(f"no loops are generated for {dtype.name}")

    def store(self, value: Value | StridedView, view: StridedView) -> None:
        """Write a value, or the content of another view, to a view of the loop's shape.

        Raises:
            ValueError: the types differ. A store that converts could not be forwarded to a load.
        """
        self._check(view.dtype)
        if value.dtype is not view.dtype:
            raise ValueError(f"a store of {value.dtype.name} to a view of {view.dtype.name}")
        self.stores.append((value, view))

    def read(self) -> list[StridedView]:
        """The views that are read, each once."""
        views = [o for i in self.instructions for o in i.operands if isinstance(o, StridedView)]
        views += [v for v, _ in self.stores if isinstance(v, StridedView)]
        return list(dict.fromkeys(views))

    def written(self) -> list[StridedView]:
        """The views that are written, each once."""
        return [view for _, view in self.stores]

    def can_fuse(self, other: Loop) -> bool:
        """Whether the other loop can be done in the same rounds, after this one.

        Both have the same shape, and whatever one of them writes is, to the other, the same view
        or disjoint. So an element of a round is never an element of another round, and `fuse` knows
        of every load whether a store before it wrote what it reads.

        Nothing is saved by two loops that have no array in common, and each mixture of them would
        be compiled: what Adam does to every parameter is to be one loop, called again and again.
        Of one element the other must read what this one writes.
        """
        if other.shape != self.shape:
            return False
        mine, theirs = {*self.read(), *self.written()}, {*other.read(), *other.written()}
        shared = {view for view in mine & theirs if view.size > 1}
        if math.prod(self.shape) == 1:
            shared = set(self.written()) & set(other.read())
        if not shared:
            return False
        pairs = [(w, p) for w in self.written() for p in (*other.read(), *other.written())]
        pairs += [(r, w) for r in self.read() for w in other.written()]
        return len(mine | theirs) <= MOST_OPERANDS and all(
            a == b or disjoint_extents(a, b) for a, b in pairs
        )

    def fuse(self, other: Loop) -> None:
        """Do the other loop in the same rounds, after this one; requires `can_fuse(other)`.

        Store-to-load forwarding: what the other loop reads of a view that this one stores to comes
        out of a register. A view as an operand means its content before the round, so if this loop
        copied p to q, the other reads p in place of q, and has the p of before the round, even if a
        store in between overwrote p.

        A store of this loop to a view that the other one stores to as well is dead: all loads
        between them are in the same round, and forwarded.
        """
        first = len(self.instructions)
        content = {view: value for value, view in self.stores}

        def forwarded(operand: Any) -> Any:
            if isinstance(operand, Value):
                return Value(operand.number + first, operand.dtype)
            return content.get(operand, operand)

        for i in other.instructions:
            operands = tuple(forwarded(o) for o in i.operands)
            self.instructions.append(
                Instruction(i.name, i.scalar, i.real, operands, forwarded(i.result))
            )
        again = set(other.written())
        self.stores = [(value, view) for value, view in self.stores if view not in again]
        self.stores += [(forwarded(value), view) for value, view in other.stores]
        self.comments += other.comments
        self.nodes += other.nodes

    def eliminate_dead_stores(self, is_read_outside: Callable[[Node, set[Node]], bool]) -> None:
        """Drop the stores that nobody reads.

        A store is dead if its view is in the arena (inputs and results are read after the call)
        and no node outside of the loop reads the value. Nodes inside read a register (see `fuse`).
        A store of a view's own content to it is dead too.

        Args:
            is_read_outside: of a node, and the nodes of the loop: whether another node reads its
                value, itself or through views.
        """
        inside = {node for node, _ in self.nodes}
        last = {view: node for node, view in self.nodes}
        self.stores = [
            (value, view) for value, view in self.stores
            if value != view
            and (view.buffer.memory is not Memory.ARENA or is_read_outside(last[view], inside))
        ]  # fmt: skip
