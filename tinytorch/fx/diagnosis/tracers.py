"""The ways in which PyTorch makes a graph of a model, under one interface."""

from __future__ import annotations

import copy
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tinytorch.fx.capture.joint import JointGraph, capture_joint
from tinytorch.fx.capture.slots import (
    BUFFER,
    GRADIENT,
    INPUT_GRADIENT,
    OUTPUT,
    TANGENT,
    CaptureError,
    Slot,
    batch_slots,
    bind,
    model_slots,
)
from tinytorch.fx.models import Batch, call
from tinytorch.fx.optimize.devices import devices_of, generators_kept

RECURRENT_LAYER = torch.ops.aten.mkldnn_rnn_layer.default


class Traced:
    """A traced model, called like the model.

    Attributes:
        graphs: the graphs that were made; several if the tracer split the model, or made others
            for other inputs.
    """

    def __init__(
        self, run: Callable[[Batch], Any], model: nn.Module, unused: nn.Module | None = None
    ) -> None:
        self.run = run
        self.model = model
        self.unused = unused  # has the buffers that the traced one has left out
        self.graphs: list[Any] = []

    def __call__(self, batch: Batch) -> Any:
        return self.run(batch)

    def parameters(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_parameters())

    def buffers(self) -> Mapping[str, Tensor]:
        left_out = dict(self.unused.named_buffers()) if self.unused is not None else {}
        return {**left_out, **dict(self.model.named_buffers())}

    @property
    def node_count(self) -> int:
        """Nodes that compute something."""
        return sum(_count(graph) for graph in self.graphs)


def _count(graph: Any) -> int:
    if isinstance(graph, torch.fx.Graph):
        return sum(n.op.startswith("call") for n in graph.nodes)
    return sum(1 for n in graph.nodes() if n.kind() not in ("prim::Constant", "prim::GetAttr"))


def symbolic_trace(model: nn.Module, inputs: Batch) -> Traced:
    """torch.fx.symbolic_trace: runs the Python code on proxies that know nothing."""
    module = torch.fx.symbolic_trace(model)
    traced = Traced(lambda batch: call(module, batch), module, unused=model)
    traced.graphs = [module.graph]
    return traced


def export(model: nn.Module, inputs: Batch) -> Traced:
    """torch.export.export, non-strict, with the batch size open."""
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (_tuple(inputs), None)
    sizes = _open_batch(model, inputs)
    exported = torch.export.export(model, args, kwargs, dynamic_shapes=sizes, strict=False)
    module: Any = exported.module()
    traced = Traced(lambda batch: call(module, batch), module, unused=model)
    traced.graphs = [exported.graph]
    return traced


def dynamo(model: nn.Module, inputs: Batch) -> Traced:
    """torch.compile with a backend that runs the graphs as they are.

    It traces when it is called; what it cannot trace stays Python, between several graphs.
    """
    torch._dynamo.reset()
    traced = Traced(lambda batch: call(compiled, batch), model)

    def backend(module: torch.fx.GraphModule, example: list[Any]) -> Callable[..., Any]:
        traced.graphs.append(module.graph)
        return module.forward

    compiled: Any = torch.compile(model, backend=backend)
    return traced


def make_fx_fake(model: nn.Module, inputs: Batch) -> Traced:
    """make_fx of the forward on fake tensors: only ATen ops below autograd are seen."""
    leaves, spec = tree_flatten(inputs)
    form: list[Any] = []

    def forward(*flat: Any) -> list[Tensor]:
        everything, result_spec = tree_flatten(call(model, tree_unflatten(list(flat), spec)))
        form[:] = [[Tensor if isinstance(x, Tensor) else x for x in everything], result_spec]
        return [x for x in everything if isinstance(x, Tensor)]

    module = make_fx(forward, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)

    layers = module.graph.find_nodes(op="call_function", target=RECURRENT_LAYER)
    shapes = [x.shape for x in leaves if isinstance(x, Tensor)]

    def run(batch: Batch) -> Any:
        given = tree_flatten(batch)[0]
        if layers and shapes != [x.shape for x in given if isinstance(x, Tensor)]:
            raise RuntimeError(
                "the hidden state of a recurrent layer has the sizes of the trace, and oneDNN "
                "would write beyond its memory for others"
            )
        tensors = iter(module(*given))
        return tree_unflatten([next(tensors) if x is Tensor else x for x in form[0]], form[1])

    traced = Traced(run, model)
    traced.graphs = [module.graph]
    return traced


def capture(model: nn.Module, inputs: Batch) -> Traced:
    """tinytorch.fx.capture_joint: forward and backward on fake tensors, batch size open."""
    example = tree_map(
        lambda x: x.requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x,
        inputs,
    )
    try:
        joint = capture_joint(model, example, dynamic_dims=(0,))
    except CaptureError:  # perhaps only for the sizes of the example
        joint = capture_joint(model, example)

    forward = _forward_only(joint)

    def run(batch: Batch) -> Any:
        leaves = [*model.parameters(), *tree_flatten(batch)[0]]
        apply: Any = _Joint.apply  # untyped in torch
        return joint.result(apply(joint, forward, model, batch, *leaves))

    traced = Traced(run, model)
    traced.graphs = [joint.module.graph]
    return traced


