"""Which memory each node of an ATen graph makes and holds, what is alive when, and the peak.

A graph is interpreted once on fake tensors, which have storages but no memory. Several values may
share a storage (views), and one value may hold several (tuples), so lifetimes are those of
storages. Run node by node, with each value freed after its last use as torch.fx's generated code
does, a graph takes just what is simulated here. Not seen: what a kernel allocates and frees inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from tinytorch.fx.capture.functional import CaptureError
from tinytorch.fx.capture.layouts import same_layout
from tinytorch.graph.memory import Lifetime, Timeline, accumulate


@dataclass
class Storages:
    """The storages of a graph, by number.

    Attributes:
        sizes: bytes of each.
        made: for each node the storages that exist from it on.
        held: for each node all storages that its value is in.
        external: of inputs and constants: they are there before, and stay.
        values: for each node its value, with fake tensors.
    """

    sizes: list[int] = field(default_factory=list)
    made: dict[torch.fx.Node, tuple[int, ...]] = field(default_factory=dict)
    held: dict[torch.fx.Node, tuple[int, ...]] = field(default_factory=dict)
    external: set[int] = field(default_factory=set)
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)

    def read(self, node: torch.fx.Node) -> set[int]:
        """The storages that the arguments of a node are in."""
        return {s for a in node.all_input_nodes for s in self.held[a]}

    @property
    def external_bytes(self) -> int:
        """Bytes of inputs and constants."""
        return sum(self.sizes[s] for s in self.external)


class _StoragePropagation(torch.fx.Interpreter):
    """Interprets a graph on fake tensors and numbers the storages as they appear."""

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.mode = mode
        self.found = Storages()
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []  # a storage's address names it only while it lives

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return self.mode.from_tensor(value) if isinstance(value, Tensor) else value

    def run_node(self, n: torch.fx.Node) -> Any:
        result = self._as_known(super().run_node(n), n.meta.get("val"))
        held: dict[int, None] = {}
        made = []
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and n.op != "output":
                storage = tensor.untyped_storage()
                if storage._cdata not in self.numbers:
                    self.alive.append(storage)
                    made.append(self._number(n, storage))
                held[self.numbers[storage._cdata]] = None
        self.found.held[n], self.found.made[n] = tuple(held), tuple(made)
        self.found.values[n] = result
        if n.op in ("placeholder", "get_attr"):
            self.found.external.update(made)
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
        nbytes = storage.nbytes()
        if not isinstance(nbytes, int):
            raise CaptureError(
                f"{node.name} has {nbytes} bytes, which depends on an open dimension; "
                "capture the graph without dynamic_dims to know its memory"
            )
        number = self.numbers[storage._cdata] = len(self.found.sizes)
        self.found.sizes.append(nbytes)
        return number


def storages(module: torch.fx.GraphModule, inputs: Sequence[Any] | None = None) -> Storages:
    """Find the storages of a graph of ATen ops without running it.

    Args:
        inputs: like its inputs; by default what `node.meta["val"]` of the placeholders says.

    Raises:
        CaptureError: the memory of a value depends on an open dimension.
    """
    given = _given(module, inputs)
    mode = next((v.fake_mode for v in given if isinstance(v, FakeTensor)), None)
    mode = mode or FakeTensorMode()
    inside = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True  # graphs hold constants, such as a scalar tensor
    try:
        with mode, torch.no_grad():
            interpreter = _StoragePropagation(module, mode)
            interpreter.run(*tree_map(lambda v: _fake(v, mode), given))
    finally:
        mode.allow_non_fake_inputs = inside
    return interpreter.found


def _fake(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, FakeTensor) or not isinstance(value, Tensor):
        return value
    return mode.from_tensor(value.detach(), static_shapes=True)


def _given(module: torch.fx.GraphModule, inputs: Sequence[Any] | None) -> list[Any]:
    if inputs is not None:
        return list(inputs)
    placeholders = module.graph.find_nodes(op="placeholder")
    unknown = [n.name for n in placeholders if "val" not in n.meta]
    if unknown:
        raise CaptureError(f"the shapes of {', '.join(unknown)} are unknown: pass inputs")
    return [n.meta["val"] for n in placeholders]


def results(graph: torch.fx.Graph) -> list[Any]:
    """The nodes that a captured graph returns."""
    returned: Any = graph.output_node().args[0]
    return list(returned)


def lifetimes(graph: torch.fx.Graph, found: Storages) -> list[Lifetime]:
    """From where to where each storage is alive, in the order of the graph.

    Results live to the end. A storage that only a view of it is left of lives as long as the view.
    """
    alive: dict[int, Lifetime] = {}
    for rank, node in enumerate(graph.nodes):
        for s in found.made[node]:
            if s not in found.external:
                alive[s] = Lifetime(node, found.sizes[s], rank, rank, False)
        for s in (*found.held[node], *found.read(node)):
            if s in alive:
                alive[s].last = rank
                alive[s].is_result |= node.op == "output"
    return list(alive.values())


def timeline(module: torch.fx.GraphModule, inputs: Sequence[Any] | None = None) -> Timeline:
    """What is alive at each node, beyond inputs and constants, in bytes.

    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: (x + 1).exp().sum(), tracing_mode="fake")(torch.ones(100))
    >>> timeline(graph).live
    [0, 400, 800, 404, 4]
    """
    return accumulate(list(module.graph.nodes), lifetimes(module.graph, storages(module, inputs)))
