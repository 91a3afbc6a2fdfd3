"""The recipe by which a function of tensors becomes one functional ATen graph.

1. The function runs once on fake tensors (shapes and dtypes, no memory, no arithmetic) under
   `make_fx`, backward and optimizer included: autograd calls the same ops. That tensors are fake
   keeps the libraries' own shortcuts on values (`if mask.all()`) out of the graph.
2. The graph is run again, functionalized: what writes in place becomes what computes a new value.
   This is a stage of its own because `autograd.grad` is forbidden under functionalization.
3. Graph and function run once on the example, real tensors: layouts of memory that fake tensors got
   wrong are mended, and the results compared.

Every node says in `meta` its "phase" (forward, backward, optimizer) and "val" (a fake tensor:
shape, dtype, strides, device); those of the inputs also "role", "name" and "example".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._pytree import tree_unflatten

from tinytorch.fx.capture.autocast import autocast_cache, autocast_off, present_autocast
from tinytorch.fx.capture.batch_norm import functional_batch_norm
from tinytorch.fx.capture.compiling import compiling
from tinytorch.fx.capture.constants import ConstantFolding, constants_of, real_copies
from tinytorch.fx.capture.guards import AskedValues
from tinytorch.fx.capture.known_values import KnownValues
from tinytorch.fx.capture.real_run import check_on_real_values
from tinytorch.fx.capture.recurrent import keep_workspaces
from tinytorch.fx.capture.replaced import modules_unreplaced
from tinytorch.fx.capture.slots import (
    BATCH,
    BUFFER,
    PARAMETER,
    CaptureError as CaptureError,
    Slot,
    batch_slots,
    model_slots,
)
from tinytorch.fx.diagnosis.reasons import Line, Reason, explain, line_of
from tinytorch.fx.diagnosis.tracer_output import caught_output
from tinytorch.fx.models import Batch, Loss, call_with_state
from tinytorch.fx.optimize.devices import devices_of, generators_kept

#: Ops in terms of others, as their kernels compute them. `functionalize` has another formula for
#: the cross entropy of logits, which rounds differently.
OF_KERNELS = {
    **functional_batch_norm(),
    **get_decompositions([torch.ops.aten.binary_cross_entropy_with_logits]),
}


@contextmanager
def tracing() -> Iterator[None]:
    """Raise what goes wrong in this block as a CaptureError that names the user's line.

    What the tracer itself writes to stderr is in the error's `output`.
    """
    with caught_output() as output:
        try:
            yield
        except CaptureError:
            raise
        except Exception as error:  # a model may raise anything
            raised = CaptureError.because(explain(error))
            raised.output = output.getvalue()
            raise raised from error


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark the nodes that are traced in this block with this phase.

    Only the forward runs under autocast, as in eager training.
    """
    with nullcontext() if name == "forward" else autocast_off():
        yield
    mode = get_proxy_mode()
    if mode is None:
        return
    for node in reversed(mode.tracer.graph.nodes):
        if "phase" in node.meta:
            break
        node.meta["phase"] = name


def fake_inputs(
    tensors: Sequence[Tensor], slots: Sequence[Slot], dynamic_dims: Sequence[int] = ()
) -> list[FakeTensor]:
    """Fake tensors for the inputs of a graph, in a mode of their own.

    Args:
        dynamic_dims: dimensions of the tensors of the batch whose sizes stay open. Those that are
            equal in the example are taken to be equal always.
    """
    shapes = ShapeEnv() if dynamic_dims else None
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    fakes = []
    for tensor, slot in zip(tensors, slots, strict=True):
        if dynamic_dims and slot.role == BATCH:
            dims = {d % tensor.ndim for d in dynamic_dims if -tensor.ndim <= d < tensor.ndim}
            kinds = [DimDynamic.DUCK if d in dims else DimDynamic.STATIC
                     for d in range(tensor.ndim)]  # fmt: skip
            context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
            fakes.append(mode.from_tensor(tensor.detach(), symbolic_context=context))
        else:
            fakes.append(mode.from_tensor(tensor.detach(), static_shapes=True))
    return fakes


