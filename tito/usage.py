"""What a process and all it started use right now (from /proc, so on Linux), and may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
UTIME, CHILDREN_STIME, RESIDENT = 11, 14, 21  # in /proc/PID/stat, counted after the name


@dataclass(frozen=True)
class Usage:
    """Of a whole tree of processes.

    Attributes:
        cpu_seconds: of the living, and of the dead that a parent has waited for.
        memory_bytes: resident; pages that processes share count for each.
    """

    cpu_seconds: float
    memory_bytes: int
    processes: int


def usage(pid: int) -> Usage:
    """The use of process `pid` and its descendants; all zero once it is gone."""
    ticks = pages = count = 0
    for each in tree(pid):
        try:
            text = Path(f"/proc/{each}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended since
        fields = text.rpartition(")")[2].split()
        ticks += sum(map(int, fields[UTIME : CHILDREN_STIME + 1]))
        pages += int(fields[RESIDENT])
        count += 1
    return Usage(ticks / TICKS, pages * PAGE_BYTES, count)


def tree(pid: int) -> list[int]:
    """A process and its descendants, each after its parent."""
    found = [pid]
    for each in found:  # grows while it is walked
        try:
            threads = os.listdir(f"/proc/{each}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                children = Path(f"/proc/{each}/task/{thread}/children").read_text(encoding="ascii")
            except OSError:
                continue
            found += map(int, children.split())
    return found


def sleeping(pid: int) -> tuple[int, ...] | None:
    """How often each thread of a process and of its descendants has gone to sleep so far.

    None if one is awake, or if this cannot be known. The same twice: none has run between.
    """
    counts: list[int] = []
    for each in tree(pid):
        try:
            for thread in os.listdir(f"/proc/{each}/task"):
                path = Path(f"/proc/{each}/task/{thread}/status")
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                fields = dict(line.split(":", 1) for line in lines if ":" in line)
                if fields["State"].split()[0] != "S":
                    return None
                counts.append(int(fields["voluntary_ctxt_switches"]))
        except (OSError, KeyError):
            return None
    return tuple(counts)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def files_made(pid: int, folders: Sequence[str]) -> int:
    """The files, folders and links in these folders, as the processes below `pid` see them.

    Counted by the file systems themselves, so a million cost no more than one. Only processes in a
    mount namespace of their own are asked: those have folders that nobody else writes to.
    """
    most = 0
    for each in tree(pid):
        try:
            if os.readlink(f"/proc/{each}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                continue
            found = {f: os.statvfs(f"/proc/{each}/root{f}") for f in folders}
        except OSError:
            continue  # it has ended since, or has not come so far
        most = max(most, sum(f.f_files - f.f_ffree for f in found.values()))
    return most
