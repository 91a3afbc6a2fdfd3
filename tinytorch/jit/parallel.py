"""Kernels over rows, shared out among threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import prange

from tinytorch.jit import threads
from tinytorch.jit.library import compile_source


def shared(serial: Callable[..., None], parameters: str) -> Callable[..., None]:
    """A kernel over rows, with the rows shared out among threads where the work pays for it.

        _run = shared(_scale, "x[:], factor, out[:]")
        _run(x.size, x, 2.0, out)      # the number of elementary steps, then the arguments

    Args:
        serial: the kernel; its rows do not depend on each other.
        parameters: its parameters; those of which a thread gets only its rows end in `[:]`.
    """
    names = parameters.replace("[:]", "")
    first = parameters.partition("[:]")[0].rpartition(" ")[2]
    source = (
        f"def parallel(threads, {names}):\n"
        "    for t in prange(threads):\n"
        f"        begin_ = {first}.shape[0] * t // threads\n"
        f"        end_ = {first}.shape[0] * (t + 1) // threads\n"
        f"        serial({parameters.replace('[:]', '[begin_:end_]')})\n"
    )
    compiled: list[Callable[..., None]] = []

    def run(work: float, *arguments: Any) -> None:
        if work < threads.SERIAL_BELOW or (count := threads.threads_for(work)) == 1:
            serial(*arguments)
            return
        if not compiled:
            scope = {"prange": prange, "serial": serial}
            compiled.append(compile_source("parallel", source, scope, parallel=True))
        threads.run_parallel(compiled[0], serial, count, *arguments)

    return run
