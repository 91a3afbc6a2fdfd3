"""Says on stderr what is being measured: in one line of a terminal, elsewhere every half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

SILENCE = 30.0
"""Seconds between lines where there is no terminal: enough to see that it goes on."""


class Progress:
    """What is being done, for who waits.

    Args:
        stream: where it is said; stderr as it is at that time by default.
        clock: gives seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._begin = self._said = clock()
        self._count = 0

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Show `what` until the end of the block; then the line is empty again."""
        stream = sys.stderr if self._stream is None else self._stream
        self._count += 1
        now = self._clock()
        text = f"{self._count}, {now - self._begin:.0f} s: {what}"
        if stream.isatty():
            print(f"\r\033[K{text}", end="", file=stream, flush=True)
        elif now - self._said >= SILENCE:
            self._said = now
            print(text, file=stream, flush=True)
        try:
            yield
        finally:
            if stream.isatty():
                print("\r\033[K", end="", file=stream, flush=True)


progress = Progress()
"""Of this process."""
