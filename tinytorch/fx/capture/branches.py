"""Several graphs of one model, one for each way that its Python takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import torch

from tinytorch.fx.capture.guards import GuardError, guard_errors
from tinytorch.fx.optimize.devices import generator_states

Captured = TypeVar("Captured")
Result = TypeVar("Result")
LIMIT = 64  # graphs: of a model that makes more, most runs would be captures


class Branches(Generic[Captured]):
    """Guarded graphs, tried one after the other; where none fits, another one is captured.

    A model that leaves out layers at random takes one of a few ways each time:

        branches = Branches()
        for batch in batches:
            loss, state = branches.run(
                lambda step: step.run(state, batch),
                lambda: capture_step(model, batch, "adamw", guarded=True),
            )

    A try that fails changes nothing: graphs are functional, and the random generators are put back.

    Args:
        devices: on which the graphs draw random numbers, beside the CPU.
        limit: how many graphs there may be.

    Attributes:
        graphs: the one that was used last is the last one.
    """

    def __init__(self, devices: Iterable[torch.device] = (), limit: int = LIMIT) -> None:
        self.graphs: list[Captured] = []
        self.devices = list(devices)
        self.limit = limit

    def run(self, use: Callable[[Captured], Result], capture: Callable[[], Captured]) -> Result:
        """What `use` makes of the first graph whose guards hold.

        Args:
            use: runs a graph on the values of now.
            capture: makes a graph of them, with guarded=True.

        Raises:
            GuardError: there are as many graphs as there may be, and none fits; or the new one does
                not fit either, so `capture` has not seen the values that `use` has.
        """
        put_back = generator_states(self.devices)
        failed: GuardError | None = None
        for i in reversed(range(len(self.graphs))):
            try:
                with guard_errors():
                    result = use(self.graphs[i])
            except GuardError as error:
                failed = failed or error
                put_back()
                continue
            self.graphs.append(self.graphs.pop(i))
            return result
        if len(self.graphs) >= self.limit:
            raise GuardError(f"none of {self.limit} graphs fits; the last one: {failed}")
        self.graphs.append(capture())
        put_back()
        with guard_errors():
            return use(self.graphs[-1])