def capture(
    function: Callable[[list[Tensor]], list[Tensor]],
    fakes: Sequence[FakeTensor],
    tensors: Sequence[Tensor],
    slots: Sequence[Slot],
    outputs: Sequence[Slot],
    *,
    reseed: bool = True,
) -> torch.fx.GraphModule:
    """The functional graph of a function of a flat list of tensors.

    Args:
        function: uses `phase` to mark its parts.
        fakes: what the function is traced on, all of one fake mode.
        tensors: what they stand for. Those that require gradients arrive requiring them.
        slots: what they are.
        outputs: what the results are; read after a call of the function, which may fill it.
        reseed: for the run on the example; otherwise random numbers go on from where they are.

    Raises:
        CaptureError: the function does what cannot be traced, or its graph gives for the example
            other results than the function; the message says where and why.
    """
    leaves = [
        fake.detach().requires_grad_(tensor.requires_grad)
        for fake, tensor in zip(fakes, tensors, strict=True)
    ]
    mode = fakes[0].fake_mode

    has_cache = torch.is_autocast_cache_enabled()
    known = KnownValues()

    def traceable(*xs: Tensor) -> list[Tensor]:
        known.follow(buffers_of(slots, xs, tensors))
        with known, autocast_cache(has_cache):
            return function(list(xs))

    # composite ops in C++ would fix open sizes; those in Python keep them
    sizes = enable_python_dispatcher() if mode.shape_env else nullcontext()
    with (
        mode,
        sizes,
        compiling(),
    ):  # under the mode, what the function makes without inputs is fake too
        with tracing():
            traced = make_fx(traceable, OF_KERNELS, record_stack_traces=True)(*leaves)
        with torch.no_grad(), autocast_off():
            replay = functionalize(_Replay(traced).run, remove="mutations")
            flat = make_fx(replay)(*fakes)
    module = _named(flat, tensors, slots)
    module.meta["autocast"] = present_autocast(tensors)
    _check_inputs_unwritten(module)
    _check_read_unwritten(module, outputs, known.read)
    mark_constants(module, known.read)
    keep_workspaces(module)
    check_on_real_values(module, tensors, function, lambda: outputs, reseed=reseed)
    if mode.shape_env:
        module.meta["guards"] = mode.shape_env.produce_guards_expression(list(fakes))
    return module


class _Replay(torch.fx.Interpreter):
    """Runs a graph under a tracer, whose new nodes inherit what is known of the old ones."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        mode = get_proxy_mode()
        assert mode is not None, "a replay runs under make_fx"
        for new in reversed(mode.tracer.graph.nodes):
            if "phase" in new.meta:
                break
            new.meta["phase"] = n.meta.get("phase", "forward")
            if "stack_trace" in n.meta:
                new.meta["stack_trace"] = n.meta["stack_trace"]
        return result


def _named(
    traced: torch.fx.GraphModule, tensors: Sequence[Tensor], slots: Sequence[Slot]
) -> torch.fx.GraphModule:
    """The same graph with placeholders that are called after what they are."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs = iter(zip(tensors, slots, strict=True))
    for node in traced.graph.nodes:
        if node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        tensor, slot = next(inputs)
        new = copies[node] = graph.placeholder(slot.identifier)
        new.target = new.name  # a_b and a.b are two parameters
        new.meta = {**node.meta, "role": slot.role, "name": slot.name, "example": tensor.detach()}
    return torch.fx.GraphModule(traced, graph)


def buffers_of(
    slots: Sequence[Slot], traced: Sequence[Tensor], tensors: Sequence[Tensor]
) -> dict[Slot, tuple[Tensor, Tensor]]:
    """The buffers among the inputs: what each is traced as, and itself."""
    found = zip(slots, traced, tensors, strict=True)
    return {slot: (fake, real) for slot, fake, real in found if slot.role == BUFFER}


def mark_constants(module: torch.fx.GraphModule, constants: Collection[Slot]) -> None:
    """Make `bind` compare the values of these inputs with those of the capture."""
    for node in module.graph.find_nodes(op="placeholder"):
        if Slot(node.meta["role"], node.meta["name"]) in constants:
            node.meta["is_constant"] = True
            node.meta["example"] = node.meta["example"].clone()  # of which others hold the original


