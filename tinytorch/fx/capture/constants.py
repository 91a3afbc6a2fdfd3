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

from tinytorch.fx.capture.known_values import LIMIT
from tinytorch.fx.capture.slots import BATCH, CaptureError, Slot

aten = torch.ops.aten
CHANGED = "{} has other values than in the capture, of which it is a constant; capture again"
WRITTEN = "the model writes buffer {!r}, so it is no constant"
_T: Any = Tensor
#: They ask a tensor for its form, not for its values.
OF_FORM: frozenset[Any] = frozenset((
    _T.size, _T.dim, _T.numel, _T.stride, _T.is_floating_point, _T.__len__,
    *(of.__get__ for of in (_T.shape, _T.ndim, _T.dtype, _T.device, _T.requires_grad, _T.is_cuda)),
))  # fmt: skip


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
    of the code (`torch.tensor([2, 2])`), which are often seen together with them.

    Args:
        tensors: real ones, by their names.

    Attributes:
        read: the names of those whose values have come into the trace, or into Python.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._sources: Any = WeakIdKeyDictionary({x: {name} for name, x in tensors.items()})
        self.read: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        sources = self.sources_of(given)
        if not all(x in self._sources for x in given) or not (given or func is torch.tensor):
            self.read |= sources
            return func(*args, **kwargs)
        with _disable_current_modes():  # no_grad would be recorded, and nothing here has gradients
            result = func(*args, **kwargs)
        if not given and result.is_floating_point():  # gradients may be added up in it
            return func(*args, **kwargs)
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                self._sources[x] = sources | self._sources.get(x, set())
            elif func not in OF_FORM:
                self.read |= sources
        return result

    def sources_of(self, nest: Any) -> set[str]:
        """The names of the tensors that those in a nest are made of."""
        found = (self._sources.get(x, ()) for x in tree_leaves(nest) if isinstance(x, Tensor))
        return set().union(*found)


def countable_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The small buffers that hold integers: a padding, a stride, an index; by their names.

    >>> model = nn.BatchNorm1d(3)
    >>> list(countable_buffers(model))
    ['num_batches_tracked']
    """
    return {
        name: x for name, x in model.named_buffers(remove_duplicate=False)
        if not x.is_floating_point() and not x.is_complex() and x.numel() <= LIMIT
    }  # fmt: skip


@contextmanager
def with_constants(
    model: nn.Module, fixed: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
) -> Iterator[set[str]]:
    """Give a model's forward these values for the inputs of those names, inside the block.

    Args:
        fixed: by the names of keyword arguments, or the numbers of positional ones.
        buffers: of the model, which are constants, too.

    Returns:
        The names of those of the buffers on which what is traced in the block depends.

    Raises:
        CaptureError: in the block, the forward writes one of the buffers.
    """
    read: set[str] = set()
    if not fixed and not buffers:
        yield read
        return
    original, before = model.forward, model.__dict__.get("forward")

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        own, kept = real_copies(fixed), real_copies(buffers)
        args = tuple(own.get(str(i), x) for i, x in enumerate(args))
        folding = ConstantFolding({BATCH + name: x for name, x in own.items()} | kept)
        with folding, _exchanged(model, kept):
            result = original(*args, **{k: own.get(k, x) for k, x in kwargs.items()})
        read.update((folding.read | folding.sources_of(result)) & set(kept))
        written = [name for name, x in kept.items() if x._version]
        if written:
            raise CaptureError(WRITTEN.format(written[0]))
        return result

    model.forward = forward
    try:
        yield read
    finally:
        del model.forward
        if before is not None:
            model.forward = before


@contextmanager
def _exchanged(model: nn.Module, buffers: Mapping[str, Tensor]) -> Iterator[None]:
    """In this block a model has these buffers."""
    before = []
    for name, new in buffers.items():
        path, _, last = name.rpartition(".")
        of = model.get_submodule(path)._buffers
        before.append((of, last, of[last]))
        of[last] = new
    try:
        yield
    finally:
        for of, last, old in before:
            of[last] = old


def check_in_graph(
    module: torch.fx.GraphModule,
    fixed: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
) -> None:
    """Begin a graph with the check that its constant inputs, and buffers, have their values."""
    graph = module.graph
    inputs = {str(n.target): n for n in graph.find_nodes(op="placeholder")}
    own = {str(n.target): n for n in graph.find_nodes(op="get_attr")}
    behind = next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
    checked = [(f"input {name!r}", inputs[name], x) for name, x in fixed.items()]
    checked += [(f"buffer {name!r}", own[name], x) for name, x in buffers.items()]

    def add(target: Callable[..., Any], *args: Any) -> torch.fx.Node:
        node = graph.call_function(target, args)
        fakes = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
        with fake.fake_mode:
            node.meta.update(phase="forward", val=target(*fakes))
        return node

    for what, source, value in checked:
        fake: FakeTensor = source.meta["val"]
        name = f"constant_{source.name}"
        module.register_buffer(name, value.detach().clone(), persistent=False)
        with graph.inserting_before(behind):
            expected = graph.get_attr(name)
            expected.meta.update(phase="forward", val=fake)
            is_same = add(aten.all.default, add(aten.eq.Tensor, source, expected))
            add(aten._assert_async.msg, is_same, CHANGED.format(what))
    module.recompile()
