"""The forward of a model as a graph, by torch.export."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.export._tree_utils import reorder_kwargs
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from tinytorch.fx.capture.constants import check_in_graph, constants_of
from tinytorch.fx.capture.export import Exported, Exporter, as_tuple
from tinytorch.fx.capture.guards import GuardError
from tinytorch.fx.capture.old_values import keep_old_values
from tinytorch.fx.capture.open_sizes import OTHER_SIZES, SizeGuards, have_same_ops
from tinytorch.fx.capture.own_gradients import OwnGradients, check_gradients
from tinytorch.fx.capture.real_run import (
    check_on_real_values,
    difference_on_real_values,
    run_flat,
)
from tinytorch.fx.capture.slots import BATCH, BUFFER, PARAMETER, CaptureError, batch_slots
from tinytorch.fx.capture.stopped_gradients import detach_stopped_gradients
from tinytorch.fx.models import Batch, call, check_model
from tinytorch.fx.semantics.buffers import assigned_in_place
from tinytorch.fx.semantics.effects import effects


def capture_forward(
    model: nn.Module,
    inputs: Batch,
    *,
    decompose: bool = False,
    dynamic_dims: tuple[int, ...] = (),
    constants: Collection[str] = (),
    guarded: bool = False,
) -> torch.fx.GraphModule:
    """The forward of a model in its present mode, as an ATen graph that is called like the model.

    Parameters and buffers are get_attr nodes and the model's own, so the graph can be trained. Each
    node has in `meta` "val" (a fake tensor) and "phase"; what comes in has "role" and "name".

    Args:
        inputs: a dict of keyword arguments, or a tuple of positional ones.
        decompose: in core ATen ops; attention stays whole, its parts would assume strides that
            the fused kernel does not have.
        dynamic_dims: dimensions of the input tensors whose sizes stay open, e.g. (0,).
        constants: names of input tensors (of positional ones the numbers, "0") whose values stay:
            Python may ask for them, and the graph begins with the check that they are the same.
            So it does for small integer buffers whose values Python asks for.
        guarded: where Python asks for a value that is not known, take that of the example, with the
            generators as they are; the graph refuses others (see `Branches`).

    Raises:
        ModelError: it is no module, or its inputs are of another floating-point type.
        CaptureError: the model does what cannot be traced (`diagnose` says more); or, while
            gradients are recorded, it defines gradients that are not those of its forward.
    """
    check_model(model, inputs, trains=False)
    inputs = _distinct(inputs, model)
    fixed = _fixed(inputs, constants)
    exporter = Exporter(model, fixed, guarded=guarded, decompose=decompose)
    exported = exporter.export_with_buffers(inputs, dynamic_dims)
    module: torch.fx.GraphModule = exported.module()
    if decompose:
        detach_stopped_gradients(module)
    _mark_roles(module.graph, model)
    check_in_graph(module, fixed, exported.buffers)
    own = OwnGradients()
    leaves, eager = tree_leaves(inputs), _eager(model, inputs, own)
    keep_old_values(module, leaves)
    written = (*model.buffers(), *_written_state(model, module))
    state = list({id(tensor): tensor for tensor in written}.values())
    check_on_real_values(module, leaves, eager, state=state, may_write=True, reseed=not guarded)
    if own.found and torch.is_grad_enabled():
        run = partial(run_flat, torch.fx.Interpreter(module), gradients=True)
        check_gradients(own.found, model, run, eager, leaves, state)
    if dynamic_dims:
        _guard_sizes(module, exporter, exported, dynamic_dims, inputs, eager, state)
    return module


def _eager(model: nn.Module, inputs: Batch, own: OwnGradients) -> Callable[[list[Any]], Any]:
    """The call of a model on the leaves of inputs like these, which looks for own gradients."""
    spec = tree_flatten(inputs)[1]

    def eager(flat: list[Any]) -> Any:
        with assigned_in_place(model), own.hooks_seen():
            result = call(model, tree_unflatten(flat, spec))
        own.look_at(result)
        return result

    return eager


def _written_state(model: nn.Module, module: torch.fx.GraphModule) -> list[Tensor]:
    """The buffers that a captured graph writes, and the frozen parameters (an average of other
    weights)."""
    found = [source for node in module.graph.nodes for source in effects(node).writes]
    seen: dict[torch.fx.Node, None] = {}
    while found:
        source = found.pop()
        if source not in seen:
            seen[source] = None
            found += effects(source).views
    return _state_of(model, seen)


def read_only_state(model: nn.Module, module: torch.fx.GraphModule) -> list[Tensor]:
    """The parameters and buffers that a captured graph reads and does not write."""
    written = set(map(id, _written_state(model, module)))
    read = _state_of(model, [node for node in module.graph.nodes if node.users])
    return [tensor for tensor in read if id(tensor) not in written]


def _state_of(model: nn.Module, nodes: Iterable[torch.fx.Node]) -> list[Tensor]:
    """The parameters and buffers among nodes."""
    state: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    state.update(model.named_buffers(remove_duplicate=False))
    names = dict.fromkeys(node.target for node in nodes if node.op == "get_attr")
    return [state[n] for n in names if n in state]


def _mark_roles(graph: torch.fx.Graph, model: nn.Module) -> None:
    """Write into `meta` what comes in with which role: of the batch, or the model's own."""
    own = dict.fromkeys(dict(model.named_buffers(remove_duplicate=False)), BUFFER)
    own.update(dict.fromkeys(dict(model.named_parameters(remove_duplicate=False)), PARAMETER))
    for node in graph.nodes:
        node.meta.setdefault("phase", "forward")
        if node.op == "placeholder":
            node.meta.update(role=BATCH, name=node.target)
        elif node.op == "get_attr" and node.target in own:  # and no constant of the code
            node.meta.update(role=own[node.target], name=node.target)


