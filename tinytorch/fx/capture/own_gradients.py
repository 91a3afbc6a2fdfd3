"""Gradients that a model defines itself: a graph of its forward does not have them.

`torch.export` follows a custom `autograd.Function` through its forward, and autograd then
differentiates that. Often this is the same; for a straight-through estimator or a gradient
reversal it is not. Hooks on gradients are lost. So where a model has one of these, the gradients of
its graph are compared with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.utils._pytree import tree_leaves

from tinytorch.fx.capture.comparison import first_difference, is_inexact
from tinytorch.fx.capture.slots import GRADIENT, INPUT_GRADIENT, CaptureError, Slot
from tinytorch.fx.diagnosis.reasons import Reason, is_out_of_memory
from tinytorch.fx.diagnosis.suspects import suspects
from tinytorch.fx.optimize.devices import generators_kept
from tinytorch.fx.semantics.buffers import buffers_kept

HOOKS = ("BackwardHookFunction",)
LOST = "{} gives a gradient of its own, which a graph of the forward loses: {}"
FIX = (
    "use capture_step, capture_joint or tinytorch.fx.checkpoint, which trace the backward, or "
    "write it with detach(), as x + (x.round() - x).detach(); for inference capture it under "
    "torch.no_grad(), or by GraphOptimizer with frozen=True"
)


class OwnGradients:
    """Looks for gradients that a model defines itself, in calls of it with gradients recorded.

    Attributes:
        found: their names.
    """

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def hooks_seen(self) -> Iterator[None]:
        """Look for hooks that tensors get in the block. (A mode that sees all functions would be
        traced, with a warning, where the model is compiled.)"""
        original = Tensor.register_hook

        def register_hook(tensor: Tensor, hook: Any) -> Any:
            self.found.append("a hook on a tensor")
            return original(tensor, hook)  # type: ignore[no-untyped-call]

        Tensor.register_hook = register_hook  # type: ignore[method-assign]
        try:
            yield
        finally:
            Tensor.register_hook = original  # type: ignore[method-assign]

    def look_at(self, result: Any) -> None:
        """Look for custom functions in the history of a result."""
        waiting = [x.grad_fn for x in tree_leaves(result) if isinstance(x, Tensor)]
        seen = set[Any]()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if isinstance(node, BackwardCFunction):
                name = type(node).__name__.removesuffix("Backward")
                is_hook = name in HOOKS
                self.found.append("a hook on a module" if is_hook else f"autograd.Function {name}")
            waiting += [following for following, _ in node.next_functions]


def check_gradients(
    names: Sequence[str],
    model: nn.Module,
    graph: Callable[[list[Any]], Any],
    eager: Callable[[list[Any]], Any],
    values: Sequence[Any],
    state: Sequence[Tensor],
) -> None:
    """Compare the gradients of a graph with those of its model, on the example.

    Args:
        names: of what has gradients of its own.
        graph, eager: the two, as functions of the inputs.
        values: the inputs. Those that are floats get a gradient.
        state: buffers that either may write. They are put back.

    Raises:
        CaptureError: they differ.
    """
    try:
        expected = _gradients(eager, model, values, state)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        return  # the model itself cannot be differentiated so
    why = first_difference(_gradients(graph, model, values, state), expected)
    if why is not None:
        found = suspects(model)
        lines = found.get("function", []) + found.get("hook", [])
        text = LOST.format(", ".join(dict.fromkeys(names)), why)
        raise CaptureError.because(Reason(text, FIX, next(iter(lines), None)))


def _gradients(
    function: Callable[[list[Any]], Any],
    model: nn.Module,
    values: Sequence[Any],
    state: Sequence[Tensor],
) -> dict[Slot, Tensor]:
    leaves: dict[Slot, Tensor] = {
        Slot(GRADIENT, name): p for name, p in model.named_parameters() if p.requires_grad
    }
    inputs: list[Any] = []
    for i, value in enumerate(values):
        is_leaf = isinstance(value, Tensor) and is_inexact(value)
        own = value.detach().clone() if isinstance(value, Tensor) else value
        if is_leaf:
            leaves[Slot(INPUT_GRADIENT, str(i))] = own.requires_grad_()
        inputs.append(own.clone() if is_leaf else own)  # no leaf: the model may write it
    devices = {v.device for v in inputs if isinstance(v, Tensor)}
    with generators_kept(devices), buffers_kept(state), torch.enable_grad():
        results = tree_leaves(function(inputs))
        sources = [x for x in results if isinstance(x, Tensor) and x.requires_grad]
        weights = [torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape).to(x) for x in sources]
        found = torch.autograd.grad(sources, [*leaves.values()], weights, allow_unused=True)
    return {
        slot: torch.zeros_like(leaf) if gradient is None else gradient
        for (slot, leaf), gradient in zip(leaves.items(), found, strict=True)
    }
