"""The inner loop of a matrix product on processors that are not here, by LLVM's model of them.

For each processor the register tile is compiled to assembly. `llvm-mca` says how many cycles a
round of its loop takes where all data is in L1, and how many its multiply-adds would take alone:
the share of the time that their ports are busy. For the processor at hand that share is measured,
too, beside the peak: the same tile, walking on the spot in L1.

With --codes the tiles of products of small integers follow: of words, of bytes in pairs, and of
bytes with VNNI, where the processor has them. Products a cycle say what is gained over float32;
additions of integers take turns with their products on the same ports, so no share is given.

What LLVM knows of a core may be little: whose model it takes is named beside the result, and how
many multiply-adds that starts in a cycle. Apple's cores go by the model of one of 2013 with three
ports where they have four, as Neoverse V2 has; server cores of Intel by one 512-bit port, not two.
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numba.core.registry import cpu_target

from cross_assembly import assembly, emit_codes, emit_tile, inner_loop, multiply_adds, triple
from tinytorch.backends.optimized.gemm.micro_kernel import gemm_tile_f32
from tinytorch.backends.optimized.quantized.code_tile import tile_size
from tinytorch.backends.optimized.quantized.dots import OF_BYTES, OF_PAIRS, OF_WORDS
from tinytorch.bench import CANNOT_RUN_HERE, format_table
from tinytorch.bench.peak import share_of_peak
from tinytorch.jit.buffers import workspace
from tinytorch.jit.cpu import AVX2, AVX512, NEON, VectorUnit, host_vector_unit
from tinytorch.jit.library import kernel
from tinytorch.jit.operands import NOTHING, NOWHERE, Matrix, Rows

GOAL = 0.85
PROCESSORS = {"apple-m1": NEON, "apple-m4": NEON, "neoverse-v2": NEON}
OTHERS = {
    "neoverse-n1": NEON, "neoverse-n2": NEON, "neoverse-v1": NEON,
    "haswell": AVX2, "skylake": AVX2, "alderlake": AVX2, "znver2": AVX2, "znver3": AVX2,
    "skylake-avx512": AVX512, "icelake-server": AVX512, "sapphirerapids": AVX512,
    "znver4": AVX512,
}  # fmt: skip
MODELS = {
    "Cy": "Cyclone (Apple, 2013)", "N1": "Neoverse N1", "N2": "Neoverse N2",
    "V1": "Neoverse V1", "V2": "Neoverse V2", "HW": "Haswell", "ADLP": "Alder Lake P",
    "Zn2": "Zen 2", "Zn3": "Zen 3", "Zn4": "Zen 4", "SKX": "Skylake X", "SKL": "Skylake",
    "ICX": "Ice Lake", "SPR": "Sapphire Rapids",
}  # fmt: skip
"""What the names of a model's parts begin with, and what it is a model of."""
VNNI = {
    "alderlake": "avxvnni", "icelake-server": "avx512vnni", "sapphirerapids": "avx512vnni",
    "znver4": "avx512vnni",
}  # fmt: skip
"""Which instructions multiply bytes and add four products at once, where there are such."""

FORMS = {"words": OF_WORDS, "pairs of bytes": OF_PAIRS, "bytes": OF_BYTES}
ROUNDS = 200  # of a loop, in llvm-mca
STEPS = 100_000  # of k, measured
NEWEST, OLDEST = 30, 14
NEEDED = "llvm-mca is not installed: scripts/install-system-packages brings it (Debian's llvm-19)"


class UnknownProcessorError(Exception):
    """llvm-mca has no model of the processor."""


@dataclass(frozen=True)
class Found:
    """What was found for one tile on one processor.

    Attributes:
        cpu: LLVM's name of the processor; "host" for the one at hand.
        model: whose model of a core llvm-mca takes for it.
        unit, rows, vectors: the tile.
        products: of what: "float32", or one of FORMS.
        each: of them in a cycle.
        multiply_adds, instructions: of a round of its loop.
        cycles: of a round.
        ports: multiply-adds that the model starts in a cycle, if there is nothing else; of codes
            None.
        busy: the share of the cycles that these ports work in.
        measured: that share on the processor at hand.
    """

    cpu: str
    model: str
    unit: str
    rows: int
    vectors: int
    products: str
    each: float
    multiply_adds: int
    instructions: int
    cycles: float
    ports: float | None
    busy: float | None
    measured: float | None = None