def _guard_sizes(
    module: torch.fx.GraphModule,
    exporter: Exporter,
    exported: Exported,
    dims: tuple[int, ...],
    inputs: Batch,
    eager: Callable[[list[Any]], Any],
    state: list[Tensor],
) -> None:
    """Find out for which sizes a graph does what its model does, and have it refuse others."""
    leaves, spec = tree_flatten(inputs)

    def compare(flat: list[Any]) -> str | None:
        return difference_on_real_values(module, flat, eager, state, reseed=not exporter.guarded)

    def guards_if_same(flat: list[Any]) -> SizeGuards | None:
        try:
            other = exporter.export(tree_unflatten(flat, spec), exported.buffers, dims)
        except CaptureError:
            return None
        traced = other.module()
        keep_old_values(traced, flat)  # as in the graph it is compared with
        if not have_same_ops(module, traced):
            return None
        return SizeGuards.of(traced.graph, other.questions, other.guards())

    sizes = SizeGuards.of(module.graph, exported.questions, exported.guards())
    sizes.compare_small(dims, leaves, compare, guards_if_same)
    module.meta["size_guards"] = sizes
    module.register_forward_pre_hook(_check_sizes, with_kwargs=True)


def _check_sizes(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises GuardError if the model does something else for the sizes of these inputs."""
    leaves = tree_leaves((args, reorder_kwargs(kwargs, module._in_spec)))
    why = module.meta["size_guards"].failure(leaves)
    if why is not None:
        raise GuardError(f"{OTHER_SIZES} ({why}): capture it for them")


def _fixed(inputs: Batch, constants: Collection[str]) -> dict[str, Tensor]:
    if not constants:
        return {}
    slots, tensors, _ = batch_slots(inputs if isinstance(inputs, dict) else as_tuple(inputs))
    return {slot.name: x for slot, x in constants_of(constants, slots, tensors).items()}


def _distinct(inputs: Batch, model: nn.Module) -> Any:
    """The inputs, with a copy of what is there already, among them or in the model's state.

    `torch.export` takes one tensor given twice for one input, and the graph would read the second
    for both.
    """
    met = {id(t) for t in (*model.parameters(), *model.buffers())}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in met:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        met.add(id(leaf))
        return leaf

    return tree_map(own, inputs)