def _check_read_unwritten(
    module: torch.fx.GraphModule, outputs: Sequence[Slot], read: Mapping[Slot, Line | None]
) -> None:
    """Raises CaptureError if Python has asked for the value of a buffer that the model writes."""
    results: Any = module.graph.output_node().args[0]
    for slot, node in zip(outputs, results, strict=True):
        if slot in read and not _is_copy_of_input(node):
            text = f"Python asks for the value of {slot}, and the model writes another into it"
            fix = "count in Python, or compute the choice with torch.where"
            raise CaptureError.because(Reason(text, fix, read[slot]))


def _check_inputs_unwritten(module: torch.fx.GraphModule) -> None:
    """Raises CaptureError if the graph ends with writing to one of its inputs."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        written: Any = node.args[0]
        if written.op == "placeholder":
            which = f"{written.meta['role']} {written.meta['name']!r}"
            new: Any = node.args[1]
            text = f"the model writes to its {which} in place, which a functional graph cannot"
            raise CaptureError.because(Reason(text, "write to a copy, x = x.clone()", line_of(new)))


class FunctionalModel:
    """A model, or a loss of it, as a function of all that goes in: parameters, buffers, batch.

    Attributes:
        slots: of the inputs.
        values: the tensors of the model and of the batch that belong to the slots.
        constants: those of the batch whose values stay.
        asked: the values that Python asks for, where they are guarded.
    """

    def __init__(
        self,
        model: nn.Module,
        function: Loss,
        batch: Batch,
        constants: Collection[str] = (),
        guarded: bool = False,
    ) -> None:
        self.module = _WithFunction(model, function)
        own, tensors = model_slots(model)
        self.batch, in_batch, self.spec = batch_slots(batch)
        self.slots: list[Slot] = [*own, *self.batch]
        self.values: list[Tensor] = [*tensors, *in_batch]
        self.constants = constants_of(constants, self.batch, in_batch)
        self.asked = AskedValues() if guarded else None
        if self.asked is not None:
            with generators_kept(devices_of(model)), compiling(), tracing(), self.asked.recorded():
                self._run(dict(zip(self.slots, map(Tensor.detach, self.values), strict=True)))

    def __call__(self, given: dict[Slot, Tensor]) -> tuple[Any, dict[Slot, Tensor]]:
        """The result, and the buffers after the call; those in `given` stay as they are."""
        is_traced = any(isinstance(x, FakeTensor) for x in given.values())
        guards = self.asked.guarded() if self.asked is not None and is_traced else nullcontext()
        with guards:
            return self._run(given)

    def _run(self, given: dict[Slot, Tensor]) -> tuple[Any, dict[Slot, Tensor]]:
        own = {f"model.{s.name}": given[s] for s in self.slots if s.role == PARAMETER}
        buffers = {s: f"model.{s.name}" for s in self.slots if s.role == BUFFER}
        # batch norm writes its statistics: into copies
        own.update({name: given[slot].clone() for slot, name in buffers.items()})
        fixed = real_copies(self.constants)
        batch = tree_unflatten([fixed.get(s, given[s]) for s in self.batch], self.spec)
        folding = ConstantFolding({str(s): x for s, x in fixed.items()}) if fixed else nullcontext()
        with modules_unreplaced(self.module.model), folding:
            result = call_with_state(self.module, own, (batch,))
        # where the model has assigned a buffer, `own` has the new one
        return result, {slot: own[name] for slot, name in buffers.items()}


class _WithFunction(nn.Module):
    """A model and a function of it as one module: parameters can be exchanged below both."""

    def __init__(self, model: nn.Module, function: Loss) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, batch: Batch) -> Any:
        return self.function(self.model, batch)


def drop_unchanged_buffers(module: torch.fx.GraphModule, outputs: list[Slot]) -> list[Slot]:
    """Take from the results the buffers that nothing wrote; returns the slots that are left."""
    output = module.graph.output_node()
    results: Any = output.args[0]
    pairs = [
        (slot, node)
        for slot, node in zip(outputs, results, strict=True)
        if not (slot.role == BUFFER and _is_copy_of_input(node))
    ]
    output.args = ([node for _, node in pairs],)
    module.recompile()
    return [slot for slot, _ in pairs]


def _is_copy_of_input(node: Any) -> bool:
    return node.target is torch.ops.aten.clone.default and node.args[0].op == "placeholder"
