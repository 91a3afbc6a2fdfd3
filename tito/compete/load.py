"""How much of the machine others use. Wall time is worth something only where nobody else computes.

CPU time stands still while another process has the core, so events of one thread need no gate. With
several threads it says nothing about how well they share the work, and one of them that waits for a
core holds up all the others. So an event that is measured by wall time begins each launch on a
quiet machine, and a launch during which others computed is not scored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Cores that others may use beside the event's own. What they take of a core is what the slowest
#: thread, and with it the call, may take longer; and more than 3 % is noise (`result.NOISY`).
QUIET_CORES = 0.03
WINDOW_SECONDS = 1.0  # /proc/stat counts in hundredths of a second: 0.01 cores in a second
PATIENCE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
IDLE, WAITING_FOR_DISK, GUEST = 3, 4, 8  # columns of /proc/stat; guests are in others already


@dataclass(frozen=True)
class Reading:
    """The work of all processes since the machine was started.

    Attributes:
        at: seconds, of a clock that only goes forward.
        busy: core-seconds, those included that a hypervisor gave to others (steal).
    """

    at: float
    busy: float


def read() -> Reading:
    """Now. Source: proc(5), /proc/stat."""
    first = Path("/proc/stat").read_text("ascii").partition("\n")[0]
    ticks = [int(n) for n in first.split()[1:]]
    busy = sum(n for i, n in enumerate(ticks[:GUEST]) if i not in (IDLE, WAITING_FOR_DISK))
    return Reading(time.monotonic(), busy / TICKS)


def cores_of_others(before: Reading, after: Reading, own: float = 0.0) -> float:
    """How many cores others used on average.

    >>> cores_of_others(Reading(0.0, 10.0), Reading(2.0, 13.0), own=2.0)
    0.5

    Args:
        own: core-seconds of ours in between.
    """
    seconds = after.at - before.at
    return max(0.0, after.busy - before.busy - own) / seconds if seconds > 0 else 0.0


@dataclass(frozen=True)
class Gate:
    """What lets a launch begin, and says afterwards whether it was disturbed.

    Attributes:
        threads: cores that the event uses.
        cores: of the machine; others may use those that are left.
        read: a reading now.
        sleep: waits for so many seconds.
    """

    threads: int
    cores: int = os.cpu_count() or 1
    read: Callable[[], Reading] = read
    sleep: Callable[[float], None] = time.sleep

    @property
    def allowed(self) -> float:
        """Cores that others may use."""
        return max(0, self.cores - self.threads) + QUIET_CORES

    def wait(self, patience: float = PATIENCE_SECONDS) -> str | None:
        """Wait until the machine is quiet; None, or why it cannot be measured on.

        Nothing of ours may run meanwhile.
        """
        if self.threads > self.cores:
            return f"the event uses {self.threads} cores, and this machine has {self.cores}"
        began = before = self.read()
        while True:
            self.sleep(WINDOW_SECONDS)
            after = self.read()
            others = cores_of_others(before, after)
            if others <= self.allowed:
                return None
            if after.at - began.at > patience:
                return (
                    f"the machine is not quiet: after {after.at - began.at:.0f} s others still use "
                    f"{others:.2f} of its {self.cores} cores, and an event of {self.threads} "
                    f"threads, which is measured by wall time, bears {self.allowed:.2f}"
                )
            before = after
