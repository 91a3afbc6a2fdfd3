"""`OptimizationPass`: what every pass is, and the registry of passes by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tinytorch.graph.ir import GraphError
from tinytorch.graph.semantics import TINYTORCH, AnyGraph, Semantics


class OptimizationPass(ABC):
    """One way to improve a graph, in three parts.

        analyze(graph)              reads, and returns what it found
        transform(graph, found)     writes; returns whether it changed anything
        verify(before, after)       reads both, and raises GraphError if a promise is broken

    A pass uses of nodes and graphs only what torch.fx has too, and asks the rest of `semantics`,
    so it runs on both kinds of graph.

    Attributes:
        name: by which `get_pass_by_name` finds it.
        exact: results are the same to the last bit; otherwise to rounding.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True

    def __init__(self, semantics: Semantics = TINYTORCH) -> None:
        if not isinstance(semantics, Semantics):
            raise TypeError(
                f"{type(self).__name__}: the first argument is the semantics of a graph's world, "
                f"not {semantics!r}; give options by name"
            )
        self.semantics = semantics

    @abstractmethod
    def analyze(self, graph: AnyGraph) -> Any:
        """Find what there is to do. Changes nothing."""

    @abstractmethod
    def transform(self, graph: AnyGraph, found: Any) -> bool:
        """Do what `analyze` found. Returns whether the graph changed."""

    def verify(self, before: AnyGraph, after: AnyGraph) -> None:
        """Check what the pass promises beyond equal results. Override to promise more.

        Raises:
            GraphError: the inputs are no longer the same.
        """
        names = [[n.target for n in g.find_nodes(op="placeholder")] for g in (before, after)]
        if names[0] != names[1]:
            raise GraphError(f"{self.name} changed the inputs from {names[0]} to {names[1]}")

    def rewrites(self, found: Any) -> list[Any] | None:
        """What `analyze` found as rewrites that can be made one without the other.

        None: all or nothing.
        """
        if isinstance(found, dict):
            return list(found.items())
        return found if isinstance(found, list) else None

    def select(self, found: Any, numbers: Sequence[int]) -> Any:
        """The analysis with only some of its rewrites."""
        if isinstance(found, dict):
            items = list(found.items())
            return dict(items[i] for i in numbers)
        return [found[i] for i in numbers]

    def run(self, graph: AnyGraph) -> bool:
        """Analyze and transform in one go. Returns whether the graph changed."""
        return self.transform(graph, self.analyze(graph))


_PASSES: dict[str, type[OptimizationPass]] = {}


def register_pass(cls: type[OptimizationPass]) -> type[OptimizationPass]:
    """Make a pass known by its name; a class decorator.

    Raises:
        ValueError: the name is taken by another class.
    """
    known = _PASSES.setdefault(cls.name, cls)
    if known is not cls:
        raise ValueError(f"there is a pass {cls.name!r} already: {known.__qualname__}")
    return cls


def get_pass_by_name(name: str) -> Callable[..., OptimizationPass]:
    """The class of the pass of this name.

    Raises:
        KeyError: there is none; the message lists those there are.
    """
    if name not in _PASSES:
        raise KeyError(f"there is no pass {name!r}; there are {', '.join(list_passes())}")
    return _PASSES[name]


def list_passes() -> list[str]:
    """Names of all passes."""
    return sorted(_PASSES)