def find_llvm_mca() -> str | None:
    """The newest llvm-mca on the PATH: Debian's have their version in the name."""
    versions = [f"llvm-mca-{number}" for number in range(NEWEST, OLDEST - 1, -1)]
    return next(filter(None, map(shutil.which, [*versions, "llvm-mca"])), None)


def version_of(program: str) -> str:
    """Of LLVM, as the program says it."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\S+)", text)
    return found[1] if found else "of unknown version"


def cycles(program: str, loop: Sequence[str], cpu: str, unit: VectorUnit) -> tuple[float, str]:
    """Cycles of a round of a loop, in the long run; and whose model of a core says so.

    Raises:
        UnknownProcessorError: there is none for this processor.
        RuntimeError: llvm-mca cannot read the assembly.
    """
    command = [program, f"-mtriple={triple(unit)}", f"-mcpu={cpu}", "-json"]
    totals, names = [], [""]
    for rounds in (ROUNDS, 2 * ROUNDS):  # the difference: without the way into the loop and out
        done = subprocess.run(
            [*command, f"-iterations={rounds}"],
            input="\n".join(loop) + "\n", capture_output=True, text=True,
        )  # fmt: skip
        if "not a recognized processor" in done.stderr or "scheduling model" in done.stderr:
            raise UnknownProcessorError(
                f"llvm-mca {version_of(program)} has no model of {cpu}; a newer one may have"
            )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        answer = json.loads(done.stdout)
        totals.append(answer["CodeRegions"][0]["SummaryView"]["TotalCycles"])
        names = answer["TargetInfo"]["Resources"]
    model = next((title for prefix, title in MODELS.items() if names[0].startswith(prefix)), "")
    return (totals[1] - totals[0]) / ROUNDS, model or f"of {names[0]}"


def analyse(
    program: str,
    cpu: str,
    unit: VectorUnit,
    tile: tuple[int, int],
    features: str = "",
    products: str = "float32",
) -> Found:
    """What llvm-mca says of one tile, (rows, vectors), of float32 or of one of FORMS.

    Raises:
        UnknownProcessorError: it has no model of the processor.
    """
    form = FORMS.get(products)
    emit, arguments = (emit_codes(form, *tile), 6) if form else (emit_tile(*tile), 16)
    loop = inner_loop(assembly(emit, arguments, cpu, features, unit))
    alone = multiply_adds(loop)
    took, model = cycles(program, loop, cpu, unit)
    terms = tile[0] * tile[1] * unit.register_bytes // 4 * (form.per_lane if form else 1)
    ports, busy = None, None
    if form is None:
        least, _ = cycles(program, alone, cpu, unit)
        ports, busy = round(len(alone) / least, 1), round(least / took, 3)
    return Found(
        cpu, model, unit.name, *tile, products, round(terms / took, 1), len(alone), len(loop),
        round(took, 2), ports, busy,
    )  # fmt: skip


def host() -> tuple[str, str]:
    """LLVM's name of the processor at hand and its features, as numba compiles for it."""
    codegen: Any = cpu_target.target_context.codegen()
    return codegen._get_host_cpu_name(), codegen._get_host_cpu_features()


@kernel
def _walk_in_place(rows: int, columns: int, k: int, b: int, c: int) -> None:
    """A tile of C whose rows of A and B are one row of B, at all steps of k."""
    same = Rows(b, 0)
    target = Rows(c, 4 * columns)
    gemm_tile_f32(rows, columns, k, Matrix(b, 0, 0), same, NOWHERE, target, 0, NOTHING, 0)


def measured_share(tile: tuple[int, int]) -> float:
    """The share of the peak that the tile reaches here; all strides are 0, so data is in L1."""
    unit = host_vector_unit()
    rows, vectors = tile
    columns = vectors * unit.register_bytes // 4
    memory = workspace((columns + rows * columns,), np.dtype(np.float32))
    memory[...] = 1e-9
    b = memory.ctypes.data
    c = b + 4 * columns
    return share_of_peak(
        lambda: _walk_in_place(rows, columns, STEPS, b, c),
        2 * rows * columns * STEPS,
    )


