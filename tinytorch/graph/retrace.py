"""`Specializing`: a function that is traced anew for every kind of call, and says why."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from tinytorch.graph.ir import GraphError
from tinytorch.graph.pytree import TreeSpec, tree_flatten
from tinytorch.graph.trace import argument_names, trace
from tinytorch.graph.traced import TracedFunction

FEW = 4  # traces that may differ in one thing before it is taken to differ always


class Specializing:
    """Calls a function through its traces: one for each shape, dtype, flag that it is called with.

    Args:
        function: as `trace` takes it.
        maxsize: how many traces are kept; the one that was not used for longest goes.
        transform: what to make of a new trace before it is called, such as optimizing it.
        dynamic: make a new trace for a call of a new kind; otherwise such a call is an error.
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
        dynamic: bool = True,
        **options: Any,
    ) -> None:
        if maxsize < 1:
            raise ValueError(f"Specializing: maxsize must be at least 1, not {maxsize}")
        self.function = function
        self.maxsize = maxsize
        self.transform = transform
        self.dynamic = dynamic
        self.options = options
        self.reasons: list[str] = []
        self._made: Counter[str] = Counter()  # traces, by what differed from those before
        self._lock = threading.RLock()  # of making a trace
        self._traces: list[TracedFunction] = []  # replaced, never changed: threads walk it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function through a trace that fits; a new one if none does."""
        leaves, spec = tree_flatten((args, kwargs))
        traced = self.find(leaves, spec, args, kwargs)
        return self.function(*args, **kwargs) if traced is None else traced.execute(leaves)

    def find(
        self, leaves: list[Any], spec: TreeSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TracedFunction | None:
        """A trace that fits the arguments; `leaves` and `spec` are theirs.

        None if many traces were made for the same reason already: one more would not be the last.
        """
        traced, _ = self._known(leaves, spec)
        if traced is not None:
            return traced
        with self._lock:
            traced, reason = self._known(leaves, spec)  # another thread may have made it
            if traced is None and not self._changes_always(reason, args, kwargs):
                traced = self._add(reason, args, kwargs)
        return traced

    def _changes_always(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """What differs has differed in as many traces as are kept; the first time it is said."""
        subject = re.split(" is | are | has ", reason)[0]
        self._made[subject] += 1
        limit = max(self.maxsize, FEW)
        if not self.dynamic or self._made[subject] <= limit:
            return False
        if self._made[subject] == limit + 1:
            name = subject
            if subject.startswith("argument "):
                names = argument_names(self._traces[-1].environment, args, kwargs)
                position = int(re.findall(r"\d+", subject)[0])
                name = f"{subject} ({names[position]})" if position < len(names) else subject
            warnings.warn(
                f"{getattr(self.function, '__qualname__', self.function)!s:.80}: {name} is another "
                f"in every one of {limit} traces ({reason}), so calls that fit none of them now "
                f"run op by op. Give it as a tensor, pad it to a few sizes, or keep more traces "
                f"(cache_size={self.maxsize})",
                RuntimeWarning,
                stacklevel=4,
            )
        return True

    def _known(self, leaves: list[Any], spec: TreeSpec) -> tuple[TracedFunction | None, str]:
        """A trace that fits; or why the last used, which is the closest, does not."""
        reason = "first call"
        for traced in reversed(self._traces):
            why_not = traced.why_not(leaves, spec)
            if why_not is None:
                if traced is not self._traces[-1]:
                    self._traces = [*(t for t in self._traces if t is not traced), traced]
                return traced, ""
            if reason == "first call":
                reason = why_not
        return None, reason

    def _add(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedFunction:
        if self.reasons and not self.dynamic:
            raise GraphError(
                f"a call does not fit the trace, and dynamic=False allows no other: {reason}"
            )
        traced = self.transform(trace(self.function, *args, **kwargs, **self.options))
        self.reasons.append(reason)
        self._traces = [*self._traces, traced][-self.maxsize :]
        return traced

    @property
    def traces(self) -> list[TracedFunction]:
        """The traces that are kept, the last used at the end."""
        return self._traces
