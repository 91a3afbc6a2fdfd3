"""`TracedFunction`: a graph, and how it is called in place of the function it was traced from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.dispatch import apply
from tinytorch.graph.bindings import ArgumentBinding, Binding, GradBinding, StateBinding
from tinytorch.graph.environment import Environment
from tinytorch.graph.facts import freeze, mismatch, text_of
from tinytorch.graph.interpret import Interpreter
from tinytorch.graph.ir import Graph, GraphError
from tinytorch.graph.pytree import TreeSpec, tree_flatten, tree_unflatten
from tinytorch.graph.symbols import TraceError, View, is_contiguous
from tinytorch.graph.value_guards import ValueGuard, why_not_values
from tinytorch.history import owner_of
from tinytorch.state import STATE, UNRECORDED, GradState, grad_mode
from tinytorch.tensor import Tensor

_GRADIENTS = {True: "on", False: "off", None: "off for inference", UNRECORDED: "off for inference"}


@dataclass
class Signature:
    """The inputs, state, results and changes of a traced function.

    Attributes:
        inputs: where the value of each placeholder comes from.
        updates: where each result beyond the function's own is put.
        clears: `.grad`s that the function set to None.
        in_spec, in_leaves: form of the arguments; what each leaf must be (see `describe`).
        out_spec, out_leaves: form of the result; each leaf as it is, or TENSOR.
        passed: positions of the function's own results that are inputs, the same tensors, and
            of these inputs.
        viewed: positions of results that are views of an input, of that, and by which ops.
        repeated: positions of results that are the same tensor as an earlier one, and of that.
        grad: gradients were on; None if they were off for `inference_mode`.
        optimizer_state: which tensors optimizers' states have.
        first_call_differs: tracing made that state, and with it the function does something else.
        grads: for tensors whose `.grad` was met, whether it was None.
        value_guards: what must hold for values of inputs.
        orders: inputs whose order in memory the function has asked for, and whether it was C's.
        differentiable: the graph has no backward of its own and overwrites no leaf that requires a
            gradient, so calls can be differentiated.
        own_backward: the name of an `autograd.Function` on the way to a result. The graph has the
            ops of its forward, and would be differentiated by theirs.
        loses_history: why results of a forward would lack the history, or the wish for a gradient,
            that eager ones have; or nothing.
    """

    inputs: list[Binding]
    updates: list[Binding]
    clears: list[Binding]
    in_spec: TreeSpec
    in_leaves: list[Any]
    out_spec: TreeSpec
    out_leaves: list[Any]
    passed: list[tuple[int, int]]
    viewed: list[tuple[int, int, tuple[View, ...]]]
    repeated: list[tuple[int, int]]
    grad: GradState
    optimizer_state: list[tuple[int, str, int]]
    grads: list[tuple[str, Binding, bool]]
    differentiable: bool
    own_backward: str
    loses_history: str
    first_call_differs: bool = False
    value_guards: Sequence[ValueGuard] = ()
    orders: Sequence[tuple[str, Binding, bool]] = ()

    @property
    def grad_owners(self) -> list[Binding]:
        """The tensors whose `.grad` a call sets or clears."""
        return [b.owner for b in (*self.updates, *self.clears) if isinstance(b, GradBinding)]

    @property
    def differentiated(self) -> list[Binding]:
        """The inputs for which a backward in the graph may have gradients."""
        return [] if self.differentiable or not self.grad else [
            b for b in self.inputs
            if (isinstance(b, ArgumentBinding) and self.in_leaves[b.position][1])
            or (isinstance(b, StateBinding) and b.tensor.requires_grad)
        ]  # fmt: skip

    def returned(self, results: list[Any], inputs: Sequence[Any]) -> Any:
        """What a call returns: inputs, and what it has twice, are the same tensors there."""
        for i, position in self.passed:
            results[i] = results[i] if inputs[position] is None else inputs[position]
        for i, position, views in self.viewed if inputs else ():
            if not results[i].requires_grad:  # else it needs the history that it has
                results[i] = _view(inputs[position], views)
        for i, first in self.repeated:
            results[i] = results[first]
        rest = iter(results)
        return tree_unflatten(
            [next(rest) if leaf is TENSOR else leaf for leaf in self.out_leaves], self.out_spec
        )


TENSOR = object()
_ORDERS = {True: "in C order", False: "not in C order", None: "in an order not known"}


def _view(tensor: Tensor, views: tuple[View, ...]) -> Tensor:
    """A view of the caller's own memory: code may have seen a copy of it, or written it after."""
    with grad_mode(False):
        for op, params, _, _ in views:
            tensor = apply(op, tensor, **params)
    return tensor


def describe(leaf: Any) -> Any:
    """The properties that a trace is specialised on: shape, dtype and requires_grad; of a Python
    value, itself."""
    if isinstance(leaf, Tensor):
        return (leaf.meta, leaf.requires_grad)
    return freeze(leaf, attributes=True)


