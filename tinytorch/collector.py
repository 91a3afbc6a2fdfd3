"""The garbage collector, out of the way of a compiler or a clock.

Compiling makes some hundred thousand objects, nearly all of which stay for a while. Looking through
them again and again for cycles takes a quarter of the time. And what is timed should not have to
pay for what others left behind.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector inside the block; what was garbage meanwhile is found
    afterwards.

    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
