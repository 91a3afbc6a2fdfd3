"""`Announced`: a word on stderr when something takes long, so that nobody thinks it hangs."""

from __future__ import annotations

import sys
import time
from types import TracebackType

SHOW_AFTER_SECONDS = 2.0
WIDTH = 78


class Announced:
    """A block that says what it is doing once it has taken longer than two seconds.

    On a terminal it is one line that changes; elsewhere it is written once.

        with Announced("searching") as progress:
            progress("segments: 3 plans")
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._begin = time.monotonic()
        self._shown = False

    def __enter__(self) -> Announced:
        return self

    def __call__(self, detail: str) -> None:
        """Report progress."""
        if time.monotonic() - self._begin < SHOW_AFTER_SECONDS:
            return
        if sys.stderr.isatty():
            print(f"\r{self._what}: {detail}"[:WIDTH].ljust(WIDTH), end="", file=sys.stderr)
        elif not self._shown:
            print(f"{self._what} ...", file=sys.stderr, flush=True)
        self._shown = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown and sys.stderr.isatty():
            seconds = time.monotonic() - self._begin
            print(f"\r{self._what}: {seconds:.1f} s"[:WIDTH].ljust(WIDTH), file=sys.stderr)
