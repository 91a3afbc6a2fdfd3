"""The data caches of a core, as the operating system describes them.

Linux has them as files, macOS as system values. Elsewhere the sizes are those of a small core: a
block that fits there fits a larger cache, too.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE

L1_PAGES = 64
"""Pages whose addresses a core translates without delay: no system says how many, and from Zen 2
to Zen 5, from Skylake on and on ARM's and Apple's cores there are 48 to 160."""

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Cache:
    """A cache of a core.

    Args:
        size: bytes, as far as one core may use it.
        ways: lines that one set holds.
        line: bytes of a line.

    Example:
        >>> Cache(32 * 1024, 8, 64).way_bytes
        4096
    """

    size: int
    ways: int
    line: int

    @property
    def way_bytes(self) -> int:
        """Addresses this far apart fall into the same set."""
        return self.size // self.ways


SMALL = (Cache(32 * 2**10, 8, 64), Cache(512 * 2**10, 8, 64))


def parse_size(text: str) -> int:
    """Bytes of a size as Linux writes it.

    Example:
        >>> parse_size("48K")
        49152
    """
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def read_linux(folder: Path) -> dict[int, Cache]:
    """The data caches of the core whose folder this is, by level."""
    found = {}
    for index in sorted(folder.glob("index*")):
        values = {
            name: (index / name).read_text().strip()
            for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        }
        ways, line = int(values["ways_of_associativity"]), int(values["coherency_line_size"])
        if values["type"] != "Instruction" and ways > 0 and line > 0:
            found[int(values["level"])] = Cache(parse_size(values["size"]), ways, line)
    return found


def read_macos() -> dict[int, Cache]:
    """The caches of a fast core, by level; its share of the second, which several cores use."""

    def value(name: str) -> int:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True)
        return int(done.stdout)

    line, ways = value("hw.cachelinesize"), 8  # macOS does not say how many
    sharing = value("hw.perflevel0.cpusperl2")
    return {
        1: Cache(value("hw.perflevel0.l1dcachesize"), ways, line),
        2: Cache(value("hw.perflevel0.l2cachesize") // sharing, ways, line),
    }


@cache
def all_caches() -> tuple[Cache, ...]:
    """The caches of a core, the nearest first, at least two; `SMALL` where the system does not
    tell."""
    try:
        found = read_macos() if sys.platform == "darwin" else read_linux(_FOLDER)
    except (OSError, ValueError, subprocess.SubprocessError):
        found = {}
    levels = sorted(found)
    return tuple([found[n] for n in levels]) if levels[:2] == [1, 2] else SMALL


def core_caches() -> tuple[Cache, Cache]:
    """The first and the second cache of a core."""
    first, second = all_caches()[:2]
    return first, second


def streamed_from() -> int:
    """Bytes of a result that had better go past the caches (`jit.llvm.VectorEmitter.stream`).

    With an input of its size it fills the last cache. What reads it next finds none of it there
    then; of half as much it would, and takes longer than the kernel gains. Never where the system
    tells of no cache that cores share.
    """
    shared = all_caches()[2:]
    return shared[-1].size // 2 if shared else sys.maxsize
