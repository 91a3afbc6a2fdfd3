"""`Storages`: the pieces of memory of a graph, and which of them each value is in.

A view is in the storage of what it views, and a tuple is in several. `Semantics.storages` finds
them, for each world in its own way; what follows from them is in memory.py and recompute/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AnyNode = Any  # a Node of tinytorch.graph or of torch.fx


@dataclass
class Storages:
    """The storages of a graph, by number.

    Attributes:
        sizes: bytes of each.
        makers: for each the node from which on it exists.
        external: those of inputs and constants, which are there before, and stay.
        held: for each node the storages that its value is in.
    """

    sizes: list[int] = field(default_factory=list)
    makers: list[AnyNode] = field(default_factory=list)
    external: set[int] = field(default_factory=set)
    held: dict[AnyNode, tuple[int, ...]] = field(default_factory=dict)

    def add(self, node: AnyNode, nbytes: int) -> int:
        """A new storage that a node makes; returns its number."""
        number = len(self.sizes)
        self.sizes.append(nbytes)
        self.makers.append(node)
        if node.op in ("placeholder", "get_attr"):
            self.external.add(number)
        return number

    def made(self, node: AnyNode) -> tuple[int, ...]:
        """The storages that a node makes."""
        return tuple(s for s in self.held[node] if self.makers[s] is node)

    def read(self, node: AnyNode) -> set[int]:
        """The storages that the arguments of a node are in."""
        return {s for a in node.all_input_nodes for s in self.held[a]}

    @property
    def roots(self) -> dict[AnyNode, AnyNode]:
        """The node that made the memory of each value: itself, unless it is a view."""
        return {node: self.makers[held[0]] for node, held in self.held.items() if held}

    @property
    def external_bytes(self) -> int:
        """Bytes of inputs and constants."""
        return sum(self.sizes[s] for s in self.external)