def _forward_only(joint: JointGraph) -> torch.fx.GraphModule:
    """A joint graph without its gradients: it computes outputs and buffers."""
    graph = copy.deepcopy(joint.module.graph)
    output = graph.output_node()
    results: Any = output.args[0]
    kept = [n for s, n in zip(joint.outputs, results, strict=True) if s.role in (OUTPUT, BUFFER)]
    output.args = (kept,)
    graph.eliminate_dead_code()
    forward = torch.fx.GraphModule(joint.module, graph)
    # guards are of tangents, too, and the backward looks at them
    forward.meta = {name: x for name, x in joint.module.meta.items() if name != "guards"}
    return forward


class _Joint(torch.autograd.Function):
    """A captured joint graph as a differentiable function of parameters and batch.

    The joint graph computes all at once, from tangents that the forward does not know yet. So the
    forward runs its own part, and the backward runs everything, with the same randomness.
    """

    @staticmethod
    def forward(
        ctx: Any, joint: JointGraph, forward: Any, model: nn.Module, batch: Batch, *leaves: Any
    ) -> tuple[Tensor, ...]:
        slots, tensors = model_slots(model)
        ctx.generator = torch.get_rng_state()
        own, given, _ = batch_slots(batch)
        nodes = joint.module.graph.find_nodes(op="placeholder")
        # tangents are not read; the examples stand for them
        known = {s: n.meta["example"] for s, n in zip(joint.inputs, nodes, strict=True)}
        known.update(zip([*slots, *own], [*tensors, *given], strict=True))
        flat = bind(forward, joint.inputs, known)
        kept = [s for s in joint.outputs if s.role in (OUTPUT, BUFFER)]
        found = dict(zip(kept, forward(*flat), strict=True))
        outputs = {s.name: t for s, t in found.items() if s.role == OUTPUT}
        tangents = [torch.ones_like(outputs[s.name]) for s in joint.inputs if s.role == TANGENT]
        ctx.arguments = [t.clone() for t in joint.flat_inputs(model, batch, tangents)]
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(found.get(Slot(BUFFER, name), buffer))
        ctx.joint, ctx.names = joint, list(outputs)
        ctx.leaves = [*(Slot(GRADIENT, n) for n, _ in model.named_parameters()),
                      *(Slot(INPUT_GRADIENT, s.name) for s in own)]  # fmt: skip
        differentiable = {s.name for s in joint.inputs if s.role == TANGENT}
        ctx.mark_non_differentiable(*(t for n, t in outputs.items() if n not in differentiable))
        return tuple(outputs.values())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        given = dict(zip(ctx.names, gradients, strict=True))
        arguments = [
            given[slot.name] if slot.role == TANGENT else value
            for slot, value in zip(ctx.joint.inputs, ctx.arguments, strict=True)
        ]
        with generators_kept():
            torch.set_rng_state(ctx.generator)
            found = dict(zip(ctx.joint.outputs, ctx.joint.module(*arguments), strict=True))
        return (None, None, None, None, *(found.get(slot) for slot in ctx.leaves))


def jit_trace(model: nn.Module, inputs: Batch) -> Traced:
    """torch.jit.trace: records the ops of one run on real tensors."""
    kwargs = {"example_kwarg_inputs": _copied(inputs)} if isinstance(inputs, dict) else {}
    args = None if kwargs else _tuple(_copied(inputs))
    trace: Any = torch.jit.trace  # untyped in torch
    return _scripted(trace(model, args, check_trace=False, strict=False, **kwargs))


def jit_script(model: nn.Module, inputs: Batch) -> Traced:
    """torch.jit.script: compiles the source code, in a subset of Python."""
    module: Any = torch.jit.script(model)
    return _scripted(module)


def _scripted(module: Any) -> Traced:
    traced = Traced(lambda batch: call(module, batch), module)
    graph = module.graph.copy()
    torch._C._jit_pass_inline(graph)
    traced.graphs = [graph]
    return traced


#: By name; the first five are what `diagnose` tries.
TRACERS: dict[str, Callable[[nn.Module, Batch], Traced]] = {
    "symbolic_trace": symbolic_trace,
    "export": export,
    "dynamo": dynamo,
    "make_fx": make_fx_fake,
    "capture": capture,
    "jit.trace": jit_trace,
    "jit.script": jit_script,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings, logs and prints inside the block: a comparison finds what tracers warn of,
    and more."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def trace_with(name: str, model: nn.Module, inputs: Batch) -> Traced:
    """Trace a model with one of the tracers. The model's code may run and leave its traces in it.

    Raises:
        KeyError: there is no such tracer.
        Exception: whatever the tracer raises.
    """
    if name not in TRACERS:
        raise KeyError(f"there is no tracer {name!r}; there are {', '.join(TRACERS)}")
    before = {name: b.detach().clone() for name, b in model.named_buffers()}
    with quiet(), generators_kept(devices_of(model)):
        traced = TRACERS[name](model, _copied(inputs))
    with torch.no_grad():  # a run on real tensors has written them
        for buffer_name, buffer in model.named_buffers():
            buffer.copy_(before[buffer_name])
    return traced


def _tuple(inputs: Batch) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _copied(inputs: Batch) -> Batch:
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, inputs)


def _open_batch(model: nn.Module, inputs: Batch) -> Any:
    """The first dimension of each tensor as export is to treat it: open if it can be.

    Export wants one entry for each parameter of `forward`; what a star takes is one, a tuple.
    """

    def of_leaf(x: Any) -> Any:
        return {0: torch.export.Dim.AUTO} if isinstance(x, Tensor) and x.ndim else None

    parameters = inspect.signature(model.forward)
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (_tuple(inputs), {})
    given = dict(parameters.bind(*args, **kwargs).arguments)
    for name, parameter in parameters.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(name, {}))
    return tree_map(of_leaf, given)
