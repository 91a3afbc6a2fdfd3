"""How much memory the results of ops hold, now and at the most.

Memory counts from the op that made it until the last tensor on it is gone: a view keeps the memory
of its base alive and adds none of its own. Recycled memory counts only while somebody holds it, not
while it lies in a pool.

Not counted: what existed before the block (parameters and data, unless an op of the block made
them), scratch memory that a kernel frees before it returns, arrays that do not come from an op, and
the interpreter. `tracemalloc` sees what Python and NumPy allocate, and makes everything slower.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from tinytorch.dispatch import SCALAR_TYPES, Input
from tinytorch.dtypes import Array
from tinytorch.history import owner_of


class LiveMemory:
    """Follows arrays by weak references, so that it keeps none of them alive.

    Attributes:
        current: bytes held now.
        peak: the most that was ever held.
    """

    def __init__(self) -> None:
        self.current = 0
        self.peak = 0
        self._holders: dict[int, tuple[int, int]] = {}  # owner -> arrays that hold it, bytes
        self._references: dict[int, tuple[weakref.ref[Array], int]] = {}
        self._lock = threading.RLock()  # an array may die in any thread, and inside `add`

    def add(self, data: Any, inputs: tuple[Input, ...]) -> None:
        """Follow the result of an op on `inputs`; data that is not an array has no memory.

        The memory counts for the array that owns it: `owner_of(data)`. `_holders` has, for the id
        of each owner, how many followed arrays hold it and its bytes. The bytes count when the
        first one comes, unless the owner is the memory of an input (`_is_shared`): that is not
        followed. A weak reference to `data` calls `_discard` when the array is gone; `_references`
        keeps it, by its id, with the owner's. All this happens under `self._lock`.
        """
        if not isinstance(data, np.ndarray):
            return
        owner = owner_of(data)
        key = id(owner)
        with self._lock:
            holders, nbytes = self._holders.get(key, (0, 0))
            if not holders:
                if _is_shared(owner, inputs):
                    return  # a view of memory from before
                nbytes = data.nbytes
                self.current += nbytes
                self.peak = max(self.peak, self.current)
            self._holders[key] = (holders + 1, nbytes)
            reference = weakref.ref(data, self._discard)
            self._references[id(reference)] = (reference, key)

    def _discard(self, reference: weakref.ref[Array]) -> None:
        """The array of a weak reference is gone, under `self._lock`: one holder less, and the bytes
        with the last. A reference that is not in `_references` is none of ours any more."""
        with self._lock:
            entry = self._references.pop(id(reference), None)
            if entry is None:
                return  # following has stopped
            holders, nbytes = self._holders.pop(entry[1])
            if holders > 1:
                self._holders[entry[1]] = (holders - 1, nbytes)
            else:
                self.current -= nbytes

    def stop(self) -> None:
        """Stop following arrays and release all references; `current` and `peak` stay."""
        with self._lock:
            self._references.clear()
            self._holders.clear()


def _is_shared(owner: Array, inputs: tuple[Input, ...]) -> bool:
    arrays = [t._data for t in inputs if type(t) not in SCALAR_TYPES]
    return any(isinstance(a, np.ndarray) and owner_of(a) is owner for a in arrays)
