"""`prefetch`: run an iterator ahead of its consumer, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class End:
    """The source is used up, or failed with `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def fill(
    source: Iterable[T],
    items: SimpleQueue[T | End],
    free: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """Put the items of `source` into the queue, and at last an `End`: what the thread does.

    A slot of `free` is taken (`free.acquire()`, which waits for one) before an item is made, so
    that no more items ever exist than there are slots. When `stop` is set, no further one is made.

    An error of the source, in `iter(source)` too, whatever its class, is the `End`'s `error`;
    nothing is raised here, where nobody would hear it.
    """
    end = End()
    try:
        iterator = iter(source)
        while free.acquire() and not stop.is_set():
            items.put(next(iterator))
    except StopIteration:
        pass
    except BaseException as error:
        end = End(error)
    items.put(end)


def prefetch(source: Iterable[T], depth: int) -> Generator[T]:
    """The items of `source`, at most `depth` of them made ahead by a background thread.

    A generator: the thread is started (`start`, with the work `fill`) when the first item is asked
    for. An item's slot is free again when the consumer comes back for the next one. An error of the
    source is raised here, the same object, after the items before it.

    When the generator is closed, at its end, by an error, or because the consumer leaves its loop,
    the thread is told to stop, is given a slot in case it waits for one, and is waited for
    (`join`).

    Args:
        source: anything iterable; it is iterated in the thread only.
        depth: items made ahead, at least 1.

    >>> list(prefetch(range(4), depth=2))
    [0, 1, 2, 3]
    """
    items: SimpleQueue[T | End] = SimpleQueue()
    free, stop = threading.Semaphore(depth), threading.Event()
    thread = start(fill, source, items, free, stop)
    try:
        while True:
            item = items.get()
            if isinstance(item, End):
                if item.error is not None:
                    raise item.error
                return
            yield item
            free.release()
    finally:
        stop.set()
        free.release()
        thread.join()


def start(work: Callable[..., None], *args: Any) -> threading.Thread:
    """A thread that does the work, begun; it runs in the caller's context (`using_backend`)."""
    thread = threading.Thread(
        target=copy_context().run, args=(work, *args), name="tinytorch-prefetch", daemon=True
    )
    thread.start()
    return thread
