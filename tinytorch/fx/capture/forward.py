"""The forward of a model as a graph, by torch.export."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch.export._tree_utils import reorder_kwargs
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from tinytorch.fx.capture.compiling import compiling
from tinytorch.fx.capture.constants import (
    check_in_graph,
    constants_of,
    countable_buffers,
    with_constants,
)
from tinytorch.fx.capture.functional import tracing
from tinytorch.fx.capture.guards import AskedValues, GuardError, forward_within
from tinytorch.fx.capture.open_sizes import (
    OTHER_SIZES,
    SizeGuards,
    asked_sizes,
    have_same_ops,
)
from tinytorch.fx.capture.real_run import check_on_real_values, difference_on_real_values
from tinytorch.fx.capture.slots import BATCH, BUFFER, PARAMETER, CaptureError, batch_slots
from tinytorch.fx.capture.stopped_gradients import (
    RegionsSeen,
    detach_stopped_gradients,
    mark_stopped_gradients,
)
from tinytorch.fx.diagnosis.reasons import VALUE
from tinytorch.fx.models import Batch, call
from tinytorch.fx.optimize.devices import devices_of, generators_kept
from tinytorch.fx.semantics.buffers import buffers_kept


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
        CaptureError: the model does what cannot be traced; `diagnose` says more.
    """
    inputs = _distinct(inputs, model)
    fixed, buffers = _fixed(inputs, constants), countable_buffers(model)
    asked = AskedValues()
    if guarded:
        buffers = {}
        with (
            tracing(), buffers_kept(list(model.buffers())), generators_kept(devices_of(model)),
            compiling(), with_constants(model, fixed, {}), forward_within(model, asked.recorded),
        ):  # fmt: skip
            call(model, inputs)

    def export(batch: Any, kept: Mapping[str, Tensor], dims: tuple[int, ...] = ()) -> Any:
        args, kwargs = ((), batch) if isinstance(batch, dict) else (_as_tuple(batch), None)
        shapes = _dynamic_shapes(kwargs or args, dims) if dims else None
        with (
            tracing(), warnings.catch_warnings(), with_constants(model, fixed, kept) as read,
            asked_sizes() as questions,
            forward_within(model, asked.guarded if guarded else nullcontext),
            forward_within(model, RegionsSeen if decompose else nullcontext),
        ):  # fmt: skip
            # recurrent layers keep their parameters in a list, too, which is put back
            warnings.filterwarnings("ignore", r"The tensor attributes? self\..*_flat_weights")
            with torch.enable_grad() if decompose else nullcontext():
                exported = torch.export.export(
                    model, args, kwargs, dynamic_shapes=shapes, strict=False
                )
            return (_decomposed(exported, batch) if decompose else exported), read, questions

    try:
        exported, read, questions = export(inputs, {}, dynamic_dims)
    except CaptureError as error:
        if not buffers or error.reason is None or error.reason.text != VALUE[0]:
            raise
        try:
            exported, read, questions = export(inputs, buffers, dynamic_dims)
        except CaptureError:  # they are no constants, or not the reason
            raise error from None
    module: Any = exported.module(check_guards=False)
    if decompose:
        detach_stopped_gradients(module)
    own = dict.fromkeys(dict(model.named_buffers(remove_duplicate=False)), BUFFER)
    own.update(dict.fromkeys(dict(model.named_parameters(remove_duplicate=False)), PARAMETER))
    for node in module.graph.nodes:
        node.meta.setdefault("phase", "forward")
        if node.op == "placeholder":
            node.meta.update(role=BATCH, name=node.target)
        elif node.op == "get_attr" and node.target in own:  # and no constant of the code
            node.meta.update(role=own[node.target], name=node.target)
    check_in_graph(module, fixed, {name: buffers[name] for name in sorted(read)})
    leaves, spec = tree_flatten(inputs)
    state = list(model.buffers())

    def eager(flat: list[Any]) -> Any:
        return call(model, tree_unflatten(flat, spec))

    def compare(flat: list[Any]) -> str | None:
        return difference_on_real_values(module, flat, eager, state, reseed=not guarded)

    def has_same_ops(flat: list[Any]) -> bool:
        try:
            other, *_ = export(tree_unflatten(flat, spec), {name: buffers[name] for name in read})
        except CaptureError:
            return False
        return have_same_ops(module, other.module(check_guards=False))

    check_on_real_values(module, leaves, eager, state=state, may_write=True, reseed=not guarded)
    if dynamic_dims:
        sizes = SizeGuards.of(module.graph, questions, _guards_of_tracer(exported))
        sizes.compare_small(dynamic_dims, leaves, compare, has_same_ops)
        module.meta["size_guards"] = sizes
        module.register_forward_pre_hook(_check_sizes, with_kwargs=True)
    graph_module: torch.fx.GraphModule = module
    return graph_module


def _guards_of_tracer(exported: Any) -> Callable[[Sequence[Any]], str | None]:
    """Says which of a tracer's guards fails; None if none does."""
    if not exported._guards_code:
        return lambda leaves: None
    guards = exported.module(check_guards=True)._guards_fn

    def failing(leaves: Sequence[Any]) -> str | None:
        try:
            guards(*leaves)
        except (AssertionError, ZeroDivisionError) as error:
            return str(error)
        return None

    return failing


def _check_sizes(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises GuardError if the model does something else for the sizes of these inputs."""
    leaves = tree_leaves((args, reorder_kwargs(kwargs, module._in_spec)))
    why = module.meta["size_guards"].failure(leaves)
    if why is not None:
        raise GuardError(f"{OTHER_SIZES} ({why}): capture it for them")


def _decomposed(exported: Any, inputs: Batch) -> Any:
    mark_stopped_gradients(exported, inputs)
    table: Any = torch.export.default_decompositions()
    table.pop(torch.ops.aten.scaled_dot_product_attention.default, None)
    with warnings.catch_warnings():  # torch's own use of what it deprecates
        warnings.simplefilter("ignore", FutureWarning)
        return exported.run_decompositions(table)


def _fixed(inputs: Batch, constants: Collection[str]) -> dict[str, Tensor]:
    if not constants:
        return {}
    slots, tensors, _ = batch_slots(inputs if isinstance(inputs, dict) else _as_tuple(inputs))
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


def _as_tuple(inputs: Batch) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _dynamic_shapes(inputs: Any, dims: tuple[int, ...]) -> Any:
    """For each tensor of the nest, which of its dimensions are open."""

    def of_leaf(leaf: Any) -> dict[int, Any] | None:
        if not isinstance(leaf, Tensor):
            return None
        inside = {d % leaf.ndim for d in dims if -leaf.ndim <= d < leaf.ndim}
        return dict.fromkeys(sorted(inside), torch.export.Dim.AUTO)

    return tree_map(of_leaf, inputs)
