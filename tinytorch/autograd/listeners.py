"""Those who want a gradient as soon as it is known, while `backward` still runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from tinytorch.history import Record

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class BackwardListener(Protocol):
    """A listener that is told of each `backward()` of this process while it is in `listeners`."""

    def ready(self, leaf: Tensor, gradient: Tensor) -> None:
        """The gradient that this backward will add to `leaf.grad` is known."""

    def end(self, gradients: dict[Any, Tensor]) -> None:
        """All gradients, by leaf, before they are added; may be exchanged, or taken out."""

    def abandon(self) -> None:
        """In place of `end`, or after a part of it: this backward has raised an error."""


listeners: list[BackwardListener] = []


def leaves_when_ready(order: list[Any]) -> list[Any]:
    """A topological order of the same sources, in which leaves come as late as they can.

    `backward` reads it from its end: the gradient of a leaf is then known as soon as those of all
    that reads it are, and the weights of the last layer come first. (The inputs of an op are taken
    from the last to the first, as weights follow what they are applied to.)
    """
    readers = Counter(e for s in order if type(s) is Record for e in s.edges if e is not None)
    ready = [source for source in order if source not in readers]
    reverse: list[Any] = []
    while ready:
        source = ready.pop()
        reverse.append(source)
        for edge in source.edges if type(source) is Record else ():
            if edge is not None:
                readers[edge] -= 1
                if readers[edge] == 0:
                    ready.append(edge)
    return reverse[::-1]
