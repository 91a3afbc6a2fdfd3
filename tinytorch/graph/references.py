"""Who holds a tensor's memory, by counts of references.

In the counts, what is known here is named: the argument of `getrefcount` is a reference too. Of a
variable x that is `(x,)[0]`: Python 3.14 does not always count an argument that is a variable.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tinytorch.history import Record, owner_of

if TYPE_CHECKING:
    from tinytorch.graph.bindings import StateBinding
    from tinytorch.graph.symbols import Storage
    from tinytorch.tensor import Tensor


def only_trace_holds(binding: StateBinding, storage: Storage) -> bool:
    """Whether only the trace holds the tensor, its array, and the memory that the array views."""
    array = storage.array
    owner = owner_of(array)
    return (
        sys.getrefcount(binding.tensor) <= 2  # the binding's
        # the tensor's, the storage's, the meta's, and `array`
        and sys.getrefcount((array,)[0]) <= 5 + (owner is array)
        and (owner is array or sys.getrefcount((owner,)[0]) <= 3)  # the array's, and `owner`
    )


def only_tensor_holds(tensor: Tensor) -> bool:
    """Whether only a traced tensor holds its memory, and the results that gradients keep of it."""
    symbol = tensor._data
    known, known_storage = 3, 2  # the tensor's and `symbol`; the symbol's
    record = tensor.history
    while type(record) is Record:  # as in eager mode: through views to the op that made the memory
        if record.output is symbol:
            known += 1
        elif type(record.output) is type(symbol) and record.output.storage is symbol.storage:
            known_storage += sys.getrefcount(record.output) <= 2  # the record's
        record = record.edges[0] if record.op.view else None
    is_shared = sys.getrefcount((symbol,)[0]) > known
    return not is_shared and sys.getrefcount(symbol.storage) <= known_storage
