"""`prefetch`: run an iterator ahead of its consumer, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class _End:
    """The source is used up, or failed with `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(source: Iterable[T], depth: int) -> Generator[T]:
    """The items of `source`, at most `depth` of them made ahead by a background thread.

    The thread runs in the caller's context (`using_backend`, `no_grad`). Its errors are raised
    here, after the items before them. Closing the generator stops the thread and waits for it.

    Args:
        source: anything iterable; it is iterated in the thread only.
        depth: items made ahead, at least 1.

    >>> list(prefetch(range(4), depth=2))
    [0, 1, 2, 3]
    """
    items: SimpleQueue[T | _End] = SimpleQueue()
    free = threading.Semaphore(depth)
    stop = threading.Event()

    def work() -> None:
        end = _End()
        try:
            iterator = iter(source)
            # A slot is taken before the item is made, so that no more than `depth` ever exist.
            while free.acquire() and not stop.is_set():
                items.put(next(iterator))
        except StopIteration:
            pass
        except BaseException as error:
            end = _End(error)
        items.put(end)

    thread = threading.Thread(
        target=copy_context().run, args=(work,), name="tinytorch-prefetch", daemon=True
    )
    thread.start()
    try:
        while True:
            item = items.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
            free.release()
    finally:
        stop.set()
        free.release()
        thread.join()
