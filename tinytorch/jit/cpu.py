"""What this processor offers: its vector registers, and the register tiles that fit them.

The GEMM micro-kernel keeps a tile of C, `rows` x `vectors` registers, next to one row of B
(`vectors` registers) and one broadcast element of A:

    rows * vectors + vectors + 1 <= registers

More vectors mean fewer broadcasts per multiply-add, more rows mean fewer loads of B. On AVX-512 (32
registers of 64 bytes) 6 rows of 4 vectors reach 97 % of the FMA peak of a Zen 4, 14 rows of 2
vectors 94 %. AVX2 has 16 registers of 32 bytes: 4 rows of 3. ARM's 64-bit processors all have NEON,
32 registers of 16 bytes. Any other processor runs the same kernels on LLVM's generic vectors of 16
bytes.

Source: Low et al., Analytical modeling is enough for high-performance BLIS, ACM TOMS 43 (2016).
"""

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
MOST_ROWS = 14
MOST_ACCUMULATORS = 24
"""Limits of a register tile: enough to keep the FMA pipelines full, and no larger than that, as
every size is compiled."""

VECTOR_DOT_COLUMNS = 8
"""Columns of B that a single row of A is multiplied with at a time: memory is the limit there, and
eight streams of it at once were fastest."""


@dataclass(frozen=True)
class VectorUnit:
    """The vector registers that the kernels are written for.

    Args:
        name: which kind of unit.
        register_bytes: bytes of one vector register.
        registers: how many there are.
        tile_vectors: vectors per row of the register tiles that there are kernels for, ascending;
            the last is the fastest, the others are for what is left over.
        dot_rows, dot_columns: the register tile of the dot-product micro-kernel; columns up to the
            elements of a register.
        has_masks: there are registers for masks: a vector is loaded and stored in part by one
            instruction, as fast as a whole one.
    """

    name: str
    register_bytes: int
    registers: int
    tile_vectors: tuple[int, ...]
    dot_rows: int
    dot_columns: int
    has_masks: bool = False

    def tile_rows(self, vectors: int) -> int:
        """Rows of the register tile that has `vectors` vectors per row."""
        accumulators = min(MOST_ACCUMULATORS, self.registers - vectors - 1)
        return min(MOST_ROWS, accumulators // vectors)

    def columns_of_dots(self, rows: int, itemsize: int) -> int:
        """Columns of the tile of dot products that has `rows` rows."""
        if rows > 1:
            return self.dot_columns
        return min(VECTOR_DOT_COLUMNS, self.register_bytes // itemsize)

    def panel_vectors(self, left: int) -> int:
        """Vectors per row of the next tile, where `left` vectors of a row are left to do.

        The widest is the fastest, unless what it leaves costs more: a tile of one vector loads more
        than it multiplies, so with 16 registers four vectors are two and two, and with 32 five
        are three and two.

        Example:
            >>> AVX2.panel_vectors(4), AVX512.panel_vectors(5)
            (2, 3)
        """
        fitting = [v for v in reversed(self.tile_vectors) if v <= max(left, 1)]
        return min(fitting, key=lambda v: round(self._cost(v) + self._least_cost(left - v), 6))

    def _cost(self, vectors: int) -> float:
        """Of a row of a tile in a step of k, as multiply-adds: its share of the tile's loads may
        be more than these, and as many of both start in a cycle."""
        return max(vectors, 1 + vectors / self.tile_rows(vectors))

    def _least_cost(self, left: int) -> float:
        """Of so many vectors of a row."""
        fitting = [v for v in self.tile_vectors if v <= left]
        return min((self._cost(v) + self._least_cost(left - v) for v in fitting), default=0)


AVX512 = VectorUnit("avx512", 64, 32, (1, 2, 3, 4), dot_rows=4, dot_columns=6, has_masks=True)
AVX2 = VectorUnit("avx2", 32, registers=16, tile_vectors=(1, 2, 3), dot_rows=3, dot_columns=4)
NEON = VectorUnit("neon", 16, registers=32, tile_vectors=(1, 2, 4), dot_rows=4, dot_columns=2)
GENERIC = VectorUnit("generic", 16, registers=16, tile_vectors=(1, 2, 3), dot_rows=4, dot_columns=2)


def choose_vector_unit(features: Mapping[str, bool], machine: str = "x86_64") -> VectorUnit:
    """The widest vector unit that a set of LLVM processor features allows.

    Args:
        machine: the architecture, as `platform.machine` names it. Where that is ARM's with 64 bits,
            no feature is asked: NEON is a part of it, and not every system lists it.

    Example:
        >>> choose_vector_unit({"avx2": True, "fma": True}).name
        'avx2'
    """
    if machine.lower() in ("aarch64", "arm64"):
        return NEON
    if all(features.get(name, False) for name in ("avx512f", "avx512vl", "avx512dq")):
        return AVX512
    if all(features.get(name, False) for name in ("avx2", "fma")):
        return AVX2
    return GENERIC


def _numba_config() -> Any:
    from numba import config  # whose attributes numba makes at run time

    return config


def use_whole_registers() -> None:
    """Have numba's loops use registers of 64 bytes where the processor has them.

    LLVM avoids them on Intel's server cores, since on the first of them (Skylake) a few such
    instructions slowed the clock of all others. The kernels that we emit use them anyway, and a
    loop of an exponential takes half of the time. NUMBA_CPU_FEATURES, if set, decides instead.
    """
    from llvmlite import binding

    config = _numba_config()
    if platform.machine().lower() in ("x86_64", "amd64") and config.CPU_FEATURES is None:
        features = binding.get_host_cpu_features()
        if choose_vector_unit(features, platform.machine()) is AVX512:
            config.CPU_FEATURES = f"{features.flatten()},-prefer-256-bit"


@cache
def host_features() -> Mapping[str, bool]:
    """The features of LLVM that numba compiles for: this processor's, or NUMBA_CPU_FEATURES."""
    from llvmlite import binding

    chosen = _numba_config().CPU_FEATURES
    if chosen is not None:
        flags = [flag.strip() for flag in chosen.split(",")]
        return {flag[1:]: flag.startswith("+") for flag in flags if flag}
    return dict(binding.get_host_cpu_features())


@cache
def host_vector_unit() -> VectorUnit:
    """The vector unit of those features."""
    return choose_vector_unit(host_features(), platform.machine())


def processor_name() -> str:
    """The processor's name for itself; of an ARM core on Linux only its number is known."""
    import subprocess

    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for line in CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "CPU part"):
            return value.strip()
    return platform.processor() or platform.machine()
