"""A binary heap of (priority, key): the smallest priority is at the root, of equal ones the key's.

Source: J. W. J. Williams, "Algorithm 232: Heapsort", 1964.
"""

from __future__ import annotations

from tinytorch.dtypes import Array
from tinytorch.text.kernels.words import inner


@inner
def push(heap: Array, size: int, priority: int, key: int) -> int:
    """Add an entry to a heap of `size` entries; the new size."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent, 0] < priority or (heap[parent, 0] == priority and heap[parent, 1] <= key):
            break
        heap[i, 0], heap[i, 1] = heap[parent, 0], heap[parent, 1]
        i = parent
    heap[i, 0], heap[i, 1] = priority, key
    return size + 1


@inner
def replace_root(heap: Array, size: int, priority: int, key: int) -> None:
    """Put an entry in place of the root."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[other, 0] < heap[child, 0]
            or (heap[other, 0] == heap[child, 0] and heap[other, 1] < heap[child, 1])
        ):
            child = other
        if priority < heap[child, 0] or (priority == heap[child, 0] and key <= heap[child, 1]):
            break
        heap[i, 0], heap[i, 1] = heap[child, 0], heap[child, 1]
        i = child
    heap[i, 0], heap[i, 1] = priority, key


@inner
def pop(heap: Array, size: int) -> int:
    """Remove the root; the new size."""
    size -= 1
    replace_root(heap, size, heap[size, 0], heap[size, 1])
    return size
