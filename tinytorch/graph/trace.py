"""`trace`: run Tensor code on values that are not known, and write down every op that it runs.

Forward, `backward()` and an optimizer's step all pass through the door of `dispatch`, so one trace
has the whole training step. State that the function writes becomes a result of the graph; a call of
the traced function puts it back in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.graph.bindings import (
    Binding,
    Environment,
    GradBinding,
    StateBinding,
)
from tinytorch.graph.pytree import tree_flatten, tree_unflatten
from tinytorch.graph.traced import TENSOR, Signature, TracedFunction, describe, differs
from tinytorch.graph.tracer import Symbol, TraceError, Tracer
from tinytorch.tensor import Tensor


def trace(
    function: Callable[..., Any],
    *examples: Any,
    decompose: bool | None = True,
    keep_grads: bool = True,
    **named_examples: Any,
) -> TracedFunction:
    """Run a function or Module once on tensors without values, and return the graph of its ops.

    `backward()`, `autograd.grad` and an optimizer's step inside are part of the graph. Nothing is
    computed and nothing outside is changed, but for Python values that the function itself sets.

    Args:
        function: of tensors, and nests of tensors, as `examples` are.
        examples: arguments; of tensors shape, dtype and requires_grad count, of all else the value.
        decompose: write fused ops (softmax, linear, ...) down in their parts; None: those that
            the backend has no kernel for.
        keep_grads: gradients that the function leaves in `.grad` are results of the graph; if
            False they are dropped, and `.grad` is None after a call.

    Raises:
        TraceError: the function asks for values; the message gives the line and what to write.

    >>> import tinytorch
    >>> print(trace(lambda x: (x * 2.0).sum(), tinytorch.ones(3)))
    graph():
        %x : float32[3] = placeholder[x]
        %mul : float32[3] = mul(%x, 2.0)
        %sum : float32[] = sum(%mul, dims=(0,), keepdim=False)
        return (%sum,)
    """
    state = Environment(function).optimizer_state()

    def attempt() -> TracedFunction:
        # Most steps forget old gradients first. What they trace to is right with and without.
        for pretend in (True, False):
            traced = _trace(function, examples, named_examples, decompose, keep_grads, pretend)
            if traced is not None:
                return traced
        raise AssertionError("a trace without pretence stands")

    traced = attempt()
    if traced.signature.optimizer_state != state:
        # the function has made an optimizer's state: is it the same function with it?
        again = attempt()
        if str(again) == str(traced):
            return again
        traced.signature.first_call_differs = True
    return traced


def _trace(
    function: Callable[..., Any],
    examples: tuple[Any, ...],
    named_examples: dict[str, Any],
    decompose: bool | None,
    keep_grads: bool,
    pretend: bool,
) -> TracedFunction | None:
    """Trace once; None if the function read a gradient that was only pretended."""
    environment = Environment(function)
    tracer = Tracer(environment, decompose, pretend)
    for tensor in environment.tensors:
        tracer.watch_grad(tensor)
    leaves, in_spec = tree_flatten((examples, named_examples))
    watched, counted = environment.watched_values(), environment.counted_state()
    names = _argument_names(environment, examples, named_examples)
    arguments = [_argument(tracer, leaf, names[i], i) for i, leaf in enumerate(leaves)]
    args, kwargs = tree_unflatten(arguments, in_spec)
    try:
        with tracer:
            result, out_spec = tree_flatten(function(*args, **kwargs))
        _check_leaks(function)
        _check_frozen(environment, watched, counted)
        happened = _finish(tracer, result, keep_grads)
    finally:
        tracer.restore()
    if tracer.used_pretence:
        return None
    out_leaves = [TENSOR if isinstance(leaf, Tensor) else leaf for leaf in result]
    del result, args, kwargs, arguments
    tracer.make_constants()
    signature = Signature(
        inputs=[tracer.inputs[node] for node in tracer.graph.find_nodes(op="placeholder")],
        in_spec=in_spec,
        in_leaves=[describe(leaf) for leaf in leaves],
        out_spec=out_spec,
        out_leaves=out_leaves,
        watched=watched,
        optimizer_state=environment.optimizer_state(),
        **happened,
    )
    tracer.graph.lint()
    return TracedFunction(tracer.graph, signature, environment)


def _argument(tracer: Tracer, leaf: Any, name: str, position: int) -> Any:
    if isinstance(leaf, np.ndarray):
        raise TraceError(
            f"argument {name} is a NumPy array of shape {leaf.shape}, whose values would be frozen "
            f"into the graph; pass tinytorch.tensor(array)"
        )
    return tracer.argument(leaf, name, position) if isinstance(leaf, Tensor) else leaf


def _argument_names(
    environment: Environment, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """For each leaf of the arguments the name of its parameter."""
    bound = environment.signature.bind(*args, **kwargs).arguments
    names = []
    for name, value in bound.items():
        count = len(tree_flatten(value)[0])
        names += [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
    return names


def _finish(tracer: Tracer, result: list[Any], keep_grads: bool) -> dict[str, Any]:
    """Make the output node. Returns the parts of the signature that follow from what happened."""
    updates = tracer.written()
    clears: list[Binding] = []
    grads: list[tuple[str, Binding, bool]] = []
    owners: list[tuple[Tensor, Binding, Tensor | None]] = [
        (t, StateBinding(t), before) for t, before in tracer.grads_before.items()
    ]
    owners += tracer.arguments
    read = [b for b in tracer.inputs.values() if isinstance(b, GradBinding)]
    for tensor, owner, before in owners:
        binding = GradBinding(owner)
        made = tensor.grad is not None and tensor.grad is not before
        name = tracer.environment.name_of(tensor) or "a tensor"
        if made and keep_grads:
            updates.append((binding, tracer.node_of(tensor.grad)))  # type: ignore[arg-type]
        if (made and not keep_grads) or (before is not None and tensor.grad is None):
            clears.append(binding)
        if made and before is None:
            grads.append((name, owner, True))
        elif any(binding.same(other) for other in read):
            grads.append((name, owner, False))
    results = [tracer.node_of(leaf) for leaf in result if isinstance(leaf, Tensor)]
    tracer.graph.output((*results, *[node for _, node in updates]))
    forward = all(n.meta.get("phase", "forward") == "forward" for n in tracer.graph.nodes)
    if not forward:
        tracer.make_undifferentiable()
    # a leaf that is overwritten stays a leaf, which no graph of values can say
    differentiable = forward and not tracer.wrote_leaf
    bindings = [binding for binding, _ in updates]
    return {
        "updates": bindings, "clears": clears, "grads": grads, "differentiable": differentiable
    }  # fmt: skip


def _check_leaks(function: Callable[..., Any]) -> None:
    """A tensor of the trace that outlives it has no values, and was put there only once."""
    for tensor in (environment := Environment(function)).tensors:
        if isinstance(tensor._data, Symbol):
            raise TraceError(
                f"{environment.name_of(tensor)} was set to a traced tensor ({tensor.meta}), made "
                f"at {tensor._data.node.stack_trace}; return it, or write it into a tensor in place"
            )


def _check_frozen(
    environment: Environment, watched: dict[str, Any], counted: dict[str, Any]
) -> None:
    """A Python value that the function changed would change once, and not at every call."""
    before, after = {**watched, **counted}, environment.watched_values()
    for name, value in {**after, **environment.counted_state()}.items():
        if name not in before or differs(value, before[name]):
            raise TraceError(
                f"{name} became {value!r:.60} in the traced function, and would stay so in every "
                f"call; keep it in a tensor that is written in place, or read it by live_scalar"
            )
