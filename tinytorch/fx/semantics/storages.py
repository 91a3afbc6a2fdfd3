"""The storages of a torch.fx graph, found by interpreting it once on fake tensors.

These have storages but no memory. Several values may share a storage (views), and one value may be
in several (tuples).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from tinytorch.fx.capture.layouts import same_layout
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.graph.storages import Storages


class _StoragePropagation(torch.fx.Interpreter):
    """Interprets a graph on fake tensors and numbers the storages as they appear."""

    def __init__(self, owner: nn.Module, graph: torch.fx.Graph, mode: FakeTensorMode) -> None:
        super().__init__(owner, garbage_collect_values=False, graph=graph)
        self.mode = mode
        self.found = Storages()
        self.numbers: dict[int, int] = {}  # by address
        self.alive: list[Any] = []  # a storage's address names it only while it lives

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return self.mode.from_tensor(value) if isinstance(value, Tensor) else value

    def run_node(self, n: torch.fx.Node) -> Any:
        result = self._as_known(super().run_node(n), n.meta.get("val"))
        held: dict[int, None] = {}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and n.op != "output":
                held[self._number(n, tensor.untyped_storage())] = None
        self.found.held[n] = tuple(held)
        return result

    def _as_known(self, value: Any, known: Any) -> Any:
        """New memory in the layout that the graph knows of; a fake kernel may give another."""
        both = (value, known)
        if all(isinstance(x, (list, tuple)) for x in both) and len(value) == len(known):
            return type(value)(map(self._as_known, value, known))
        if (
            not isinstance(value, Tensor)
            or not isinstance(known, Tensor)
            or value.untyped_storage()._cdata in self.numbers  # a view, of what is in its layout
            or not all(isinstance(n, int) for n in value.shape)
            or (value.shape, value.dtype) != (known.shape, known.dtype)
            or same_layout(value, known)
        ):
            return value
        return torch.empty_strided(
            value.shape, known.stride(), dtype=value.dtype, device=value.device
        )

    def _number(self, node: torch.fx.Node, storage: torch.UntypedStorage) -> int:
        known = self.numbers.get(storage._cdata)
        if known is not None:
            return known
        nbytes = storage.nbytes()
        if not isinstance(nbytes, int):
            raise CaptureError(
                f"{node.name} has {nbytes} bytes, which depends on an open dimension; "
                "capture the graph without dynamic_dims to know its memory"
            )
        self.alive.append(storage)
        number = self.numbers[storage._cdata] = self.found.add(node, nbytes)
        return number


def find_storages(
    owner: nn.Module, graph: torch.fx.Graph, inputs: Sequence[Any] | None = None
) -> Storages:
    """Find the storages of a graph of ATen ops without running it.

    Args:
        owner: has its constants.
        inputs: like its inputs; by default what `node.meta["val"]` of the placeholders says.

    Raises:
        CaptureError: nothing is known of an input, or the memory of a value depends on an open
            dimension.
    """
    given = _known(graph) if inputs is None else list(inputs)
    mode = next((v.fake_mode for v in given if isinstance(v, FakeTensor)), None)
    mode = mode or FakeTensorMode()
    inside = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True  # graphs hold constants, such as a scalar tensor
    try:
        with mode, torch.no_grad():
            interpreter = _StoragePropagation(owner, graph, mode)
            interpreter.run(*tree_map(lambda v: _fake(v, mode), given), enable_io_processing=False)
    finally:
        mode.allow_non_fake_inputs = inside
    return interpreter.found


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, FakeTensor) or not isinstance(value, Tensor):
        return value
    return mode.from_tensor(value.detach(), static_shapes=True)


def _known(graph: torch.fx.Graph) -> list[Any]:
    placeholders = graph.find_nodes(op="placeholder")
    unknown = [n.name for n in placeholders if "val" not in n.meta]
    if unknown:
        raise CaptureError(f"the shapes of {', '.join(unknown)} are unknown: pass inputs")
    return [n.meta["val"] for n in placeholders]