def tiles(unit: VectorUnit, every: bool) -> list[tuple[int, int]]:
    """The largest tile of a unit, or every one that its registers hold, largest first."""
    if not every:
        return [(unit.tile_rows(unit.tile_vectors[-1]), unit.tile_vectors[-1])]
    most = [(unit.tile_rows(v), v) for v in range(1, 7)]
    return [(rows, v) for top, v in most for rows in range(top, 0, -1) if rows * v >= 8]


def analyse_codes(program: str, cpu: str, unit: VectorUnit) -> list[Found]:
    """What llvm-mca says of the tiles of codes that a processor could take.

    Words and pairs are compiled as for one without VNNI: LLVM would use a part of it for them.

    Raises:
        UnknownProcessorError: it has no model of the processor.
    """
    without = f"-{VNNI[cpu]}" if cpu in VNNI else ""
    chosen = {"words": without, "pairs of bytes": without, "bytes": ""}
    if unit is NEON:
        del chosen["pairs of bytes"]
    if cpu not in VNNI:
        del chosen["bytes"]
    return [
        analyse(program, cpu, unit, tile_size(FORMS[name], unit), features, name)
        for name, features in chosen.items()
    ]


def show(found: Sequence[Found]) -> str:
    """The table."""
    columns = [
        "processor", "model of a core", "products of", "unit", "tile", "instructions", "cycles",
        "a cycle", "ports", "busy", "measured",
    ]  # fmt: skip
    rows = [
        [
            f.cpu, f.model, f.products, f.unit, f"{f.rows} x {f.vectors}", str(f.instructions),
            f"{f.cycles:.2f}", f"{f.each:.1f}", "" if f.ports is None else f"{f.ports:.1f}",
            *("" if share is None else f"{share:.0%}" for share in (f.busy, f.measured)),
        ]
        for f in found
    ]  # fmt: skip
    return format_table(columns, rows, left=5)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    known = {**PROCESSORS, **OTHERS}
    parser.add_argument(
        "--cpu",
        default=",".join(["host", *PROCESSORS]),
        help=f"of host, {', '.join(known)}; or all",
    )
    parser.add_argument("--tiles", action="store_true", help="every tile that fits the registers")
    parser.add_argument("--codes", action="store_true", help="products of small integers as well")
    parser.add_argument("--show", action="store_true", help="the assembly of the loops as well")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 below {GOAL:.0%}%")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    chosen = ["host", *known] if options.cpu == "all" else options.cpu.split(",")
    if unknown := set(chosen) - {"host", *known}:
        parser.error(f"--cpu: {', '.join(sorted(unknown))} is not one of host, {', '.join(known)}")
    program = find_llvm_mca()
    if program is None:
        print(NEEDED, file=sys.stderr)
        return CANNOT_RUN_HERE
    found, codes, unknown_here = [], list[Found](), []
    for name in chosen:
        cpu, features = host() if name == "host" else (name, "")
        unit = host_vector_unit() if name == "host" else known[name]
        for tile in tiles(unit, options.tiles):
            try:
                result = analyse(program, cpu, unit, tile, features)
            except UnknownProcessorError as error:
                unknown_here.append(str(error))
                break
            if name == "host":
                share = round(measured_share(tile), 3)
                result = Found(**{**asdict(result), "cpu": f"{cpu} (here)", "measured": share})
            found.append(result)
            if options.codes and name != "host" and tile == tiles(unit, False)[0]:
                codes += analyse_codes(program, cpu, unit)
            if options.show:
                text = "\n".join(inner_loop(assembly(emit_tile(*tile), 16, cpu, features, unit)))
                print(f"{result.cpu}, {tile[0]} x {tile[1]}:\n{text}\n", file=sys.stderr)
    facts = {"llvm_mca": version_of(program), "threads": THREADS, "unknown": unknown_here}
    if options.json:
        print(json.dumps({**facts, "results": [asdict(f) for f in (*found, *codes)]}, indent=2))
    else:
        print(f"llvm-mca {facts['llvm_mca']}; instructions and cycles of a round of the loop\n")
        print("\n".join([show([*found, *codes]), *unknown_here]))
    return int(options.check and (any((f.busy or 0) < GOAL for f in found) or bool(unknown_here)))


if __name__ == "__main__":
    sys.exit(main())
