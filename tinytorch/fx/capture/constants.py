"""Inputs whose values stay: Python may ask for them, and the graph is of these values only.

A vision model that takes images of any size gets their sizes as a tensor, and loops over its
`tolist()`. Such a loop cannot be in a graph. With `constants=("grid_thw",)` the tensor is a
constant of the capture, as sizes are; other values are refused when the graph is run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from tinytorch.fx.capture.slots import BATCH, CaptureError, Slot

aten = torch.ops.aten
CHANGED = "{} has other values than in the capture, where it was given as a constant; capture again"


def constants_of(
    names: Collection[str], slots: Sequence[Slot], values: Sequence[Any]
) -> dict[Slot, Tensor]:
    """The tensors of a batch that are to be constants, by their slots.

    Raises:
        CaptureError: there is none of a name, or it has gradients.
    """
    known = {s.name: (s, v) for s, v in zip(slots, values, strict=True) if s.role == BATCH}
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise CaptureError(f"there is no input {name!r} to be a constant; there are {there}")
        if known[name][1].requires_grad:
            raise CaptureError(f"input {name!r} requires a gradient, so it cannot be a constant")
    return dict(known[name] for name in names)


def real_copies(tensors: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
    """Copies of real tensors, which are real in a trace, too."""
    with _disable_current_modes():
        return {name: x.detach().clone() for name, x in tensors.items()}


class ConstantFolding(TorchFunctionMode):
    """Computes for real, outside of the trace, what depends on these tensors alone, or on integers
    of the code (`torch.tensor([2, 2])`), which are often seen together with them."""

    def __init__(self, tensors: Collection[Tensor]) -> None:
        super().__init__()
        self._real: Any = WeakIdKeyDictionary({x: True for x in tensors})

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not all(x in self._real for x in given) or not (given or func is torch.tensor):
            return func(*args, **kwargs)
        with _disable_current_modes(), torch.no_grad():
            result = func(*args, **kwargs)
        if not given and result.is_floating_point():  # gradients may be added up in it
            return func(*args, **kwargs)
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                self._real[x] = True
        return result


@contextmanager
def with_constants(model: nn.Module, fixed: Mapping[Any, Tensor]) -> Iterator[None]:
    """In this block the forward of a model gets these in place of the inputs of those names.

    Args:
        fixed: by the names of keyword arguments, or the numbers of positional ones.
    """
    if not fixed:
        yield
        return
    original, before = model.forward, model.__dict__.get("forward")

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        own = real_copies(fixed)
        args = tuple(own.get(str(i), x) for i, x in enumerate(args))
        with ConstantFolding(own.values()):
            return original(*args, **{k: own.get(k, x) for k, x in kwargs.items()})

    model.forward = forward
    try:
        yield
    finally:
        del model.forward
        if before is not None:
            model.forward = before


def check_in_graph(module: torch.fx.GraphModule, fixed: Mapping[str, Tensor]) -> None:
    """Let a graph begin with the check that its constant inputs have their values."""
    graph = module.graph
    inputs = {str(n.target): n for n in graph.find_nodes(op="placeholder")}
    behind = list(inputs.values())[-1].next

    def add(target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        node = graph.call_function(target, args)
        fakes = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        with fake.fake_mode:
            node.meta.update(phase="forward", val=target(*fakes))
        return node

    for name, value in fixed.items():
        source = inputs[name]
        fake: FakeTensor = source.meta["val"]
        module.register_buffer(f"constant_{name}", value.detach().clone(), persistent=False)
        with graph.inserting_before(behind):
            expected = graph.get_attr(f"constant_{name}")
            expected.meta.update(phase="forward", val=fake)
            is_same = add(aten.all.default, add(aten.eq.Tensor, source, expected))
            add(aten._assert_async.msg, is_same, CHANGED.format(f"input {name!r}"))
    module.recompile()
