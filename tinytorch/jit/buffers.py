"""Buffers: aligned memory for results and scratch, recycled instead of asked from the system again.

A fresh array of a megabyte or more costs a page fault for every 4 KiB of it, often more than the
kernel that fills it. So memory that nobody looks at any more is used again, what was handed out
last first: most of it is still in the caches. Whether somebody does, Python knows: every view of a
block, and every view of a view, holds a reference to the block, so a block to which only the pool
refers is free.

    out = empty((1024, 1024), np.dtype(np.float32))   # recycled once `out` and all its views died
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from ctypes import addressof, c_char
from functools import lru_cache
from sys import getrefcount
from typing import Any

import numpy as np

from tinytorch.dtypes import Array

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
POOLED_FROM = 64 * 1024  # bytes; below, malloc has warm memory at hand and costs less than a look
DEFAULT_LIMIT = 1024**3  # bytes of memory that the pool may refer to
_BYTE = np.dtype(np.uint8)
NEAR = 3  # blocks in use that stay where they were: those handed out last are soon free
LOOKS = 8  # blocks of the right size to look at before taking a new one


def _count_of_an_unshared_array() -> int:
    """What `sys.getrefcount` says of an array that only a local variable refers to.

    Asked is of an item: for a variable itself, Python 3.14 may count the argument or not.
    """
    block = np.empty(1)
    return getrefcount((block,)[0])


_UNSHARED = _count_of_an_unshared_array()


@lru_cache(maxsize=4096)
def size_class(nbytes: int) -> int:
    """`nbytes` rounded up to 1, 1.25, 1.5 or 1.75 times a power of two, at least 1 KiB.

    Few classes make it likely that a free block fits; at most a fifth of a block is waste.
    """
    step = 1 << max(nbytes.bit_length() - 3, 8)
    return max(-(-nbytes // step) * step, 1024)


class BufferPool:
    """Blocks of memory by size class, handed out again when nobody else refers to them.

    Args:
        limit: the most bytes to keep hold of. What is needed beyond it is ordinary memory.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.held = 0
        self._classes: dict[int, deque[tuple[Array, int]]] = {}
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An aligned C-contiguous array with arbitrary contents."""
        return self.take(math.prod(shape) * dtype.itemsize, shape, dtype)

    def take(self, nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """`empty`, where the bytes of that array are known."""
        size = size_class(nbytes)
        blocks = self._classes.get(size)
        looks = len(blocks) if blocks else 0
        if looks > LOOKS:
            looks = LOOKS
        moved = 0  # blocks in use, to the other end
        while moved < looks:  # a product of 128 x 128 takes only ten times as long as a look
            try:
                # Outside the deque the block belongs to this thread. Back in it, the local
                # variable still counts as a reference, so no other thread takes it for free.
                block, offset = blocks.pop()  # type: ignore[union-attr]
            except IndexError:
                break  # other threads are looking at all of them
            if getrefcount((block,)[0]) == _UNSHARED:
                if 0 < moved <= NEAR:
                    blocks.rotate(-moved)  # type: ignore[union-attr]  # back
                blocks.append((block, offset))  # type: ignore[union-attr]
                return np.ndarray(shape, dtype, block, offset)
            blocks.appendleft((block, offset))  # type: ignore[union-attr]
            moved += 1
        # The block must own its memory: views of views refer to the owner, not to what they view.
        block = np.empty(size + ALIGNMENT, np.uint8)
        offset = -address_of(block) % ALIGNMENT
        self._keep(size, block, offset)
        return np.ndarray(shape, dtype, block, offset)

    def _keep(self, size: int, block: Array, offset: int) -> None:
        """Remember a new block, in place of free ones of other sizes if the limit is reached."""
        with self._lock:
            if self.held + size > self.limit:
                self._evict(self.held + size - self.limit)
            if self.held + size <= self.limit:
                self.held += size
                self._classes.setdefault(size, deque()).append((block, offset))

    def _evict(self, excess: int) -> None:
        """Give free blocks back to the system until `excess` bytes have gone, or none is left."""
        for size, blocks in self._classes.items():
            for _ in range(len(blocks)):
                if excess <= 0:
                    return
                try:
                    block, offset = blocks.popleft()
                except IndexError:
                    break
                if getrefcount((block,)[0]) == _UNSHARED:
                    self.held -= size
                    excess -= size
                else:
                    blocks.append((block, offset))

    def holds(self, block: Array) -> bool:
        """Whether an array is one of the pool's blocks, to which the pool has a reference."""
        blocks = self._classes.get(block.nbytes - ALIGNMENT, ())
        return any(known is block for known, _ in tuple(blocks))

    def release(self, block: Array) -> bool:
        """Let go of a block, which is ordinary memory from now on; False if it is not seen here.

        Another thread may have moved the blocks between a look and the removal: then it is another
        one of this size that is let go of, and this one is free when nobody refers to it.
        """
        size = block.nbytes - ALIGNMENT
        with self._lock:
            blocks = self._classes.get(size, deque())
            for i in reversed(range(len(blocks))):  # those handed out last are at the end
                try:
                    if blocks[i][0] is block:
                        del blocks[i]
                        self.held -= size
                        return True
                except IndexError:  # another thread has taken one to look at it
                    continue
        return False

    def clear(self) -> None:
        """Release all blocks. Memory in use goes back to the system when its last view dies."""
        with self._lock:
            self._classes = {}
            self.held = 0


pool = BufferPool()


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A C-contiguous array with arbitrary contents, for a kernel's result.

    Large ones are pooled and aligned, small ones are what `np.empty` gives.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    return np.empty(shape, dtype) if nbytes < POOLED_FROM else pool.take(nbytes, shape, dtype)


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[..., Array]:
    """What gives such memory as `empty` does, for a kernel of one shape: its size is known."""
    is_small = math.prod(shape) * dtype.itemsize < POOLED_FROM
    return np.empty if is_small else empty


def empty_like(x: Array) -> Array:
    """A C-contiguous array with the shape and dtype of `x`, and arbitrary contents."""
    nbytes = x.nbytes
    if nbytes < POOLED_FROM:
        return np.empty(x.shape, x.dtype)
    return pool.take(nbytes, x.shape, x.dtype)


def address_of(block: Array) -> int:
    """Where writable memory begins; `block.ctypes.data` takes four times as long."""
    return addressof(c_char.from_buffer(block))  # type: ignore[arg-type]


def own(x: Array, owner: Array) -> bool:
    """Whether `x` is all that the memory of `owner` is for; a block then leaves the pool.

    Who keeps an array for long may keep one such: it holds no other memory, and the pool has no
    block that is never free.

    Args:
        owner: the array that owns the memory of `x`.
    """
    if owner.size == x.size:
        return True
    is_block = owner.dtype == _BYTE and owner.nbytes == size_class(x.nbytes) + ALIGNMENT
    return is_block and pool.release(owner)


def workspace(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Aligned scratch memory of any size; it is free again when the caller drops it."""
    return pool.empty(shape, dtype)
