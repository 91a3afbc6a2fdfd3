"""`trace`: run Tensor code on values that are not known, and write down every op that it runs.

Forward, `backward()` and an optimizer's step all pass through `dispatch.apply`, so one trace
has the whole training step. State that the function writes becomes a result of the graph; a call of
the traced function puts it back in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinytorch.errors import TinyTorchError
from tinytorch.graph.bindings import (
    Binding,
    GradBinding,
    StateBinding,
)
from tinytorch.graph.effects import Effects
from tinytorch.graph.environment import Environment
from tinytorch.graph.facts import MISSING, SIMPLE, attributes_of, differs, is_plain, text_of
from tinytorch.graph.pytree import tree_flatten, tree_unflatten
from tinytorch.graph.symbols import Symbol, TraceError
from tinytorch.graph.traced import TENSOR, Signature, TracedFunction, describe
from tinytorch.graph.tracer import Tracer
from tinytorch.history import Record
from tinytorch.nn.hooks import AttributeHook
from tinytorch.nn.module import Module
from tinytorch.state import STATE, is_recording, phase
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
        # Most steps clear old gradients first. What they trace to is right with and without.
        asked: list[Tensor] = []  # those of which the function asks whether they have gradients
        for assume in (True, False):
            traced = _trace(
                function, examples, named_examples, decompose, keep_grads, assume, asked
            )
            if traced is not None:
                return traced
        raise AssertionError("a trace without assumed gradients is final")

    def on_other_arguments(*args: Any, **kwargs: Any) -> TracedFunction:
        return trace(function, *args, decompose=decompose, keep_grads=keep_grads, **kwargs)

    traced = attempt()
    traced.again = on_other_arguments
    if traced.signature.optimizer_state != state:
        # the function has made an optimizer's state: is it the same function with it?
        again = attempt()
        if str(again) == str(traced):
            again.again = on_other_arguments
            return again
        traced.signature.first_call_differs = True
    return traced


def _trace(
    function: Callable[..., Any],
    examples: tuple[Any, ...],
    named_examples: dict[str, Any],
    decompose: bool | None,
    keep_grads: bool,
    assume: bool,
    asked: list[Tensor],
) -> TracedFunction | None:
    """Trace once; None, and in `asked` of what, if the function read an assumed gradient.

    Code that names `.grad` may also ask whether it is None, which nobody sees: to it none is
    assumed.
    """
    leaves, in_spec = tree_flatten((examples, named_examples))
    environment = Environment(function, leaves)
    effects, counted = Effects(environment), environment.counted_state()
    in_leaves = [describe(leaf) for leaf in leaves]
    asks = environment.mentions("grad")
    if asks and assume:
        return None
    tracer = Tracer(environment, decompose, assume)
    names = argument_names(environment, examples, named_examples)
    arguments = [_argument(tracer, leaf, names[i], i) for i, leaf in enumerate(leaves)]
    for tensor in environment.tensors:  # after the arguments, which have no assumed gradient
        tracer.watch_grad(tensor)
    args, kwargs = tree_unflatten(arguments, in_spec)
    is_final = False
    try:
        with tracer, phase("forward"):  # also of a closure that an optimizer calls
            result, out_spec = tree_flatten(function(*args, **kwargs))
        _check_leaks(function)
        _check_frozen(environment, effects, counted)
        happened = _finish(tracer, result, keep_grads, None if asks else asked)
        asked += tracer.assumed()
        is_final = not (assume and asked)
    except BaseException as error:
        effects.undo()
        asked += tracer.assumed()
        if not (assume and asked and isinstance(error, TinyTorchError)):
            raise  # else it may be of the assumed gradients alone
    finally:
        if assume and not is_final:  # what drops a gradient does so where there is one
            asked += tracer.dropped()
        tracer.restore()
        if not is_final:  # the state that an optimizer made is of a trace that nobody calls
            effects.undo_state()
    if not is_final:
        return None
    out_leaves = [TENSOR if isinstance(leaf, Tensor) else leaf for leaf in result]
    same = [id(leaf) for leaf in result if isinstance(leaf, Tensor)]
    passed = [tracer.input_of(leaf) for leaf in result if isinstance(leaf, Tensor)]
    viewed = [tracer.viewed_by(leaf) for leaf in result if isinstance(leaf, Tensor)]
    del result, args, kwargs, arguments
    tracer.make_constants()
    if tracer.live:  # what they read may change
        environment = Environment(function, leaves, tracer.live)
    inputs = tracer.graph.find_nodes(op="placeholder")
    signature = Signature(
        inputs=[tracer.inputs[node] for node in inputs],
        in_spec=in_spec,
        in_leaves=in_leaves,
        out_spec=out_spec,
        out_leaves=out_leaves,
        passed=[(i, inputs.index(node)) for i, node in enumerate(passed) if node in inputs],
        viewed=[(i, inputs.index(n), views) for i, (n, views) in enumerate(viewed) if n in inputs],
        orders=[
            (node.target, tracer.inputs[node], node.meta["example"].flags.c_contiguous)
            for node in inputs
            if node in tracer.orders
        ],
        repeated=[(i, k) for i, one in enumerate(same) if (k := same.index(one)) != i],
        grad=STATE.get().grad,
        optimizer_state=environment.optimizer_state(),
        value_guards=tracer.value_guards,
        **happened,
    )
    tracer.graph.lint()
    return TracedFunction(function, tracer.graph, signature, environment)


def _argument(tracer: Tracer, leaf: Any, name: str, position: int) -> Any:
    if isinstance(leaf, np.ndarray):
        raise TraceError(
            f"argument {name} is a NumPy array of shape {leaf.shape}, whose values would be frozen "
            f"into the graph; pass tinytorch.tensor(array)"
        )
    return tracer.argument(leaf, name, position) if isinstance(leaf, Tensor) else leaf


def argument_names(
    environment: Environment, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """The name of the parameter that each leaf of the arguments belongs to."""
    bound = environment.signature.bind(*args, **kwargs).arguments
    names = []
    for name, value in bound.items():
        count = len(tree_flatten(value)[0])
        names += [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
    return names


def _finish(
    tracer: Tracer, result: list[Any], keep_grads: bool, asked: list[Tensor] | None
) -> dict[str, Any]:
    """Make the output node. Returns the parts of the signature that follow from what happened.

    Args:
        asked: the tensors of which it matters whether they have gradients; None: all.
    """
    written = tracer.written()
    updates = [u for u in written if keep_grads or type(u[0]) is not GradBinding]
    clears: list[Binding] = []
    grads: list[tuple[str, Binding, bool]] = []
    owners: list[tuple[Tensor, Binding, Tensor | None]] = [
        (t, StateBinding(t), before) for t, before in tracer.grads_before.items()
    ]
    owners += tracer.arguments
    read = [b for b in tracer.inputs.values() if isinstance(b, GradBinding)]
    for tensor, owner, before in owners:
        binding = GradBinding(owner, replaces=True)
        made = tensor.grad is not None and tensor.grad is not before
        name = tracer.environment.name_of(tensor) or "a tensor"
        if made and keep_grads:
            updates.append((binding, tracer.node_of(tensor.grad)))  # type: ignore[arg-type]
        changed = made or any(binding.same(other) for other, _ in written)
        if (changed and not keep_grads) or (before is not None and tensor.grad is None):
            clears.append(binding)
        if made and before is None:
            grads.append((name, owner, True))
        elif any(binding.same(other) for other in read):
            grads.append((name, owner, False))
        elif asked is None or any(tensor is each for each in asked):
            grads.append((name, owner, before is None))
    for leaf in result:
        _check_visible(leaf)
    results = [tracer.result_of(leaf) for leaf in result if isinstance(leaf, Tensor)]
    tracer.graph.output((*results, *[node for _, node in updates]))
    forward = all(n.meta.get("phase", "forward") == "forward" for n in tracer.graph.nodes)
    if forward and tracer.wrote_recorded:
        raise TraceError(
            f"a value with a history is written in place, at {tracer.wrote_recorded}; eager mode "
            f"keeps the history of the old value, which a graph of values cannot say. Write into "
            f"a clone(), or compute all of it under no_grad()"
        )
    # a leaf that is overwritten stays a leaf, which no graph of values can say
    differentiable = forward and not tracer.wrote_leaf and is_recording()
    if not forward or not is_recording():
        tracer.make_undifferentiable()
    if differentiable and tracer.hooked_at:
        raise TraceError(
            f"register_hook at {tracer.hooked_at}: the gradient is computed after the traced "
            f"function, where nobody would call the hook; register it on the result, outside"
        )
    bindings = [binding for binding, _ in updates]
    own_backward = _own_backward(result) if differentiable else ""
    return {
        "loses_history": (_loss_of_history if forward else _loss_of_gradients)(tracer, result),
        "updates": bindings, "clears": clears, "grads": grads, "differentiable": differentiable,
        "own_backward": own_backward,
    }  # fmt: skip


def _loss_of_history(tracer: Tracer, result: list[Any]) -> str:
    """What a graph of values cannot say of the results, which are then those of eager calls."""
    tensors = [leaf for leaf in result if isinstance(leaf, Tensor)]
    if tracer.wrote_leaf and is_recording() and any(t.history is not None for t in tensors):
        return (
            "this forward overwrites a leaf that requires a gradient, which a graph whose results "
            "are differentiated cannot say; write it outside"
        )
    if not is_recording() and any(t.history is not None for t in tensors):
        return (
            "a result was computed in an enable_grad() inside, and the function is called in a "
            "no_grad(), where compiled results have no gradients; leave out one of the two"
        )
    return _made_leaf(tracer, tensors)


def _made_leaf(tracer: Tracer, results: list[Any]) -> str:
    """Why a result that is a leaf and requires a gradient needs an eager call, if there is one."""
    given = [t for t, *_ in tracer.arguments]
    for t in results:
        is_made = isinstance(t, Tensor) and isinstance(t._data, Symbol)
        if is_made and t.requires_grad and t.history is None and all(t is not g for g in given):
            return (
                "a result is a leaf that requires a gradient, which a graph of values cannot say; "
                "call requires_grad_() outside"
            )
    return ""


def _loss_of_gradients(tracer: Tracer, result: list[Any]) -> str:
    """The same for a function that computes gradients: that a result of them has one itself."""
    for t in result:
        if isinstance(t, Tensor) and is_recording() and _has_whole_history(t):
            waiting, seen = [tracer.result_of(t)], set[int]()
            while waiting:
                node = waiting.pop()
                if node.meta.get("phase") == "backward":
                    return (
                        "a result is computed from gradients (create_graph=True) and has a "
                        "gradient itself, which a graph of values cannot say; call backward() on "
                        "it in the function, or detach() it"
                    )
                if id(node) not in seen:
                    seen.add(id(node))
                    waiting += node.all_input_nodes
    return _made_leaf(tracer, result)


def _has_whole_history(tensor: Tensor) -> bool:
    """Whether it has a history, of which no backward has freed a part."""
    seen, waiting = set[int](), [tensor.history]
    while waiting:
        record = waiting.pop()
        if type(record) is Record and id(record) not in seen:
            if record.inputs is None:
                return False
            seen.add(id(record))
            waiting += record.edges
    return tensor.history is not None


def _own_backward(result: list[Any]) -> str:
    """The name of an `autograd.Function` in the history of a result, or nothing."""
    seen, waiting = set[int](), [leaf.history for leaf in result if isinstance(leaf, Tensor)]
    while waiting:
        record = waiting.pop()
        if type(record) is Record and id(record) not in seen:
            if record.op.kind == "function":
                return record.op.name
            seen.add(id(record))
            waiting += record.edges
    return ""


def _check_visible(leaf: Any) -> None:
    """A result is a tensor, or a Python value that holds none, and makes none later."""
    if isinstance(leaf, Iterator):
        raise TraceError(
            f"the traced function returned a {type(leaf).__name__}, which computes after the trace "
            f"and only once; return a list"
        )
    if isinstance(leaf, (*SIMPLE, Tensor)) or not is_plain(leaf):
        return
    for name, value in attributes_of(leaf).items():
        if any(isinstance(t, Tensor) for t in tree_flatten(value)[0]):
            raise TraceError(
                f"the traced function returned a {type(leaf).__name__} whose {name} is a tensor, "
                f"which a call of the trace cannot make anew; return tensors in a tuple, a list or "
                f"a dict"
            )


def _check_leaks(function: Callable[..., Any]) -> None:
    """A tensor of the trace that outlives it has no values, and was put there only once."""
    for tensor in (environment := Environment(function)).tensors:
        if isinstance(tensor._data, Symbol):
            raise TraceError(
                f"{environment.name_of(tensor)} was set to a traced tensor ({tensor.meta}), made "
                f"at {tensor._data.node.stack_trace}, which has no values after the trace; "
                f"{_instead_of_leaving(tensor, environment)}"
            )


def _instead_of_leaving(tensor: Tensor, environment: Environment) -> str:
    """What to do instead of leaving a traced tensor behind."""
    for module in (each for _, each in environment.reached if isinstance(each, Module)):
        for hook, _ in module._hooks.before.values() if module._hooks is not None else ():
            if isinstance(hook, AttributeHook) and getattr(module, hook.name) is tensor:
                return f"a hook computes it at each call: take {hook.for_traces}, which leaves none"
    return "return it, write it in place into a tensor that was there before, or delete it again"


def _check_frozen(environment: Environment, effects: Effects, counted: dict[str, Any]) -> None:
    """A Python value that the function changed would change once, and not at every call."""
    state = [
        (name, value)
        for name, value in environment.counted_state().items()
        if name not in counted or differs(value, counted[name])
    ]
    for name, value in (*effects.changes(), *state):
        became = "was removed" if value is MISSING else f"became {text_of(value)}"
        advice = _ADVICE.get(name.rpartition(".")[2].rpartition("[")[2], OTHER_ADVICE)
        raise TraceError(
            f"{name} {became} in the traced function, and would stay so in every call; {advice}"
        )
    source = effects.random_drawn()
    if source is not None:
        raise TraceError(
            f"the traced function drew numbers from {source}, which would be the same in every "
            f"call; use tinytorch.rand and its like, or pass them in as tensors"
        )


OTHER_ADVICE = (
    "do it outside, keep it in a tensor that is written in place, or read it by live_scalar"
)
_SCHEDULE = (
    "call scheduler.step() after the compiled function: it reads the learning rate at every call"
)
_ADVICE = {"last_epoch": _SCHEDULE, "lr": _SCHEDULE, "'lr']": _SCHEDULE}
