"""Conditions on the values of a trace's inputs.

A trace has no values. Where a function does something simpler for most values, as a loss does when
no label is to be ignored, the trace may follow the values of its example, and is then right for
calls in which the condition holds as well. Each call looks; where it does not, it is traced anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinytorch import ops
from tinytorch.dispatch import assumed
from tinytorch.dtypes import promote
from tinytorch.graph.bindings import Binding
from tinytorch.graph.node import Node


class ValueGuard(NamedTuple):
    """`condition(array, *args)` holds for the values of an input.

    Attributes:
        name: of the input.
    """

    name: str
    binding: Binding
    condition: Callable[..., bool]
    args: tuple[Any, ...]

    def why_not(self, leaves: list[Any]) -> str | None:
        """What does not hold in a call with these arguments; None if it does."""
        tensor = self.binding.read(leaves)
        is_met = assumed(tensor, self.condition, *self.args)  # this call is being traced itself
        if is_met is None:
            is_met = self.condition(tensor._data, *self.args)
        if is_met:
            return None
        given = ", ".join(map(repr, self.args))
        return f"{self.name} has values for which {self.condition.__name__}({given}) is not true"


def why_not_values(guards: Sequence[ValueGuard], leaves: Sequence[Any]) -> str | None:
    """The first condition that does not hold; None if all do."""
    given = list(leaves)
    return next((why for guard in guards if (why := guard.why_not(given)) is not None), None)


def source_of(node: Node) -> Node:
    """The node whose elements a node's are, or some of them, with the values that they have there.

    >>> import tinytorch
    >>> from tinytorch.graph import trace
    >>> graph = trace(lambda x: x[1:].reshape(-1) * 2, tinytorch.ones(3, 2)).graph
    >>> product = list(graph.nodes)[-2]
    >>> source_of(product.args[0])
    x
    """
    while node.op == "call_function" and (node.target.view or _is_widened(node)):
        (node,) = node.all_input_nodes
    return node


def _is_widened(node: Node) -> bool:
    """Integers become those of another dtype that has them all."""
    if node.target is not ops.cast:
        return False
    before, after = node.all_input_nodes[0].meta["tensor_meta"], node.meta["tensor_meta"]
    return promote(before, after) is after.dtype and not after.dtype.is_floating_point