class TracedFunction:
    """A graph that is called like the function it was traced from.

    A call reads parameters, buffers, seeds and the like where they are now, runs the graph, puts
    state back in place, and returns what the function would.

    Attributes:
        function: what was traced.
        graph: what runs.
        signature: what its inputs and results are bound to.
        environment: what the function could reach when it was traced.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        graph: Graph,
        signature: Signature,
        environment: Environment,
    ) -> None:
        self.function, self.graph, self.signature = function, graph, signature
        self.again: Callable[..., TracedFunction] | None = None  # traces on other arguments
        self.environment = environment
        self._was_called = False
        self.__signature__ = environment.signature  # for inspect.signature, and so for trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function by its graph; but one that computes gradients, or writes into leaves
        that have them, returns values without history, so that a `backward()` on them is an error.

        Raises:
            GraphError: the graph was not traced for such a call; the message says why.
        """
        leaves, spec = tree_flatten((args, kwargs))
        reason = self.why_not(leaves, spec)
        if reason is not None:
            raise GraphError(f"this trace does not fit the call: {reason}; trace again")
        if reason := self.why_incomplete(leaves):
            raise GraphError(reason)
        return self.execute(leaves)

    def why_not(self, leaves: Sequence[Any], spec: TreeSpec) -> str | None:
        """Why the graph is not right for these arguments, here and now; None if it is."""
        s = self.signature
        if spec != s.in_spec:
            return "the arguments are nested otherwise"
        for i, (leaf, expected) in enumerate(zip(leaves, s.in_leaves, strict=True)):
            reason = _why_not_leaf(leaf, expected, f"argument {i}")
            if reason is not None:
                return reason
        grad = STATE.get().grad
        if s.grad is not grad:
            return f"gradients are {_GRADIENTS[grad]}, and were not"
        reason = self.environment.why_not()
        if reason is not None:
            return reason
        if self.environment.optimizer_state() != s.optimizer_state:
            return "an optimizer's state has other tensors now"
        if s.first_call_differs and self._was_called:
            return "the first call made an optimizer's state, and those after it differ from it"
        for name, binding, was_none in s.grads:
            if (binding.read(list(leaves)).grad is None) is not was_none:
                return f"{name}.grad is {'set' if was_none else 'None'}, and was not"
        for name, binding, was_in_order in s.orders:
            if (given := is_contiguous(binding.read(list(leaves)))) is not was_in_order:
                return f"{name} is {_ORDERS[given]}, and was {_ORDERS[was_in_order]}"
        return why_not_values(s.value_guards, leaves)

    def why_incomplete(self, leaves: list[Any]) -> str | None:
        """The reason why gradients would be lost: the graph's `backward()` ends at its inputs, and
        one of them was computed from others, or is two."""
        for owner in self.signature.grad_owners:
            if (tensor := owner.read(leaves)).history is not None:
                return (
                    f"a backward() in a graph ends at the graph's inputs, and one of shape "
                    f"{tensor.shape} was computed from others that need a gradient; compute it "
                    f"inside too, or pass x.detach().requires_grad_()"
                )
        given = [b.read(leaves) for b in self.signature.differentiated]
        if len(given) > len(set(map(id, given))):
            return (
                "a backward() in a graph has a gradient for each of its inputs, and two of them "
                "are one tensor that requires one; pass it once"
            )
        return None

    def execute(self, leaves: list[Any]) -> Any:
        """Run the graph on arguments that fit, and put state where it belongs."""
        s, self._was_called = self.signature, True
        if s.own_backward:
            raise TraceError(
                f"{s.own_backward} has a backward of its own, which a graph of its forward does "
                f"not know: trace the backward(), too, or the function under no_grad()"
            )
        inputs = [binding.read(leaves) for binding in s.inputs]
        kept = [b.read(leaves)._data for b in s.updates if b.writes_in_place]
        kept += self.graph.constants.values()
        with grad_mode(s.differentiable and STATE.get().grad):
            values = list(Interpreter(self.graph).run(*inputs))
        # an update must not change what a later one still reads, nor a caller a constant
        values = [_unaliased(value, kept) for value in values]
        results = values[: len(values) - len(s.updates)]
        held = {id(owner_of(t._data)) for t in [*inputs, *results]}
        for binding, value in zip(s.updates, values[len(results) :], strict=True):
            binding.write(leaves, value if binding.writes_in_place else _own(value, held))
        for binding in s.clears:
            binding.write(leaves, None)
        return s.returned(results, inputs)

    def with_graph(self, graph: Graph) -> TracedFunction:
        """The same function with another graph of the same inputs and results."""
        new = copy.copy(self)
        new.graph = graph
        return new

    def __str__(self) -> str:
        return str(self.graph)


def _own(value: Tensor, held: set[int]) -> Tensor:
    """A gradient to keep: a copy if somebody holds its memory too, or it is spread out of less."""
    data = value._data
    if isinstance(data, np.ndarray):
        owner = owner_of(data)
        if id(owner) in held or owner.size != data.size or 0 in data.strides:
            return value.clone()
        held.add(id(owner))
    return value


def _unaliased(value: Tensor, kept: list[Any]) -> Tensor:
    """The value; a copy if it is in memory that is about to be written, or must never be."""
    data = value._data
    if not isinstance(data, np.ndarray):  # in a trace of this call
        return value.clone() if kept else value
    for other in kept:
        if isinstance(other, np.ndarray) and np.may_share_memory(data, other):
            return value.clone()
    return value


def _why_not_leaf(leaf: Any, expected: Any, label: str) -> str | None:
    if type(expected) is not tuple and not isinstance(leaf, Tensor):
        return mismatch(leaf, expected, label)
    given = describe(leaf)
    same = type(given) is type(expected) and given == expected
    return None if same else f"{label} is {text_of(given)}, and was {text_of(expected)}"
