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


@contextmanager
def collected_no_more() -> Iterator[None]:
    """Import inside what stays until the process ends: no collection looks through it again.

    Numba and the kernels are some hundred thousand objects. Every full collection would walk over
    them, and the last ones, when Python exits, take longer than to import them. `gc.freeze` knows
    no boundaries: it also keeps the cycles that are alive when the block ends, so garbage is
    collected before.

    >>> with collected_no_more():
    ...     import decimal
    >>> gc.get_freeze_count() > 0
    True
    """
    gc.collect()
    with collector_paused():
        yield
        gc.freeze()
