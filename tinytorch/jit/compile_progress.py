"""What is compiled at the moment, for who waits."""

from __future__ import annotations

import sys
import time

SHOW_AFTER_SECONDS = 1.0  # compiling that takes longer shows a progress line


class CompileProgress:
    """Counts compilations, and shows them once they have taken a while.

    On a terminal that is a line which goes when they are done, elsewhere one line that stays.

    Attributes:
        loaded, compiled: versions.
        seconds: spent on compiling.
        quiet: show nothing; somebody else shows it.
    """

    def __init__(self) -> None:
        self.loaded = 0
        self.compiled = 0
        self.seconds = 0.0
        self._running: list[str] = []
        self._began = 0.0
        self._shown = False
        self._said = False
        self.quiet = False

    def begin(self, name: str) -> None:
        if not self._running:
            self._began = time.perf_counter()
        self._running.append(name)
        spent = self.seconds + time.perf_counter() - self._began
        if self.quiet or spent < SHOW_AFTER_SECONDS or sys.stderr is None:
            return
        if sys.stderr.isatty():
            line = f"tinytorch: compiling kernels, once: {self.compiled} done, now {name}"
            sys.stderr.write(f"\r\x1b[2K{line[:100]}")
            sys.stderr.flush()
            self._shown = True
        elif not self._said:
            self._said = True
            sys.stderr.write(
                "tinytorch: compiling kernels, once; they are kept on disk "
                "(`tito cache warm` compiles all of them)\n"
            )
            sys.stderr.flush()

    def end(self, name: str) -> None:
        if name not in self._running:
            return
        del self._running[self._running.index(name) :]  # an error may have left inner ones behind
        self.compiled += 1
        if not self._running:
            self.seconds += time.perf_counter() - self._began
            if self._shown:
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()
                self._shown = False


progress = CompileProgress()
"""Of this process."""
