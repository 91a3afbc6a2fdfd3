"""`Specializing`: a function that is traced anew for every kind of call, and says why."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.trace import trace
from tinytorch.graph.traced import TracedFunction


class Specializing:
    """Calls a function through its traces: one for each shape, dtype, flag that it is called with.

    Args:
        function: as `trace` takes it.
        maxsize: how many traces are kept; the one that was not used for longest goes.
        transform: what to make of a new trace before it is called, such as optimizing it.
        options: of `trace`.

    Attributes:
        reasons: for each trace that was made, why those before it did not fit.

    >>> import tinytorch
    >>> double = Specializing(lambda x: x * 2.0)
    >>> double(tinytorch.ones(2)).shape, double(tinytorch.ones(3)).shape
    ((2,), (3,))
    >>> double.reasons
    ['first call', 'argument 0 is float32[3], and was float32[2]']
    """

    def __init__(
        self,
        function: Callable[..., Any],
        maxsize: int = 8,
        transform: Callable[[TracedFunction], TracedFunction] = lambda traced: traced,
        **options: Any,
    ) -> None:
        if maxsize < 1:
            raise ValueError(f"Specializing: maxsize must be at least 1, not {maxsize}")
        self.function = function
        self.maxsize = maxsize
        self.transform = transform
        self.options = options
        self.reasons: list[str] = []
        self._traces: OrderedDict[int, TracedFunction] = OrderedDict()  # the last used at the end
        self._numbers = count()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function, through a trace that fits; a new one if none does."""
        leaves, spec = tree_flatten((args, kwargs))
        reason = "first call"
        for number in reversed(self._traces):
            why_not = self._traces[number].why_not(leaves, spec)
            if why_not is None:
                self._traces.move_to_end(number)
                return self._traces[number].execute(leaves)
            if reason == "first call":
                reason = why_not  # of the last used, which is the closest
        traced = self.transform(trace(self.function, *args, **kwargs, **self.options))
        self.reasons.append(reason)
        self._traces[next(self._numbers)] = traced
        if len(self._traces) > self.maxsize:
            self._traces.popitem(last=False)
        return traced.execute(leaves)

    @property
    def traces(self) -> list[TracedFunction]:
        """The traces that are kept, the last used at the end."""
        return list(self._traces.values())
