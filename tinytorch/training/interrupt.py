"""Ctrl-C that waits for a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def deferred_interrupt(enabled: bool) -> Iterator[Interrupt]:
    """Inside the block the first Ctrl-C is noted instead of raised; a second one stops at once.

    An interrupt in the middle of an optimizer's step would leave some parameters updated and others
    not. Where signals cannot be caught (outside of the main thread), or `enabled` is False, Ctrl-C
    does what it always does.
    """
    interrupt = Interrupt()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.getsignal(signal.SIGINT) or signal.SIG_DFL

    def note(number: int, frame: FrameType | None) -> None:
        interrupt.pressed = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
