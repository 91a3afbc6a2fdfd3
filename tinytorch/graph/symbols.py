"""`Symbol`: what a traced tensor has in place of an array; errors of code that asks for one."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tinytorch
from tinytorch.dtypes import Array, Shape, TensorMeta
from tinytorch.errors import TinyTorchError
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view, has_layout, view_of
from tinytorch.op import Op

if TYPE_CHECKING:
    from tinytorch.graph.tracer import Tracer
    from tinytorch.tensor import Tensor

PACKAGE = str(Path(tinytorch.__file__).parent)
ADVICE = {
    "bool": "where(condition, a, b) computes both sides and chooses; a flag that is fixed can be a "
    "Python value",
    "item": "keep it a 0-d tensor: ops take tensors where they take numbers",
    "numpy": "use the functions of tinytorch, or compute it outside and pass it in as an argument",
    "a mask as an index": "where(mask, a, b) or t.masked_fill_(mask, number) writes, and sums of "
    "t * mask read",
    "tolist": "unbind gives a tuple of tensors; or return the tensor and read it outside",
    "assignment to an index": "where(mask, value, t), or t.copy_(...) for all of it",
    "tensor": "t.detach() or t.clone() instead of tensor(t)",
}
OTHER_ADVICE = "compute it outside of the trace and pass it in"


class TraceError(TinyTorchError, TypeError):
    """Code that cannot be traced. The message gives the user's line and what to write instead."""


@dataclass(slots=True, eq=False)
class Storage:
    """Memory that symbols share: the node of its present value, and how often it was written.

    Attributes:
        array: what the write clock knows this memory by.
        is_contiguous: its elements are in C order in eager mode; None if a trace cannot know.
        orders: the inputs that this follows from.
        is_leaf, is_recorded: it is a leaf's that requires a gradient, or a recorded op made it.
        may_be_shared: `contiguous` copied it, or made it, where eager mode may return the same.
        reshaped: a reshape of it that is a view or a copy, depending on an order not known here.
    """

    node: Node
    array: Array
    is_contiguous: bool | None = True
    orders: frozenset[Node] = frozenset()
    is_leaf: bool = False
    is_recorded: bool = False
    may_be_shared: bool = False
    reshaped: View | None = None
    version: int = 0


View = tuple[Op, dict[str, Any], TensorMeta, TensorMeta]  # op, params, metas before and after


@dataclass(slots=True, eq=False)
class Symbol:
    """Takes the place of a traced tensor's array; knows the node and the memory that it views."""

    tracer: Tracer
    meta: TensorMeta
    node: Node
    storage: Storage
    views: tuple[View, ...]
    version: int = field(init=False)

    def __post_init__(self) -> None:
        self.version = self.storage.version

    @property
    def shape(self) -> Shape:
        """The shape, as an array's."""
        return self.meta.shape

    @property
    def base(self) -> Array:
        """The base, as an array's: the write clock follows it to find the memory."""
        return self.storage.array

    @property
    def is_contiguous(self) -> bool | None:
        """Whether eager mode has the elements in C order; None if a trace cannot know."""
        if not self.storage.is_contiguous:
            return None if self.views else self.storage.is_contiguous
        layout: StridedView | None = None
        for op, params, before, _ in self.views:
            layout = layout or contiguous_view(Buffer(Memory.ARENA), 0, before)
            layout = view_of(op, layout, params) if has_layout(op) else None
            if layout is None:  # a reshape that copies, or a view of a user's
                return None
        return layout is None or layout.is_contiguous

    def concrete(self, asked: str) -> Array:
        """Raise an error where code asks for the values.

        Raises:
            TraceError: always.
        """
        advice = ADVICE.get(asked, OTHER_ADVICE)
        raise TraceError(
            f"{asked}: a trace knows {self.meta}, not the values of it.\n"
            f"  at {user_line(with_code=True)}\n"
            f"  made at {self.node.stack_trace}\n"
            f"  instead: {advice}"
        )


def is_contiguous(tensor: Tensor) -> bool | None:
    """Whether eager mode has the elements in C order; None if a trace cannot know."""
    data = tensor._data
    return data.flags.c_contiguous if isinstance(data, np.ndarray) else data.is_contiguous


def user_line(with_code: bool = False) -> str:
    """The innermost line of the stack that is not TinyTorch's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    name, line = frame.f_code.co_filename, frame.f_lineno
    place = f"{Path(name).name}:{line} in {frame.f_code.co_name}"
    return f"{place}: `{linecache.getline(name, line).strip()}`" if with_code else place
