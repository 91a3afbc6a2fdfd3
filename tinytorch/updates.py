"""`Update`: an op that changes tensors in place, such as one step of an optimizer.

A row of the op table makes a new value; a step of Adam made of such would write its memory twice.
So updates are rows of a table of their own. As a fused op, an update has a decomposition, the body
of its function, which modes get; without one, a backend that has a kernel of its name runs that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import backends
from tinytorch.dtypes import Array
from tinytorch.history import write_clock
from tinytorch.state import STATE

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


Row = Sequence["Tensor | None"]  # the tensors of a call


class Update:
    """A row of the table of updates: call it with tensors by position (or None) and numbers by
    keyword.

    Attributes:
        name: also the name of its kernel on a backend. The kernel takes the arrays of the tensors,
            C-contiguous and, where the decomposition would fail otherwise, of one shape and dtype.
        writes: positions of the tensors that it changes.
        decomposition: the same in Tensor ops.
    """

    def __init__(self, decomposition: Callable[..., None], writes: tuple[str, ...]) -> None:
        self.name = decomposition.__name__
        names = list(inspect.signature(decomposition).parameters)
        self.writes = tuple(names.index(name) for name in writes)
        self.decomposition = decomposition
        self.__doc__ = decomposition.__doc__

    def __call__(self, *tensors: Tensor | None, **params: Any) -> None:
        self.each([tensors], **params)

    def each(self, rows: Iterable[Row], **params: Any) -> None:
        """Call the update for each row of tensors, with the same numbers; it costs half as much."""
        kernel = self._kernel()
        if kernel is None:
            for tensors in rows:
                self.decomposition(*tensors, **params)
            return
        run, written = partial(kernel, **params), []
        try:
            for tensors in rows:
                arrays: list[Array | None] = []
                for t in tensors:
                    array = None if t is None else t._data
                    if array is not None and not array.flags.carray:
                        arrays = self._in_order(tensors)
                        break
                    arrays.append(array)
                if not arrays:
                    self.decomposition(*tensors, **params)
                    continue
                run(*arrays)
                for i in self.writes:
                    written.append(arrays[i])
        finally:
            write_clock.write(*[array for array in written if array is not None])

    def together(self, columns: Sequence[Sequence[Tensor]], **params: Any) -> int:
        """Call the update for the first rows of columns of tensors, as many as are plain.

        That is one call of `kernel.together` of the backend, if there is one: it takes columns of
        arrays, all of one dtype, and returns how many rows it has done, up to the first that it
        leaves to the kernel itself. In a mode none is done.
        """
        kernel = getattr(self._kernel(), "together", None)
        if kernel is None:
            return 0
        arrays = [[t._data for t in column] for column in columns]
        done: int = kernel(*arrays, **params)
        write_clock.write(*[a for i in self.writes if i < len(arrays) for a in arrays[i][:done]])
        return done

    def _kernel(self) -> Any:
        """That of the backend in force; None if it has none, and in a mode, which gets the ops."""
        state = STATE.get()
        if state.mode is not None:
            return None
        return getattr(state.backend or backends.current or backends.default(), self.name, None)

    def _in_order(self, tensors: Row) -> list[Array | None]:
        """Arrays for a kernel; none if it could not write into one: gaps, or read-only memory."""
        arrays = [None if t is None else t._data for t in tensors]
        for i, array in enumerate(arrays):
            if array is not None and not array.flags.carray:
                if i in self.writes:
                    return []
                arrays[i] = np.ascontiguousarray(array)
        return arrays

    def __repr__(self) -> str:
        return f"<update {self.name}>"


UPDATES: dict[str, Update] = {}


def update(*writes: str) -> Callable[[Callable[..., None]], Update]:
    """Register a function as an update that changes the tensors called so; its body says how.

    >>> from tinytorch import tensor
    >>> @update("x")
    ... def halve(x):
    ...     x.mul_(0.5)
    >>> t = tensor([2.0, 4.0])
    >>> halve(t); t
    tensor([1., 2.])
    >>> del UPDATES["halve"]
    """

    def enter(decomposition: Callable[..., None]) -> Update:
        row = Update(decomposition, writes)
        if row.name in UPDATES:
            raise ValueError(f"there is an update {row.name!r} already")
        UPDATES[row.name] = row
        return row

    return enter
