"""The ids of a piece that is met for the first time."""

from __future__ import annotations

from tinytorch.dtypes import Array
from tinytorch.text.kernels.heap import pop, push
from tinytorch.text.kernels.tables import find_pair
from tinytorch.text.kernels.words import inner

NEVER = 1 << 62  # a rank and id, where there is no merge
_LOW = 0xFFFFFFFF
# Rows of the scratch space: what is in it for each byte of the piece.
ID, MERGE, NEXT, PREVIOUS = range(4)


@inner
def merge_of(pairs: Array, left: int, right: int) -> int:
    """The merge of two neighbours as (rank << 32 | id of what they become); NEVER for none."""
    row = find_pair(pairs, left << 32 | right)
    return NEVER if pairs[row, 0] == -1 else pairs[row, 1]


@inner
def merge_short(scratch: Array, count: int, pairs: Array) -> int:
    """Merge ids by looking for the smallest rank again and again; the number that is left."""
    while count > 1:
        best, at = NEVER, 0
        for i in range(count - 1):
            if scratch[MERGE, i] < best:
                best, at = scratch[MERGE, i], i
        if best == NEVER:
            break
        scratch[ID, at] = best & _LOW
        count -= 1
        for i in range(at + 1, count):
            scratch[ID, i] = scratch[ID, i + 1]
            scratch[MERGE, i] = scratch[MERGE, i + 1]
        if at > 0:
            scratch[MERGE, at - 1] = merge_of(pairs, scratch[ID, at - 1], scratch[ID, at])
        if at + 1 < count:
            scratch[MERGE, at] = merge_of(pairs, scratch[ID, at], scratch[ID, at + 1])
    return count


@inner
def merge_long(scratch: Array, count: int, pairs: Array, heap: Array) -> int:
    """The same with a heap and a linked list: a text of one letter does not take for ever."""
    size = 0
    for i in range(count):
        scratch[NEXT, i], scratch[PREVIOUS, i] = i + 1, i - 1
        if i + 1 < count and scratch[MERGE, i] != NEVER:
            size = push(heap, size, scratch[MERGE, i] >> 32, i)
    while size > 0:
        rank, i = heap[0, 0], heap[0, 1]
        size = pop(heap, size)
        if scratch[ID, i] < 0 or scratch[NEXT, i] >= count or scratch[MERGE, i] >> 32 != rank:
            continue  # one of the two has been merged since
        right = scratch[NEXT, i]
        after, before = scratch[NEXT, right], scratch[PREVIOUS, i]
        scratch[ID, i] = scratch[MERGE, i] & _LOW
        scratch[ID, right] = -1
        scratch[NEXT, i] = after
        scratch[MERGE, i] = NEVER
        if after < count:
            scratch[PREVIOUS, after] = i
            size = _offer(scratch, i, after, pairs, heap, size)
        if before >= 0:
            size = _offer(scratch, before, i, pairs, heap, size)
    left = 0
    for i in range(count):
        if scratch[ID, i] >= 0:
            scratch[ID, left] = scratch[ID, i]
            left += 1
    return left


@inner
def _offer(scratch: Array, i: int, j: int, pairs: Array, heap: Array, size: int) -> int:
    scratch[MERGE, i] = merge_of(pairs, scratch[ID, i], scratch[ID, j])
    return push(heap, size, scratch[MERGE, i] >> 32, i) if scratch[MERGE, i] != NEVER else size


@inner
def merge_piece(
    text: Array, i: int, length: int, byte_ids: Array, pairs: Array, scratch: Array, heap: Array
) -> int:
    """Write the ids of the piece text[i : i + length] to scratch[ID]; their number.

    Args:
        byte_ids: of each single byte.
        pairs: of two ids, left << 32 | right, the merge; see `merge_of`.
        scratch, heap: of at least `length` and 3 * `length` columns or rows.
    """
    for k in range(length):
        scratch[ID, k] = byte_ids[text[i + k]]
    for k in range(length - 1):
        scratch[MERGE, k] = merge_of(pairs, scratch[ID, k], scratch[ID, k + 1])
    scratch[MERGE, length - 1] = NEVER
    if length <= 64:
        return merge_short(scratch, length, pairs)
    return merge_long(scratch, length, pairs, heap)
