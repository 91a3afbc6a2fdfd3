"""Gradient lines in a notebook: a table of its own, in which ops follow the student's rules.

    table = GradientTable()
    gradient = table.gradient

    gradient("mul", a=lambda g, b: g * b, b=lambda g, a: g * a)
    table.apply("mul", x, y).sum().backward()  # by the line above

An op of this table is a copy of the package's with the student's formulas attached. It runs through
the same dispatch and the same `backward`; the package's own op is not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch import Tensor
from tinytorch.dispatch import apply
from tinytorch.formulas import attach_gradient
from tinytorch.op import Op, find_op


class GradientTable:
    """Collects gradient lines."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}

    def gradient(self, name: str, **formulas: Callable[..., Any] | None) -> None:
        """A gradient line, as `tinytorch.gradients.gradient` takes it; a later one replaces it.

        Raises:
            KeyError: there is no such op.
            TypeError: an input of the op is missing.
        """
        op = _copy(find_op(name))
        attach_gradient(op, formulas)
        self._ops[name] = op

    def apply(self, name: str, *inputs: Any, **params: Any) -> Tensor:
        """The op on these inputs, to be differentiated by the line of this table.

        Raises:
            NotImplementedError: the table has no line for it.
        """
        if name not in self._ops:
            raise NotImplementedError(f"the gradient line of {name!r} is not written yet")
        return apply(self._ops[name], *inputs, **params)


def _copy(op: Op) -> Op:
    """The same row with no gradient, no decomposition and no plans."""
    same = {n.lstrip("_"): getattr(op, n) for n in ("_shape_rule", "_dtype_rule", "_flops")}
    same |= {n: getattr(op, n) for n in ("kind", "scalar", "initial", "optional")}
    same |= {n: getattr(op, n) for n in ("commutative", "random", "view")}
    return Op(op.name, " ".join(op.inputs), **same)
